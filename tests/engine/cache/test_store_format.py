"""A store that an earlier version wrote is read as it is: same names, same files, nothing encoded again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, RunSettings
from engine.store import Store
from tests.engine.tiny import tiny_model

WRITTEN = Path(__file__).parent / "stores" / "earlier"
"""Every segment of SCHEMA under both fixed scopes, encoded earlier with `tiny_model()`."""
SCHEMA = (
    '<schema name="s"><system>Be brief.</system><user xml:space="preserve">Read. <module name="a">alpha '
    '<module name="b">beta</module></module><union><module name="c">gamma <param name="n" len="3"/></module>'
    '<module name="d">delta</module></union></user><scaffold modules="a c"/></schema>'
)
PROMPTS = ('<a><b/></a><c n="two"/>So?', "<a/><d/>And now?", "<c/>Why?")


@pytest.fixture
def engine(tmp_path: Path):
    folder = shutil.copytree(WRITTEN, tmp_path / "store")
    with Engine(tiny_model(), Store.open(folder, verify="always")) as opened:
        yield opened


@pytest.mark.parametrize("scope", ["isolated", "anchored"])
def test_nothing_is_encoded_again(engine: Engine, scope: Any) -> None:
    schema, settings = engine.schema(SCHEMA), RunSettings(max_new_tokens=4, scope=scope)
    report = schema.encode(scope=scope)
    assert report.encoded == 0
    assert report.reused == report.total == report.kept
    for source in PROMPTS:
        answer = schema.prompt(f"<prompt>{source}</prompt>").answer(settings)
        assert {use.outcome for use in answer.segments} == {"hit"}
        assert answer.tokens["encoded"] == 0


@pytest.mark.parametrize("scope", ["isolated", "anchored"])
def test_what_is_read_is_what_would_be_encoded(engine: Engine, tmp_path: Path, scope: Any) -> None:
    with Engine(tiny_model(), Store.open(tmp_path / "new")) as fresh:
        for source in PROMPTS:
            one, other = (
                side.schema(SCHEMA).prompt(f"<prompt>{source}</prompt>").answer(max_new_tokens=4, scope=scope)
                for side in (engine, fresh)
            )
            assert (one.first_logits - other.first_logits).abs().max() < 1e-5
            assert one.token_ids == other.token_ids


def test_its_index_and_files_agree(engine: Engine) -> None:
    assert engine.store.verify().clean
