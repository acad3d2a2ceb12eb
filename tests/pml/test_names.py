"""Names in any script: what XML allows, in every place of the language that spells one."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import lxml.etree as ET
import pytest

from engine.exchange.templates.to_jinja import to_jinja
from engine.pml import (
    NAME,
    bind,
    mended,
    parse_prompt,
    parse_schema,
    read_picks,
    set_argument,
    set_pick,
)
from engine.pml.edit.formatter import format_source
from engine.pml.edit.writer import write_schema
from engine.programs.compile import naming
from engine.programs.compile.naming import VariableNames, legible
from engine.programs.program import compile_source
from engine.programs.writer import to_program
from tests.pml.documents import clean_schema as sound
from tests.pml.documents import prompt_tree, schema_tree

EDITOR = Path(__file__).resolve().parents[2] / "app" / "editor" / "src" / "names.js"
SCHEMA = """<schema name="旅行">
  <user>
    <module name="東京">Für <param name="größe" len="3"/> Leute.
      <module name="Überblick">Alles.</module></module>
    <union>
      <module name="🗼">Ein Turm.</module>
      <module name="a-б.ц·2">Ein Platz.</module>
    </union>
  </user>
  <scaffold modules="東京 東京/Überblick"/>
</schema>
"""
PROMPT = '<prompt schema="旅行"><東京 größe="vier"><Überblick/></東京><🗼/>Und?</prompt>'


def borders() -> set[int]:
    """The characters at the borders of every range, on both sides, and some between."""
    found = {int(number, 16) for number in re.findall(r"\\u\{([0-9a-f]+)\}", EDITOR.read_text("utf-8"))}
    assert len(found) > 25
    near = set(chain.from_iterable((one - 1, one, one + 1) for one in found)) | set(range(0x20, 0x180))
    return {one for one in near if not 0xD800 <= one <= 0xDFFF and one not in (0xFFFE, 0xFFFF)}


def test_names_are_those_of_xml_without_the_colon() -> None:
    def reads(name: str) -> bool:
        try:
            return bool(ET.fromstring(f"<a {name}='1'/>".encode()).attrib.get(name))
        except ET.XMLSyntaxError:
            return False

    for one in sorted(borders() - set(map(ord, ": \t\n\r/>'\"=<&"))):
        for name in (chr(one), f"a{chr(one)}"):
            assert bool(NAME.fullmatch(name)) == reads(name), hex(one)
    assert NAME.fullmatch("a:b") is None
    assert NAME.fullmatch("") is None


def test_the_editor_has_the_same_names() -> None:
    source = EDITOR.read_text("utf-8")
    spelled = dict(re.findall(r"const (\w+) = ((?:String\.raw`[^`]*`[\s+]*)+)", source))
    pieces = {key: "".join(re.findall(r"`([^`]*)`", value)) for key, value in spelled.items()}
    assert "`[${START}][${START}${FURTHER}]*`" in source

    def class_of(text: str) -> str:
        return re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", text)

    start, further = class_of(pieces["START"]), class_of(pieces["FURTHER"])
    theirs = re.compile(f"[{start}][{start}{further}]*")
    for one in borders():
        for name in (chr(one), f"a{chr(one)}"):
            assert bool(theirs.fullmatch(name)) == bool(NAME.fullmatch(name)), hex(one)


def test_documents_are_read_bound_formatted_and_written() -> None:
    schema = sound(SCHEMA)
    assert [module.path for module in schema.modules()] == ["東京", "東京/Überblick", "🗼", "a-б.ц·2"]
    prompt = parse_prompt(PROMPT)
    assert prompt.diagnostics == ()
    assert prompt.tree is not None
    bound = bind(schema, prompt.tree)
    assert bound.diagnostics == ()
    assert bound.imports == ("東京", "東京/Überblick", "🗼")
    formatted = format_source(SCHEMA)
    assert parse_schema(formatted).tree == schema
    assert parse_schema(write_schema(schema)).tree == schema


def test_the_picker_writes_them() -> None:
    schema = sound(SCHEMA)
    source = set_pick('<prompt schema="旅行"/>', schema, "東京/Überblick", True)
    source = set_argument(source, schema, "東京", "größe", "vier")
    source = set_pick(source, schema, "a-б.ц·2", True)
    picks = read_picks(source, schema)
    assert set(picks.paths) == {"東京", "東京/Überblick", "a-б.ц·2"}
    assert not [one for one in parse_prompt(source).diagnostics if one.severity == "error"]


def test_programs_and_templates_have_names_that_they_can_spell() -> None:
    schema = sound(SCHEMA)
    prompt = prompt_tree(PROMPT)
    bound = bind(schema, prompt)
    source = to_program(schema, bound=bound)
    assert "東京: bool = False" in source
    assert compile_source(source).schema() == schema
    template, notes = to_jinja(schema, bound)
    assert "{% if 東京 %}" in template
    assert notes == ()
    towers = sound('<schema name="s"><module name="🗼">a</module>\n<module name="🗽">b</module></schema>')
    names = VariableNames(towers)
    assert names.substitutes == {"name": "🗼", "name_2": "🗽"}
    program = to_program(towers)
    assert "    name: 🗼\n    name_2: 🗽" in program
    assert compile_source(program).schema() == towers
    assert to_jinja(towers, None)[1] == ("names are respelled for Jinja: name for 🗼, name_2 for 🗽",)


def test_what_names_a_module_keeps_its_script() -> None:
    assert legible("東京") == "東京"
    assert legible("Größe & Zahl") == "Größe-Zahl"
    assert legible("e\u0301te\u0301") == "\u00e9t\u00e9", "as keyboards write it"
    assert legible("×") == "part"


def test_what_is_no_name_in_xml_is_said_with_a_name_that_is() -> None:
    for source, parse in (
        ('<schema name="s"><module name="a×b">x</module></schema>', parse_schema),
        ("<prompt><a×b/></prompt>", parse_prompt),
        ("<prompt><a×b>x</a×b></prompt>", parse_prompt),
        ('<prompt><a b×c="1"/></prompt>', parse_prompt),
    ):
        (fault,) = parse(source).diagnostics
        assert fault.code == "E301"
        assert source[fault.span.start : fault.span.end] in ("a×b", "b×c")
        changed = mended(source, fault, lambda text, parse=parse: parse(text).diagnostics)
        assert changed is not None
        assert "×" not in changed


@pytest.mark.parametrize("kind", ["module", "param"])
def test_names_that_look_alike_are_two_and_told(kind: str) -> None:
    one, other = "caf\u00e9", "cafe\u0301"
    if kind == "module":
        source = f'<schema name="s"><module name="{one}">x</module>\n<union><module name="{other}">y</module>'
        source += '<module name="z">z</module></union></schema>'
    else:
        source = f'<schema name="s"><module name="m">x<param name="{one}" len="1"/>'
        source += f'<param name="{other}" len="1"/></module></schema>'
    (found,) = parse_schema(source).diagnostics
    assert found.code == "W615"
    assert source[found.span.start : found.span.end] == other
    assert "U+00E9 against U+0065 U+0301" in found.message
    assert parse_schema(source.replace(other, "cafes")).diagnostics == ()


def test_a_scaffold_is_cut_at_the_white_space_of_xml() -> None:
    source = '<schema name="s"><module name="a\u1680b">x</module>\n<module name="c">y</module>'
    schema = sound(f'{source}<scaffold modules="a\u1680b\tc"/></schema>')
    assert schema.scaffolds[0].modules == ("a\u1680b", "c")


def test_many_of_one_name_are_numbered_in_as_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    class Counted(set[str]):
        def __contains__(self, name: object) -> bool:
            nonlocal asked
            asked += 1
            return super().__contains__(name)

    modules = "".join(f'<module name="m{n}"><param name="x" len="3"/></module>' for n in range(300))
    schema = schema_tree(f'<schema name="s">{modules}</schema>')
    monkeypatch.setattr(naming, "set", Counted, raising=False)
    names = VariableNames(schema)
    assert names.of(schema.modules()[-1].children[0]) == "x_300"  # type: ignore[arg-type]
    assert asked < 2_000
