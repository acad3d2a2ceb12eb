"""Schemas that are put together from data: the same as a document of them, checked as one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pml import Module, Param, Role, Schema, Text, Union, bind, parse_schema
from engine.pml.tree.conversation import conversation
from engine.pml.whitespace.separators import SEAMS
from engine.programs import Part, SchemaBuilder, SchemaError, Slot, Turn
from tests.drawing import draws
from tests.pml.documents import prompt_tree
from tests.pml.trees import schemas

DOCUMENTS = {"unit": "  x = 1\n\n\ty < 2 && ]]>\n", "plan": "Go.\n"}


def test_a_schema_of_documents() -> None:
    builder = SchemaBuilder("docs", seam="").system("Answer from the documents.").user("Read:\n")
    for name, text in DOCUMENTS.items():
        builder.module(name, text)
    builder.module(
        "trip", "For ", Slot("days", 5, default="two"), " days.\n", {"rome": "Rome.\n", "oslo": "Oslo.\n"}
    )
    builder.union({"short": "Be short.", "long": "Be long."}).scaffold("unit", "plan")
    schema, parsed = builder.schema(), parse_schema(builder.pml())
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree == schema
    assert schema.union_of("short") is schema.union_of("long")
    unit = schema.module("unit")
    assert unit is not None
    assert [child.text for child in unit.children if isinstance(child, Text)] == [DOCUMENTS["unit"]]
    prompt = prompt_tree("<prompt schema='docs'><unit/><trip days='3'><oslo/></trip><short/></prompt>")
    bound = bind(schema, prompt)
    assert bound.ok, bound.diagnostics
    text = "Read:\n" + DOCUMENTS["unit"] + "For 3 days.\nOslo.\nBe short."
    assert [one.text for one in conversation(bound.parts)] == ["Answer from the documents.", text]


def test_modules_nest_as_parts() -> None:
    inner = Part("tokyo", "Tokyo", Part("food", "Sushi", cache=False))
    schema = SchemaBuilder("s").text("All. ").module("trip", inner, [Part("a", "x"), Part("b", "y")]).schema()
    assert [module.path for module in schema.modules()] == [
        "trip",
        "trip/tokyo",
        "trip/tokyo/food",
        "trip/a",
        "trip/b",
    ]
    food = schema.module("trip/tokyo/food")
    assert food is not None
    assert not food.cache


def test_text_of_files(tmp_path: Path) -> None:
    (tmp_path / "unit.py").write_text("x = 1\n", encoding="utf-8")
    builder = SchemaBuilder("s", base=tmp_path).module("unit.py", src="unit.py")
    assert builder.schema() == parse_schema(builder.pml(), base=tmp_path).tree
    with pytest.raises(SchemaError, match=r"E209, gone: .*gone"):
        SchemaBuilder("s", base=tmp_path).module("gone", src="gone").schema()
    with pytest.raises(SchemaError, match=r"E210, unit has the text of unit\.py"):
        SchemaBuilder("s", base=tmp_path).module("unit", "more", src="unit.py").schema()


@pytest.mark.parametrize(
    ("builder", "code", "says"),
    [
        (
            SchemaBuilder("s").module("a", "x").user().module("a", "y"),
            "E302",
            "two modules have the name a; rename one",
        ),
        (SchemaBuilder("s").module("a", Part("b"), Part("b")), "E302", "two modules have the name a/b"),
        (SchemaBuilder("s").union({"a": "x"}, Part("a", "y")), "E302", "two modules have the name a"),
        (
            SchemaBuilder("s").module("my file.txt", "x"),
            "E301",
            r"'my file.txt' cannot name a module.*name\('my file.txt'\) makes one",
        ),
        (SchemaBuilder("s").module("user", "x"), "E303", "user is an element of PML"),
        (
            SchemaBuilder("s").module("a", "x\x00"),
            "E103",
            "a contains '.x00', which documents cannot contain",
        ),
        (SchemaBuilder("s").text("x\x00"), "E103", "the schema contains"),
        (SchemaBuilder("s").module("a", Slot("x y", 5)), "E301", "'x y' in a cannot name a parameter"),
        (SchemaBuilder("s").module("a", Slot("x", 0)), "E204", "length of x in a"),
        (SchemaBuilder("s").module("a", "x").scaffold("b"), "", "E306"),
        (SchemaBuilder("s").module("a", Turn("user", "x"), "y"), "E212", "a mixes whole turns"),
        (SchemaBuilder("s").module("a", Part("b", Turn("user", "x"))), "E206", "a/b has turns"),
        (SchemaBuilder("s").module("a", Turn("user", [Part("b", Turn("user"))])), "E206", "a/b has turns"),
        (
            SchemaBuilder("s").module("a", Turn("user", Turn("user", "x"))),
            "E206",
            "a has a turn inside a turn",
        ),
        (SchemaBuilder("s").module("a", Turn("tool", "x")), "E205", "'tool' is not a turn"),  # type: ignore[arg-type]
        (SchemaBuilder("my docs"), "E301", "'my docs' cannot name a schema"),
    ],
)
def test_faults_are_those_of_a_document(builder: SchemaBuilder, code: str, says: str) -> None:
    for make in (builder.schema, builder.pml):
        with pytest.raises(SchemaError, match=says) as caught:
            make()
        assert caught.value.faults[0].startswith(code)


def test_every_fault_is_found_at_once() -> None:
    with pytest.raises(SchemaError, match=r"\(and 1 more\)") as caught:
        SchemaBuilder("s").module("a b", "x").module("c d", "y").schema()
    assert len(caught.value.faults) == 2


def test_a_name_for_any_title() -> None:
    builder = SchemaBuilder("s").user()
    for title in ("My file.txt", "My file.txt", "user", "🗼", "?!"):
        builder.module(builder.name(title), "x")
    assert [module.name for module in builder.schema().modules()] == [
        "My-file.txt",
        "My-file.txt-2",
        "user-part",
        "🗼",
        "part",
    ]


def rebuilt(schema: Schema, seam: str) -> SchemaBuilder:
    builder = SchemaBuilder(schema.name, seam=seam)
    for child in schema.children:
        if isinstance(child, Role):
            getattr(builder, child.role)()
            for one in child.children:
                add(builder, one)
        else:
            add(builder, child)
    for scaffold in schema.scaffolds:
        builder.scaffold(*scaffold.modules)
    return builder


def add(builder: SchemaBuilder, node: Any) -> None:
    if isinstance(node, Text):
        builder.text(node.text)
    elif isinstance(node, Union):
        builder.union(*(part(one) for one in node.members))
    else:
        builder.module(node.name, *map(content, node.children), cache=node.cache)


def part(module: Module) -> Part:
    return Part(module.name, *map(content, module.children), cache=module.cache)


def content(node: Any) -> Any:
    match node:
        case Text(text):
            return text
        case Param(name, length, default, scaffold):
            return Slot(name, length, default, scaffold)
        case Union(members):
            return [part(one) for one in members]
        case Role(role, children):
            return Turn(role, *map(content, children))
    return part(node)


def buildable(node: Any) -> bool:
    """Whether nothing but what brings turns stands right after a turn, and no union has a scaffold."""
    children = node.members if isinstance(node, Union) else getattr(node, "children", ())
    stands = all(
        not isinstance(one, Role) or isinstance(other, Role) or brings_turns(other)
        for one, other in pairwise(children)
    )
    plain = not isinstance(node, Union) or node.scaffold is None
    return plain and stands and all(buildable(child) for child in children)


def brings_turns(node: Any) -> bool:
    modules = node.members if isinstance(node, Union) else (node,)
    return any(isinstance(one, Module) and bool(one.turns()) for one in modules)


@settings(max_examples=draws(100))
@given(schemas().filter(buildable))
def test_every_schema_can_be_built(schema: Schema) -> None:
    builder = rebuilt(schema, "")
    assert builder.schema() == schema
    assert parse_schema(builder.pml()).tree == schema


@settings(max_examples=draws(100))
@given(schemas(), st.sampled_from(SEAMS))
def test_what_is_set_apart_is_the_schema_of_its_document(schema: Schema, seam: str) -> None:
    builder = rebuilt(schema, seam)
    assert parse_schema(builder.pml()).tree == builder.schema()


@pytest.mark.parametrize(
    ("seam", "text"),
    [
        ("\n", "Read:\nmore:\nOne.\nTwo.\nFor 3 days.\nA\nB\nEnd."),
        ("\n\n", "Read:\n\nmore:\n\nOne.\n\nTwo.\n\nFor 3 days.\n\nA\n\nB\n\nEnd."),
        (" ", "Read: more: One.\nTwo. For 3 days. A B End."),
        ("", "Read:\n more:One.\nTwo.For 3 days.ABEnd."),
    ],
)
def test_modules_and_texts_are_set_apart(seam: str, text: str) -> None:
    builder = SchemaBuilder("s", seam=seam).user("Read:\n").text(" more:").module("one", "One.\n")
    builder.module("two", "Two.").module("gone", "Gone.")
    builder.module("trip", "For ", Slot("days", 5), " days.", Part("a", "A"), {"b": "B", "c": "C"})
    schema = builder.module("end", "End.").schema()
    imports = "<one/><two/><trip days='3'><a/><b/></trip><end/>"
    prompt = prompt_tree(f"<prompt schema='s'>{imports}</prompt>")
    assert conversation(bind(schema, prompt).parts)[0].text == text
    assert parse_schema(builder.pml()).tree == schema


def test_what_is_no_seam_is_a_fault() -> None:
    with pytest.raises(SchemaError, match=r"'---' is not a separator; use a line break"):
        SchemaBuilder("s", seam="---").schema()


def test_examples_from_data_are_turns_that_a_prompt_may_leave_out() -> None:
    builder = SchemaBuilder("e").system("Answer in a word.").user("Sums.")
    for number, (asked, answer) in enumerate([("1+1?", "2"), ("2+2?", "4")]):
        builder.module(f"shot-{number}", Turn("user", asked), Turn("assistant", answer))
    place = Slot("place", 4)
    builder.module("more", Turn("user", "And ", place, "?"), Turn("assistant", place, " it is."))
    schema = builder.user("Now:").module("topic", "Sums.").schema()
    assert parse_schema(builder.pml()).tree == schema
    prompt = prompt_tree("<prompt schema='e'><shot-1/><more place='3'/><topic/></prompt>")
    bound = bind(schema, prompt)
    assert bound.ok, bound.diagnostics
    assert [(one.role, one.text) for one in conversation(bound.parts)] == [
        ("system", "Answer in a word."),
        ("user", "Sums."),
        ("user", "2+2?"),
        ("assistant", "4"),
        ("user", "And 3?"),
        ("assistant", "3 it is."),
        ("user", "Now:\nSums."),
    ]
