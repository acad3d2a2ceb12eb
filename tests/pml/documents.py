"""Trees of documents that tests write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.pml import Diagnostic, Prompt, Schema, bind, parse_prompt, parse_schema
from engine.pml.tree.conversation import conversation


def schema_tree(source: str, base: Path | None = None) -> Schema:
    """The tree of a schema, which may have errors."""
    tree = parse_schema(source, base=base).tree
    assert tree is not None
    return tree


def prompt_tree(source: str) -> Prompt:
    """The tree of a prompt, which may have errors."""
    tree = parse_prompt(source).tree
    assert tree is not None
    return tree


def clean_schema(source: str) -> Schema:
    """The tree of a schema without errors and warnings."""
    parsed = parse_schema(source)
    assert parsed.diagnostics == ()
    assert parsed.tree is not None
    return parsed.tree


def valid_schema(source: str) -> Schema:
    """The tree of a schema without errors."""
    parsed = parse_schema(source)
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree is not None
    return parsed.tree


def spelled(schema: Schema, prompt: str) -> str:
    """The text of a prompt without errors, in one piece."""
    bound = bind(schema, prompt_tree(prompt))
    assert bound.ok, bound.diagnostics
    return "".join(turn.text for turn in conversation(bound.parts))


def schema_diagnostics(source: str) -> Sequence[Diagnostic]:
    """All diagnostics of a schema."""
    return parse_schema(source).diagnostics


def errors(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The errors among diagnostics."""
    return [diagnostic for diagnostic in found if diagnostic.severity == "error"]
