"""A default that is longer than its `len` is a fault of the schema, found before any prompt uses it."""

from __future__ import annotations

from pathlib import Path

from engine.engine import Engine
from engine.pml import apply_edits
from engine.store import Store
from tests.engine.cases import model_of, schema_of
from tests.pml.documents import errors

SCHEMA = (
    '<schema name="s"><module name="m">I go for <param name="d" len="2" default="one two three four five"/>'
    ' and <param name="e" len="40" default="a day"/> or <param name="f" len="1"/>.</module></schema>'
)


def test_a_default_longer_than_its_len_is_found_and_mended(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        (found,) = errors(engine.check(schema_of(SCHEMA)))
        tokens = engine.count_tokens("one two three four five")
        assert (found.code, found.hint) == ("E501", f'len="{tokens}"')
        assert "'d'" in found.message
        assert SCHEMA[found.span.start : found.span.end].startswith('<param name="d"')
        mended = apply_edits(SCHEMA, found.fix)
        assert mended == SCHEMA.replace('len="2"', f'len="{tokens}"')
        assert errors(engine.check(schema_of(mended))) == []
