"""Adds a scaffold at the end of a schema's source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.base.errors import PromptCacheError
from engine.pml.diagnostics.diagnostic import quote
from engine.pml.edit.prompt_source import walk
from engine.pml.parse.documents import parse_schema
from engine.pml.xml.elements import Element
from engine.pml.xml.reader import read


def add_scaffold(source: str, modules: Sequence[str], base: Path | None = None) -> str:
    """Returns the source of a schema with a new scaffold before its end tag; the rest is unchanged.

    Raises:
        PromptCacheError: the schema is invalid, lacks a module, or already has this scaffold.
    """
    parsed = parse_schema(source, base=base)
    schema, root = parsed.tree, read(source).root
    unreadable = any(d.severity == "error" and d.code[:2] in ("E1", "E2") for d in parsed.diagnostics)
    if schema is None or root is None or root.close_span is None or unreadable:
        raise PromptCacheError("The schema has errors. Fix them first, then add the scaffold.")
    missing = [path for path in modules if schema.module(path) is None]
    if missing:
        raise PromptCacheError(f"The schema has no module {quote(missing[0])}. Measure again.")
    if any(set(scaffold.modules) == set(modules) for scaffold in schema.scaffolds):
        raise PromptCacheError("The schema has this scaffold already.")
    for result in _written(source, root, f'<scaffold modules="{" ".join(modules)}"/>'):
        tree = parse_schema(result, base=base).tree
        if tree is not None and tree.children == schema.children:
            return result
    raise PromptCacheError(
        "The schema has no place for a scaffold without changing its text. Write it by hand."
    )


def _written(source: str, root: Element, scaffold: str) -> Iterator[str]:
    """Yields the source with the scaffold on its own line, or at places without white space."""
    end = root.close_span.start if root.close_span else root.span.end
    yield _on_a_line(source, root, end, scaffold)
    inside = [child.span.end for child in root.children if isinstance(child, Element)]
    for place in (end, *reversed(inside)):
        yield source[:place] + scaffold + source[place:]


def _on_a_line(source: str, root: Element, end: int, scaffold: str) -> str:
    newline = "\r\n" if "\r\n" in source else "\n"
    before = source[:end].rstrip(" \t")
    own = source[len(before) : end]
    start = "" if before.endswith(("\n", "\r")) else newline
    return (
        f"{before}{start}{_indent(source, root)}{scaffold}{newline}{own if not start else ''}{source[end:]}"
    )


def _indent(source: str, root: Element) -> str:
    """Returns the indentation of the first child that begins a line, or two spaces."""
    for element in walk(root):
        if element.parent is not root:
            continue
        line = max(source.rfind("\n", 0, element.span.start), source.rfind("\r", 0, element.span.start)) + 1
        before = source[line : element.span.start]
        if line and not before.strip(" \t"):
            return before
    return "  "
