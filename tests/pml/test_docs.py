"""The language reference: its table is the catalogue, and its examples are what they say they are."""

from __future__ import annotations

import re
from pathlib import Path

from engine.pml import NewText, Schema, Text, bind, catalogue_table, document_kind, parse_prompt, parse_schema
from engine.pml.xml.names import ATTRIBUTES, RESERVED
from tests.pml.documents import prompt_tree, schema_tree

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pml.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```xml\n(.*?)```", PAGE, re.S)


def check(source: str, schemas: dict[str, Schema]) -> set[str]:
    """Returns the codes of an example. A schema is remembered by its name, and a prompt names its schema."""
    if document_kind(source) == "schema":
        parsed = parse_schema(source)
        if parsed.tree is not None:
            schemas[parsed.tree.name] = parsed.tree
        return {found.code for found in parsed.diagnostics}
    prompt = parse_prompt(source)
    assert prompt.tree is not None
    assert prompt.tree.schema is not None
    diagnostics = (*prompt.diagnostics, *bind(schemas[prompt.tree.schema], prompt.tree).diagnostics)
    return {found.code for found in diagnostics if found.severity != "info"}


def test_examples_have_the_faults_they_name_and_no_other() -> None:
    schemas: dict[str, Schema] = {}
    for source in EXAMPLES:
        named = re.match(r"<!-- (E\d+) -->", source)
        assert check(source, schemas) == ({named[1]} if named else set()), source
    assert len(EXAMPLES) >= 8
    assert len(schemas) >= 4


def test_the_table_is_the_catalogue() -> None:
    assert catalogue_table() in PAGE, f"replace the table of docs/pml.md by this:\n{catalogue_table()}"


def test_every_element_and_attribute_is_described() -> None:
    table = PAGE[PAGE.index("### Elements") : PAGE.index("### Names")]
    for element, attributes in ATTRIBUTES.items():
        row = next(line for line in table.splitlines() if f"`{element}`" in line[: line.find("|", 1)])
        for attribute in attributes:
            assert f"`{attribute}`" in row, (element, attribute)


def test_every_reserved_name_is_listed() -> None:
    listed = PAGE[PAGE.index("A module cannot be named like") : PAGE.index("## White space")]
    assert set(re.findall(r"`([a-z-]+)`", listed)) == RESERVED


def test_the_page_says_what_becomes_of_white_space() -> None:
    source = next(
        example for example in EXAMPLES if 'name="code"' in example and document_kind(example) == "schema"
    )
    tree = schema_tree(source)
    for module in tree.modules():
        (text,) = (child.text for child in module.children if isinstance(child, Text) and not child.seam)
        assert "`" + text.replace("\n", "\\n") + "`" in PAGE


def test_the_argument_of_two_lines_is_dedented() -> None:
    source = next(example for example in EXAMPLES if "<arg" in example)
    prompt = prompt_tree(source)
    (argument,) = prompt.children[0].children[0].arguments  # type: ignore[union-attr]
    assert argument.value == "the small towns\nalong the river"


def test_the_question_of_the_first_prompt_ends_the_user_turn() -> None:
    schemas = [parse_schema(example).tree for example in EXAMPLES if 'schema name="trip"' in example]
    prompt = prompt_tree(next(example for example in EXAMPLES if "Which part" in example))
    assert schemas[-1] is not None
    *_, question, close = bind(schemas[-1], prompt).parts
    assert isinstance(question, NewText)
    assert question.text.strip() == "Which part of the city should I stay in?"
    assert not close.new  # type: ignore[union-attr]
