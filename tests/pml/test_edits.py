"""The picker's edits: what they write, what they leave alone, and that picks come back as they were set."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pml import (
    Module,
    Picks,
    PromptEditError,
    Schema,
    Union,
    bind,
    move_pick,
    parse_prompt,
    read_picks,
    set_argument,
    set_pick,
)
from tests.drawing import draws
from tests.pml.documents import schema_tree
from tests.pml.documents import valid_schema as tree
from tests.tables import rows

TRAVEL = """<schema name="travel">
  <module name="plan">
    For <param name="duration" len="5"/>.
    <union>
      <module name="domestic">To <param name="city" len="10" default="Lyon"/>.</module>
      <module name="overseas">
        <union><module name="tokyo">T</module><module name="rome">R</module></union>
      </module>
    </union>
    <module name="sights">S</module>
  </module>
  <module name="budget">B</module>
  <module name="food">F</module>
</schema>
"""


SCHEMA = tree(TRAVEL)


@pytest.mark.parametrize(("edit", "before", "path", "after"), rows(Path(__file__).with_name("edits.tsv")))
def test_picking_and_unpicking(edit: str, before: str, path: str, after: str) -> None:
    on = edit == "pick"
    result = set_pick(before, SCHEMA, path, on)
    assert result == after
    assert (path in read_picks(result, SCHEMA).paths) == on
    assert set_pick(result, SCHEMA, path, on) == result


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("<prompt><plan/></prompt>", "3 days", '<prompt><plan duration="3 days"/></prompt>'),
        ("<prompt><plan /></prompt>", "3", '<prompt><plan duration="3" /></prompt>'),
        ('<prompt><plan duration="2"/></prompt>', "3", '<prompt><plan duration="3"/></prompt>'),
        (
            "<prompt><plan duration = '2' /></prompt>",
            'it\'s "3"',
            "<prompt><plan duration='it&apos;s \"3\"' /></prompt>",
        ),
        (
            '<prompt><plan duration="2"/></prompt>',
            "a&b<c>\"d'",
            '<prompt><plan duration="a&amp;b&lt;c>&quot;d\'"/></prompt>',
        ),
        ('<prompt><plan duration="2"/></prompt>', "\t", '<prompt><plan duration="&#9;"/></prompt>'),
        ('<prompt><plan duration="2"/></prompt>', None, "<prompt><plan/></prompt>"),
        (
            '<prompt><plan duration="2">x</plan></prompt>',
            "a\nb",
            '<prompt><plan><arg name="duration">a\nb</arg>x</plan></prompt>',
        ),
        (
            "<prompt>\n  <plan/>\n</prompt>",
            "a\nb",
            '<prompt>\n  <plan>\n    <arg name="duration">a\nb</arg>\n  </plan>\n</prompt>',
        ),
        (
            '<prompt><plan><arg name="duration">1<!-- c --></arg></plan></prompt>',
            "2",
            '<prompt><plan><arg name="duration">2<!-- c --></arg></plan></prompt>',
        ),
        (
            '<prompt><plan><arg name="duration">1</arg></plan></prompt>',
            " 2",
            '<prompt><plan><arg name="duration" xml:space="preserve"> 2</arg></plan></prompt>',
        ),
        (
            '<prompt><plan><arg name="duration"/></plan></prompt>',
            "<]]>",
            '<prompt><plan><arg name="duration">&lt;]]&gt;</arg></plan></prompt>',
        ),
        (
            '<prompt><plan>\n  <arg name="duration">1</arg>\n</plan></prompt>',
            None,
            "<prompt><plan/></prompt>",
        ),
        (
            '<prompt><plan duration="1"><arg name="duration">2</arg>x</plan></prompt>',
            "3",
            '<prompt><plan duration="3">x</plan></prompt>',
        ),
        ("<prompt><rome/></prompt>", "3", '<prompt><plan duration="3"/><rome/></prompt>'),
        ("<prompt><rome/></prompt>", None, "<prompt><rome/></prompt>"),
        ("", "3", '<prompt schema="travel">\n  <plan duration="3"/>\n</prompt>\n'),
        ("", None, ""),
        ('<prompt><plan duration="3"/></prompt>', "3", '<prompt><plan duration="3"/></prompt>'),
        ("<prompt><plan/></prompt>", "", '<prompt><plan duration=""/></prompt>'),
        (
            "<prompt><plan/></prompt>",
            "x" * 61,
            f'<prompt><plan><arg name="duration">{"x" * 61}</arg></plan></prompt>',
        ),
        (
            '<prompt xml:space="preserve"><plan/></prompt>',
            " a\n",
            '<prompt xml:space="preserve"><plan><arg name="duration"> a\n</arg></plan></prompt>',
        ),
    ],
)
def test_arguments(before: str, value: str | None, after: str) -> None:
    result = set_argument(before, SCHEMA, "plan", "duration", value)
    assert result == after
    assert read_picks(result, SCHEMA).arguments.get("plan", {}).get("duration") == value


def test_picks_are_read_in_the_order_of_the_prompt() -> None:
    source = '<prompt><food/><rome/><plan duration="3"/></prompt>'
    expected = Picks(("food", "plan", "plan/overseas", "plan/overseas/rome"), {"plan": {"duration": "3"}})
    assert read_picks(source, SCHEMA) == expected


@pytest.mark.parametrize(
    ("path", "later", "after"),
    [
        ("food", True, '<prompt>\n  <plan duration="3"/>\n  <food/> why\n</prompt>'),
        ("plan", False, '<prompt>\n  <plan duration="3"/>\n  <food/> why\n</prompt>'),
        ("food", False, None),
        ("plan", True, None),
    ],
)
def test_an_import_moves_by_one_place(path: str, later: bool, after: str | None) -> None:
    source = '<prompt>\n  <food/>\n  <plan duration="3"/> why\n</prompt>'
    assert move_pick(source, SCHEMA, path, later) == (after or source)


@pytest.mark.parametrize("source", ["", "text", "<schema name='a'/>", "<prompt", "<other><plan/></other>"])
def test_a_source_without_a_prompt_has_no_picks(source: str) -> None:
    assert read_picks(source, SCHEMA) == Picks((), {})


@pytest.mark.parametrize(
    "source", ["text", "<schema name='a'/>", "<other><plan/></other>", "<!-- only -->", "<"]
)
def test_a_source_without_a_prompt_is_not_edited(source: str) -> None:
    with pytest.raises(PromptEditError, match="no <prompt> element"):
        set_pick(source, SCHEMA, "budget", True)
    with pytest.raises(PromptEditError, match="no <prompt> element"):
        set_argument(source, SCHEMA, "plan", "duration", "3")


def test_unfinished_elements_are_not_cut() -> None:
    with pytest.raises(PromptEditError, match="line 2 is not finished"):
        set_pick("<prompt>\n<budget> my text\n</prompt>", SCHEMA, "budget", False)


def test_a_half_typed_tag_elsewhere_does_not_stop_the_picker() -> None:
    source = '<prompt>\n  <plan duration="3"/>\n  <bud\n  Ask.\n</prompt>'
    result = set_pick(source, SCHEMA, "food", True)
    assert result == '<prompt>\n  <plan duration="3"/>\n  <food/>\n  <bud\n  Ask.\n</prompt>'


@pytest.mark.parametrize(
    ("path", "name", "value", "says"),
    [
        ("nowhere", "duration", "3", "no module 'nowhere'"),
        ("plan", "durations", "3", "no parameter 'durations'"),
        ("plan", "duration", "\0", "XML forbids"),
        ("plan", "duration", "\ud800", "XML forbids"),
    ],
)
def test_faulty_requests_are_refused(path: str, name: str, value: str, says: str) -> None:
    with pytest.raises(PromptEditError, match=says):
        set_argument("<prompt/>", SCHEMA, path, name, value)


def test_an_unknown_module_is_refused() -> None:
    with pytest.raises(PromptEditError, match="no module 'x'"):
        set_pick("<prompt/>", SCHEMA, "x", True)


def test_the_name_of_the_schema_is_escaped() -> None:
    schema = schema_tree('<schema name="a&quot;&lt;b"><module name="m">x</module></schema>')
    result = set_pick("", schema, "m", True)
    prompt = parse_prompt(result)
    assert prompt.ok
    assert prompt.tree is not None
    assert prompt.tree.schema == 'a"<b'


def test_picking_and_taking_away_gives_the_source_back() -> None:
    source = "<prompt>\n  Before.\n  <!-- note -->\n  <budget/>\n\n  Ask &amp; <![CDATA[<b>]]>.\n</prompt>\n"
    for path in ("food", "plan"):
        assert set_pick(set_pick(source, SCHEMA, path, True), SCHEMA, path, False) == source


# Properties over random schemas and prompts

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "unit.py", "_x"])
VALUES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]) | st.sampled_from("\t\n\r \"'<>&")
).filter(lambda value: not re.search("[\ufffe\uffff]", value))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    def modules(depth: int) -> str:
        names = draw(st.lists(NAMES, max_size=3, unique=True))
        parts = [f'<module name="{name}">{body(depth)}</module>' for name in names]
        cut = draw(st.integers(0, len(parts)))
        return "".join(parts[:cut]) + (f"<union>{''.join(parts[cut:])}</union>" if parts[cut:] else "")

    def body(depth: int) -> str:
        params = "".join(f'<param name="p{n}" len="3"/>' for n in range(draw(st.integers(0, 2))))
        return "text " + params + (modules(depth + 1) if depth < 3 else "")

    role = draw(st.booleans())
    inner = modules(0)
    return tree(f'<schema name="s">{"<user>" if role else ""}{inner}{"</user>" if role else ""}</schema>')


STARTS = st.sampled_from(
    [
        "",
        "<prompt/>",
        "<prompt></prompt>",
        '<prompt schema="s">\n</prompt>\n',
        "<prompt>\n  First &amp; <!-- keep -->\n  last.\n</prompt>",
        "<prompt>one<a/>two<b/>three<c>four<d/>five</c>six</prompt>",
        "<prompt>\n\t<a>\n\t\tone\n\t\t<b/>\n\t</a>\n\t<!-- x -->\n\ttwo\n\t<user>three</user>\n</prompt>",
        "<prompt>\r\n  <c/> one\r\n  <b/>\r\n</prompt>\r\n",
        '<prompt xml:space="preserve">one <a> two </a>\n<user>x</user></prompt>',
        "<prompt><d/><e> one <!-- y --></e> <a/></prompt>",
    ]
)


def ancestors(path: str) -> set[str]:
    names = path.split("/")
    return {"/".join(names[:count]) for count in range(1, len(names) + 1)}


def under(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def expected(schema: Schema, picks: set[str], path: str, on: bool) -> set[str]:
    """What the picks become, said without looking at any source."""
    if not on:
        return {pick for pick in picks if not under(pick, path)}
    result = set(picks)
    for step in ancestors(path):
        union = schema.union_of(step)
        rivals = [member.path for member in union.members if member.path != step] if union else []
        result = {pick for pick in result if not any(under(pick, rival) for rival in rivals)}
    return result | ancestors(path)


def kept(source: str) -> Counter[str]:
    """The characters of all free text and comments of a prompt, white space left out."""
    comments = "".join(re.findall(r"<!--.*?-->", source, re.S))
    pending: list[object] = [parse_prompt(source).tree]
    texts: list[str] = []
    while pending:
        node = pending.pop()
        texts.append(getattr(node, "text", ""))
        pending.extend(getattr(node, "children", ()))
    return Counter("".join((comments, *texts))) - Counter(dict.fromkeys(" \t\r\n", 10**9))


@settings(max_examples=draws(150))
@given(schema=schemas(), start=STARTS, data=st.data())
def test_picks_follow_a_model(schema: Schema, start: str, data: st.DataObject) -> None:
    paths = [module.path for module in schema.modules()]
    source = start
    picks = set(read_picks(source, schema).paths)
    for path, on in (
        data.draw(st.lists(st.tuples(st.sampled_from(paths), st.booleans()), max_size=6)) if paths else []
    ):
        clean = source == "" or not [
            f for f in bind_codes(schema, source) if f in ("E403", "E404", "E405", "E406")
        ]
        before = kept(source)
        result = set_pick(source, schema, path, on)
        after = set(read_picks(result, schema).paths)
        if clean:
            assert after == expected(schema, picks, path, on), (source, path, on, result)
        assert (path in after) == on
        assert kept(result) == before, (source, path, on, result)
        assert set_pick(result, schema, path, on) == result
        assert parse_prompt(result).ok or result == ""
        source, picks = result, after


def bind_codes(schema: Schema, source: str) -> list[str]:
    prompt = parse_prompt(source).tree
    return [found.code for found in bind(schema, prompt).diagnostics] if prompt is not None else []


@settings(max_examples=draws(150))
@given(schema=schemas(), start=STARTS, data=st.data())
def test_arguments_come_back(schema: Schema, start: str, data: st.DataObject) -> None:
    slots = [(module.path, param.name) for module in schema.modules() for param in module.params()]
    source = start
    for path, name in data.draw(st.lists(st.sampled_from(slots), max_size=4)) if slots else []:
        value = data.draw(st.none() | VALUES)
        before, picks = kept(source), set(read_picks(source, schema).paths)
        source = set_argument(source, schema, path, name, value)
        after = read_picks(source, schema)
        assert after.arguments.get(path, {}).get(name) == value, source
        assert kept(source) == before, source
        if value is None:
            assert set(after.paths) == picks
        assert set_argument(source, schema, path, name, value) == source


@settings(max_examples=draws(100))
@given(schema=schemas(), data=st.data())
def test_any_set_of_picks_can_be_written_and_read(schema: Schema, data: st.DataObject) -> None:
    def choose(children: tuple[object, ...]) -> list[str]:
        chosen: list[str] = []
        for child in children:
            if isinstance(child, Union):
                member = data.draw(st.none() | st.sampled_from(child.members))
                chosen += choose((member,)) if member else []
            elif isinstance(child, Module):
                if data.draw(st.booleans()):
                    chosen += [child.path, *choose(child.children)]
            elif hasattr(child, "children"):
                chosen += choose(child.children)
        return chosen

    picks = choose(schema.children)
    source = ""
    for path in data.draw(st.permutations(picks)):
        source = set_pick(source, schema, path, True)
    assert set(read_picks(source, schema).paths) == set(picks)
    assert set(bind_codes(schema, source)) <= {"W604", "W613", "W618"}
