"""A parameter in several places: its slots, the tokens of a prompt, and one report of what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.pml import PromptError
from engine.prompt.tokenized import TokenizedSchema
from engine.store import Store
from tests.engine.cases import Case, model_of, plan_of, prompt_of, schema_of

MODULE = '<module name="m">alpha <param name="n" len="3"/> beta <param name="n"/> gamma</module>'
SCHEMA = f'<schema name="s">{MODULE}</schema>'


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    yield engine
    engine.close()


def test_each_place_has_a_slot_and_each_reads_the_argument(engine: Engine) -> None:
    schema, prompt = schema_of(SCHEMA), prompt_of('<prompt><m n="ab"/></prompt>')
    once = schema_of(SCHEMA.replace('<param name="n"/>', ""))
    spec = engine.spec
    twice, single = TokenizedSchema(schema, spec).layout, TokenizedSchema(once, spec).layout
    assert twice.modules[0].params == {"n": 3}
    slots = [twice.extent(child) for child in schema.modules()[0].children if hasattr(child, "repeats")]
    assert [slot.hi - slot.lo for slot in slots if slot] == [3, 3]
    assert twice.modules[0].tokens >= single.modules[0].tokens + 3
    pieces = [piece for piece in plan_of(engine, schema, prompt).pieces if piece.kind == "argument"]
    assert [piece.path for piece in pieces] == ["m:n", "m:n"]
    assert pieces[0].token_ids == pieces[1].token_ids
    assert pieces[0].start != pieces[1].start


def test_no_slot_of_a_repeat_is_read(engine: Engine) -> None:
    case = Case(engine, schema_of(SCHEMA), prompt_of('<prompt><m n="ab"/> so?</prompt>'))
    read = sum(piece.tokens for piece in case.plan.pieces if piece.cached)
    (extent,) = case.layout.modules
    assert read == extent.tokens - 6
    assert sum(place.tokens for place in case.placements) == read


def test_an_argument_that_is_too_long_is_told_once(engine: Engine) -> None:
    prompt = prompt_of('<prompt><m n="one two three four five six seven"/></prompt>')
    with pytest.raises(PromptError) as caught:
        plan_of(engine, schema_of(SCHEMA), prompt)
    assert [one.code for one in caught.value.diagnostics] == ["E501"]


def test_a_default_that_is_too_long_is_told_once(engine: Engine) -> None:
    source = SCHEMA.replace('len="3"', 'len="3" default="one two three four five six seven"')
    found = TokenizedSchema(schema_of(source), engine.spec).check()
    assert [one.code for one in found if one.severity == "error"] == ["E501"]
