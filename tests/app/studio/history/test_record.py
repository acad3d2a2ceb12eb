"""What is kept of a run when it is over, and what the page can do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from app.studio.database import UserDatabase
from app.studio.history import RunStore
from app.studio.history.runner import NOT_KEPT, RunRequest, Runs
from app.studio.runs.settings import PageSettings
from app.studio.web.jobs import Jobs
from engine.base.errors import PromptCacheError
from engine.pml import parse_schema
from tests.app.studio.followed import follow
from tests.app.studio.runs.test_runs import PROMPT, SCHEMA, PlayedEngine


def run(engine: PlayedEngine, kept: RunStore) -> Any:
    """The last state of a run whose end is kept."""
    runs = Runs(Jobs(), kept)
    settings = PageSettings(max_new_tokens=64, repeats=1)
    wanted = RunRequest(
        "k", cast(Any, engine), cast(Any, engine), PROMPT, settings, source=SCHEMA, origin="sample:s"
    )
    *_, state = follow(runs.start(wanted))
    assert (state["over"], state["fault"]) == (True, "")
    return state["result"]


def test_a_run_is_kept_with_its_documents(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    frame = run(PlayedEngine(), store)
    (summary,) = store.summaries()
    assert (summary["schema"], summary["state"], summary["cached_ms"]) == ("s", "done", 30.0)
    assert summary["started"] == frame["started"]
    (record,) = store.find([summary["id"]])
    assert (record.schema, record.prompt, record.origin) == (SCHEMA, PROMPT, "sample:s")
    assert record.contained == "", "it reads no files"
    assert record.told["sides"]["uncached"]["text"] == "one two uncached"
    assert frame["warnings"] == []


def test_a_run_is_kept_with_what_the_files_of_its_schema_said(tmp_path: Path) -> None:
    source, engine, store = (
        '<schema name="s"><module name="m" src="m.txt"/></schema>',
        PlayedEngine(),
        RunStore(UserDatabase(tmp_path)),
    )
    (tmp_path / "m.txt").write_text("The sky is blue.")
    engine.tree = parse_schema(source, base=tmp_path).tree
    (tmp_path / "m.txt").write_text("The sky is green.")
    run(engine, store)
    (record,) = store.find([store.summaries()[0]["id"]])
    assert "The sky is blue." in record.contained
    assert "src" not in record.contained


def test_a_run_without_a_first_token_leaves_nothing(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    assert run(PlayedEngine(fault=PromptCacheError("No.")), store)["state"] == "failed"
    assert store.summaries() == []


class FullStore(RunStore):
    """A disk without room."""

    def keep(self, record: object) -> None:
        raise PromptCacheError("The disk is full.")


def test_a_full_disk_is_a_warning_of_the_run(tmp_path: Path) -> None:
    frame = run(PlayedEngine(), FullStore(UserDatabase(tmp_path)))
    assert frame["state"] == "done"
    assert frame["warnings"] == [f"{NOT_KEPT} The disk is full."]
