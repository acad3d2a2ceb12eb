"""The words that editors offer are those of the language: the parser agrees with every one of them."""

from __future__ import annotations

import itertools

import pytest

from app.base.pml_keywords import ATTRIBUTES, ELEMENTS, EMPTY, HOLDS, REQUIRED
from engine.pml import ROLES, parse_schema
from engine.pml.xml import names as language

FILLED = {"name": "x", "len": "5", "modules": "first", "src": "x.pml"}


def written(tag: str, inside: str = "") -> str:
    attributes = "".join(f' {name}="{FILLED[name]}"' for name in REQUIRED.get(tag, ()))
    return f"<{tag}{attributes}/>" if tag in EMPTY else f"<{tag}{attributes}>{inside}</{tag}>"


def codes(source: str) -> set[str]:
    return {found.code for found in parse_schema(source).diagnostics if found.severity == "error"}


def in_schema(tag: str, inside: str) -> str:
    """A schema with an element that holds something."""
    if tag == "schema":
        return f'<schema name="s"><module name="first">a</module>{inside}</schema>'
    return f'<schema name="s"><module name="first">a</module>{written(tag, inside)}</schema>'


def test_every_element_and_attribute_of_the_language_is_described() -> None:
    assert set(ELEMENTS) == set(language.ATTRIBUTES)
    for element, named in language.ATTRIBUTES.items():
        assert set(ATTRIBUTES.get(element, {})) == set(named) - {"length"}


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(HOLDS, ELEMENTS)))
def test_what_may_stand_where_is_what_the_parser_takes(outer: str, inner: str) -> None:
    inside = written(inner).replace('name="x"', 'name="y"') if inner != "schema" else "<schema/>"
    refused = bool({"E206", "E207"} & codes(in_schema(outer, inside)))
    turn = outer == "module" and inner in ROLES  # this one is at the top level, where turns may be optional
    assert refused == (inner not in HOLDS[outer] and not turn)


@pytest.mark.parametrize("tag", REQUIRED)
def test_what_is_required_is_missed_by_the_parser(tag: str) -> None:
    for name in REQUIRED[tag]:
        bare = written(tag, "a").replace(f' {name}="{FILLED[name]}"', "")
        source = (
            bare if tag == "schema" else f'<schema name="s"><module name="first">a{bare}</module></schema>'
        )
        if tag == "scaffold":
            source = in_schema("schema", bare)
        assert "E202" in codes(source), source
