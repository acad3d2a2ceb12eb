"""What must hold for any program and any schema."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from engine.pml import bind, parse_prompt, parse_schema
from engine.pml.conversation import Message, conversation
from engine.pml.writer import write_prompt, write_schema
from engine.programs import compile_source, to_program
from tests.pml.trees import schemas
from tests.programs.sources import arguments, load, programs

slow = settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
SAMPLES = Path(__file__).parents[2] / "sample_schemas"


@slow
@given(programs(), arguments())
def test_the_prompt_of_a_program_spells_what_running_it_writes(source: str, given: dict[str, object]) -> None:
    program = load(source)
    schema, prompt = program.schema(), program(**given)
    bound = bind(schema, prompt)
    assert bound.ok, (source, bound.diagnostics)
    assert conversation(bound.parts) == program.messages(**given), source


@slow
@given(programs(), arguments())
def test_a_program_and_its_prompt_survive_as_documents(source: str, given: dict[str, object]) -> None:
    program = load(source)
    schema, prompt = parse_schema(program.source()), parse_prompt(write_prompt(program(**given)))
    assert schema.tree == program.schema()
    assert schema.tree is not None
    assert prompt.tree is not None
    assert conversation(bind(schema.tree, prompt.tree).parts) == program.messages(**given)


@slow
@given(programs())
def test_a_file_that_is_only_read_gives_the_schema_of_the_imported_one(source: str) -> None:
    assert compile_source(source).schema() == load(source).schema()


@slow
@given(schemas())
def test_every_schema_is_a_program(schema: object) -> None:
    source = to_program(schema)
    assert compile_source(source).schema() == schema
    assert load(source, compile_source(source).definition.node.name).schema() == schema


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pml")), ids=lambda path: path.name)
def test_every_sample_schema_is_a_program(path: Path) -> None:
    parsed = parse_schema(path.read_text(encoding="utf-8"), base=SAMPLES)
    if parsed.ok:
        assert parsed.tree is not None
        program = compile_source(to_program(parsed.tree, SAMPLES), base=SAMPLES)
        assert program.schema() == parsed.tree
        assert program.source() == write_schema(parsed.tree)


def test_messages_are_compared_by_role_and_text() -> None:
    assert Message("user", "a") != Message("system", "a")
