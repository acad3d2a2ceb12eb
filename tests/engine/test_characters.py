"""Half of a surrogate pair is no character: whatever takes text refuses it, says what it is, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.exchange.from_messages import from_messages
from engine.exchange.templates.from_jinja import from_jinja
from engine.pml.edit.formatter import format_source
from engine.programs import compile_source
from engine.store import Store
from tests.engine.tiny import tiny_model

HALF = "\ud83d"
SCHEMA = '<schema name="s"><module name="m">t<param name="p" len="3"/></module></schema>'
TAKING: dict[str, Callable[[Engine, str], object]] = {
    "count_tokens": lambda engine, half: engine.count_tokens(f"a\nb{half}"),
    "a schema": lambda engine, half: engine.schema(SCHEMA.replace(">t<", f">{half}<")),
    "a schema's name": lambda engine, half: engine.schema(SCHEMA.replace('"s"', f'"{half}"')),
    "a prompt": lambda engine, half: engine.schema(SCHEMA).prompt(f"<prompt><m/>{half}</prompt>"),
    "an argument": lambda engine, half: engine.schema(SCHEMA).prompt(f'<prompt><m p="{half}"/></prompt>'),
    "a pin": lambda engine, half: engine.store.settings.pin(half),
    "a pin that goes": lambda engine, half: engine.store.settings.unpin(half),
    "a folder of segments": lambda engine, half: Store.open(engine.store.folder / half),
    "messages": lambda _, half: from_messages(json.dumps([{"role": "user", "content": half}]), "n"),
    "a template": lambda _, half: from_jinja(half, "n", 5),
    "a program": lambda _, half: compile_source(f"# {half}", "x.py"),
    "a text to format": lambda _, half: format_source(SCHEMA.replace(">t<", f">{half}<")),
}


@pytest.mark.parametrize("what", TAKING)
def test_half_of_a_surrogate_pair_is_refused_in_words(what: str, tmp_path: Path) -> None:
    engine = Engine(tiny_model(), Store.open(tmp_path))
    with pytest.raises(PromptCacheError) as refused:
        TAKING[what](engine, HALF)
    said = str(refused.value)
    assert "U+D83D" in said or "\\ud83d" in said
    if what == "count_tokens":
        assert "(U+D83D) in line 2, column 2" in said
    engine.close()


def test_a_whole_pair_is_a_character(tmp_path: Path) -> None:
    engine = Engine(tiny_model(), Store.open(tmp_path))
    assert engine.count_tokens("\N{CAMERA}") > 0
    engine.close()
