"""A parameter in several places of its module: one argument, read at each."""

from __future__ import annotations

import pytest

from engine.exchange.templates.from_jinja import from_jinja
from engine.exchange.templates.to_jinja import to_jinja
from engine.pml import Module, Param, bind, parse_schema, set_argument
from engine.pml.edit.formatter import format_source
from engine.pml.edit.writer import write_schema
from engine.programs import SchemaBuilder, Slot
from engine.programs.builder import SchemaError
from engine.programs.program import compile_source
from engine.programs.writer import to_program
from tests.pml.documents import clean_schema as sound
from tests.pml.documents import prompt_tree
from tests.pml.documents import spelled as said
from tests.programs.checks import both, file_of, written

SCHEMA = """<schema name="s">
  <user>
    <module name="trip">
      I fly to <param name="city" len="4" default="Lyon"/>, and <param name="city"/> is far.
      <module name="stay">In <param name="city" len="2"/> I stay.</module>
      Ah, <param name="city"/>!
    </module>
  </user>
</schema>
"""


def slots(module: Module) -> list[Param]:
    return [child for child in module.children if isinstance(child, Param)]


def test_a_repeat_has_what_the_first_has() -> None:
    trip, stay = sound(SCHEMA).modules()
    assert [(one.name, one.length, one.default, one.repeats) for one in slots(trip)] == [
        *(("city", 4, "Lyon", False), ("city", 4, "Lyon", True), ("city", 4, "Lyon", True))
    ]
    assert [one.name for one in trip.params()] == ["city"]
    assert [(one.length, one.repeats) for one in slots(stay)] == [(2, False)], "a module has its own"


def test_one_argument_is_read_at_every_place() -> None:
    schema = sound(SCHEMA)
    assert said(schema, '<prompt><trip city="Oslo"/></prompt>').count("Oslo") == 3
    assert said(schema, "<prompt><trip/></prompt>").count("Lyon") == 3
    edited = set_argument("<prompt><trip/></prompt>", schema, "trip", "city", "Rome")
    assert edited.count("Rome") == 1
    assert said(schema, edited).count("Rome") == 3


def test_what_stays_empty_is_told_once() -> None:
    module = '<module name="m">a <param name="p" len="2"/> b <param name="p"/></module>'
    schema = sound(f'<schema name="s">{module}</schema>')
    prompt = prompt_tree("<prompt><m/> So?</prompt>")
    found = bind(schema, prompt).diagnostics
    assert [(one.code, one.severity) for one in found] == [("W604", "warning")]


def test_documents_keep_the_repeat_as_it_is_written() -> None:
    schema = sound(SCHEMA)
    for source in (format_source(SCHEMA), write_schema(schema)):
        assert source.count('<param name="city"/>') == 2
        assert parse_schema(source).tree == schema


@pytest.mark.parametrize("default", [None, "Lyon"])
def test_templates_and_programs_use_one_variable(default: str | None) -> None:
    schema = sound(SCHEMA if default else SCHEMA.replace(' default="Lyon"', ""))
    prompt = prompt_tree('<prompt><trip city="Oslo"/></prompt>')
    bound = bind(schema, prompt)
    source = to_program(schema, bound=bound)
    assert source.count("city: Arg[4]") == 1
    assert compile_source(source).schema() == schema
    template, _ = to_jinja(schema, bound)
    assert template.count("{{ city_2") == 1
    assert template.count("{{ city") - 1 == 3


def test_a_template_that_names_a_variable_twice_repeats_it() -> None:
    found = from_jinja("{% if trip %}To {{ city }}, o {{ city }}!{% endif %}", "t", 5)
    (module,) = found.schema.modules()
    assert [(one.name, one.repeats) for one in slots(module)] == [("city", False), ("city", True)]


def test_a_program_that_uses_an_argument_twice_in_a_module_repeats_it() -> None:
    program = both(file_of('if flag:\n    p.text("To ", a, ", o ", a, "!")\n    if other: p.text(a)'))
    outer, inner = program.schema().modules()
    assert [(one.name, one.repeats) for one in slots(outer)] == [("a", False), ("a", True)]
    assert [(one.name, one.repeats) for one in slots(inner)] == [("a", False)]
    assert written(program, flag=True, other=True, a="Oslo") == "To Oslo, o Oslo!\nOslo\n"
    assert program(flag=True, a="Oslo").children[0].arguments[0].value == "Oslo"
    assert len(program(flag=True, a="Oslo").children[0].arguments) == 1


def test_the_builder_repeats_a_slot_and_refuses_another_of_its_name() -> None:
    city = Slot("city", 4)
    builder = SchemaBuilder("s").module("m", "To ", city, ", o ", city)
    assert [one.repeats for one in slots(builder.schema().modules()[0])] == [False, True]
    with pytest.raises(SchemaError, match=r"E304, city is defined twice in m; rename one, or repeat"):
        SchemaBuilder("s").module("m", city, " ", Slot("city", 5)).schema()
