"""What must hold for any program and any schema."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import runpy
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.exchange.base.errors import ExchangeError
from engine.exchange.templates.to_jinja import to_jinja
from engine.pml import (
    RESERVED,
    Argument,
    Import,
    Module,
    Param,
    Prompt,
    Schema,
    Text,
    Union,
    bind,
    parse_prompt,
    parse_schema,
)
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import write_prompt, write_schema
from engine.pml.tree.conversation import conversation
from engine.programs import compile_source, to_program
from engine.programs.program import Program
from engine.programs.writer import PromptCallError
from engine.programs.writer_api import Recorder
from tests.drawing import EVERY, each
from tests.pml.trees import prompts, schemas
from tests.programs.sources import arguments, load, programs, run

slow = settings(
    max_examples=120 if EVERY else 10,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
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


DUNDERS = (
    "__name__",
    "__builtins__",
    "__debug__",
    "__file__",
    "__doc__",
    "__class__",
    "__annotations__",
    "__",
)
MEANT = sorted(
    {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *dir(Recorder), *dir(Program), *DUNDERS}
    | {"self", "cls", "p", "args", "arguments", "given", "values", "recorder", "prompt", "new_text", "schema"}
    | {
        "Arg",
        "Literal",
        "engine",
        "typing",
        "loop",
        "caller",
        "varargs",
        "kwargs",
        "namespace",
        "set",
        "block",
    }
)
"""Names that mean something to Python, to Jinja or to us."""
TYPICAL = (
    *("class", "match", "print", "None", "__name__", "__builtins__", "__debug__", "text", "messages", "self"),
    *("p", "prompt", "schema", "Arg", "engine", "loop", "block", "args"),
)


def named(name: str) -> tuple[Schema, Prompt]:
    """A schema in which everything has one name, and a prompt that gives and picks all of it."""
    texts = Text("Go to ", NOWHERE), Param(name, 5, None, None, NOWHERE), Text(" soon.\n", NOWHERE)
    below, other = f"{name}/{name}", f"{name}/other"
    members = tuple(
        Module(path.rpartition("/")[2], path, (Text(f"{path}\n", NOWHERE),), True, None, NOWHERE, NOWHERE)
        for path in (below, other)
    )
    inner = (*texts, Union(members, None, NOWHERE))
    top = Module(name, name, inner, True, None, NOWHERE, NOWHERE)
    chosen = Import(name, (), (), NOWHERE, NOWHERE)
    given = Import(name, (Argument(name, "Rome", NOWHERE),), (chosen,), NOWHERE, NOWHERE)
    return Schema(name, (top,), (), NOWHERE), Prompt(name, (given, Text("And?", NOWHERE)), NOWHERE)


@pytest.mark.parametrize("name", each([name for name in MEANT if name not in RESERVED], *TYPICAL))
def test_every_name_of_a_module_may_stand_in_a_program_and_its_call(name: str) -> None:
    schema, prompt = named(name)
    check_call(schema, prompt)


@pytest.mark.parametrize("name", ["__name__", "__builtins__", "print"])
def test_an_exported_file_prints_its_schema_whatever_that_is_called(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = Schema(name, (Text("Be kind.", NOWHERE),), (), NOWHERE)
    file = tmp_path / "exported.py"
    file.write_text(to_program(schema), encoding="utf-8")
    runpy.run_path(str(file), run_name="__main__")
    assert parse_schema(capsys.readouterr().out).tree == schema


@slow
@given(st.data())
def test_every_prompt_is_a_call_that_spells_it(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    prompt = data.draw(prompts(schema))
    try:
        check_call(schema, prompt)
    except PromptCallError:
        assert "text" in {type(child).__name__.lower() for child in prompt.children}


def check_call(schema: Schema, prompt: Prompt) -> None:
    """The exported file, run, gives the prompt, and so does a call with the values by their names."""
    bound = bind(schema, prompt)
    assert bound.ok
    wanted = conversation(bound.parts)
    source = to_program(schema, None, bound)
    names = run(source)
    assert conversation(bind(schema, names["prompt"]()).parts) == wanted, source
    program = names[compile_source(source).definition.node.name]
    values = call_of(source)
    assert program.messages(**values) == wanted
    assert program.text(**values) == "".join(one.text for one in wanted)
    try:
        template, _ = to_jinja(schema, bound)
    except ExchangeError:  # text in no turn round one that is left out, which a template cannot set apart
        assert {type(child).__name__ for child in schema.children} >= {"Text", "Role"}
        return
    environment = jinja2.Environment()
    assert environment.from_string(template).render(**rendered_with(template)) == program.text(**values)


def call_of(source: str) -> dict[str, Any]:
    """What the call in an exported file gives."""
    last = next(one for one in ast.parse(source).body if getattr(one, "name", "") == "prompt").body[-1]
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Call)
    return {str(one.arg): ast.literal_eval(one.value) for one in last.value.keywords}


def rendered_with(template: str) -> dict[str, Any]:
    """What the comment of an exported template says to render it with."""
    return dict(json.loads(template.partition("\n")[2].partition("\n#}")[0]))
