"""Every module of a schema, encoded as the page asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.studio.pages.encode_schema import encode_all
from app.studio.web.jobs import Job, Jobs
from engine import Engine, PreparedSchema
from tests.app.studio.asked import Asked
from tests.app.studio.followed import follow

SCHEMA = '<schema name="s"><module name="a">alpha beta</module><module name="b">gamma</module></schema>'


@pytest.fixture
def engine(tmp_path: Path, tiny_model: Path) -> Iterator[Engine]:
    with Engine.open(tiny_model, device="cpu", cache_dir=tmp_path / "cache") as engine:
        yield engine


def asked(studio: Asked, key: str, **more: Any) -> Any:
    return studio.ask("encode_all", {"key": key, "schema": SCHEMA, "prompt": "<no prompt", **more})


def test_all_modules_are_encoded_whatever_the_prompt_is(tmp_path: Path, engine: Engine) -> None:
    studio = Asked(tmp_path, engine=engine)
    assert asked(studio, "one")["key"] == "one"
    report = studio.ended("one")["result"]
    assert (report["encoded"], report["reused"], report["kept"], report["total"]) == (2, 0, 2, 2)
    assert report["tokens"] > 0 < report["seconds"]
    asked(studio, "two")
    assert (studio.ended("two")["result"]["encoded"], studio.ended("two")["result"]["reused"]) == (0, 2)


def test_what_cannot_be_encoded_is_refused_in_words(tmp_path: Path, engine: Engine) -> None:
    studio = Asked(tmp_path, engine=engine)
    assert "E1" in asked(studio, "one", schema="<schema")["error"]
    asked(studio, "two", settings={"scope": "scaffold"})
    assert "a schema alone has nothing to encode" in studio.ended("two")["fault"]


def test_encoding_is_stopped_between_two_passes(engine: Engine) -> None:
    prepared, jobs = engine.schema(SCHEMA), Jobs()

    class Stopping(PreparedSchema):
        def encode(self, **given: Any) -> Any:
            jobs.stop("k")
            return prepared.encode(**given)

    schema = Stopping(prepared.tokenized, None)  # type: ignore[arg-type]
    *_, end = follow(jobs.start(Job("k", lambda job: encode_all(job, schema, "anchored"), "encode all")))
    assert end["fault"] == "Stopped."
    assert engine.store.stats().segments == 0
