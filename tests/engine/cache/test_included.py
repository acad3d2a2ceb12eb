"""What two schemas include is computed once: segments go by what they hold, and not by the file."""

from __future__ import annotations

from pathlib import Path

from engine.engine import Engine
from engine.pml import Schema, parse_schema
from engine.store import Store
from tests.engine.cases import Case, held_in_memory, model_of, prompt_of

RULES = '<schema name="rules"><module name="brief">Be brief and kind to all.</module></schema>'


def included(folder: Path, source: str) -> Schema:
    parsed = parse_schema(source, base=folder)
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree is not None
    return parsed.tree


def test_two_schemas_with_the_same_rules_share_their_segments(tmp_path: Path) -> None:
    (tmp_path / "rules.pml").write_text(RULES)
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path / "store"))
    opening = '<include src="rules.pml"/>'
    one = included(tmp_path, f'<schema name="one">{opening}<module name="x">x</module></schema>')
    other = included(tmp_path, f'<schema name="other">{opening}<module name="y">other</module></schema>')
    Case(engine, one, prompt_of("<prompt><brief/> so?</prompt>"))
    before = set(held_in_memory(engine))
    assert before
    Case(engine, other, prompt_of("<prompt><brief/> then?</prompt>"))
    assert set(held_in_memory(engine)) == before, "nothing was encoded"
    engine.close()
