"""Finds all names of a module, parameter or schema, in its schema and in the schema's prompts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from app.base.document_index import Document, folder_of
from app.lsp.targets import Target, path_segments, tag_spans
from app.lsp.view import View, defined_path
from engine.files.text_files import TextFileError
from engine.pml import Span
from engine.pml.xml.elements import Element

Spans = dict[Path, list[Span]]


def definition(view: View, target: Target) -> tuple[Document, Span] | None:
    """Returns the definition of a target; None without one."""
    home = view.home
    if home is None:
        return None
    for file_view, above in _files(View(view.library, home)):
        meant = _inside(target, above)
        for element in file_view.elements() if meant else ():
            span = _defined(element, meant) if meant else None
            if span is not None:
                return file_view.document, span
    return None


def occurrences(view: View, target: Target) -> Spans:
    """Returns the spans of all names of a target, by document. Programs are not searched."""
    home = view.home
    if home is None:
        return {}
    spans_by_path: Spans = {home.path: _at_home(View(view.library, home), target)}
    for prompt in view.library.prompts(home.path):
        spans_by_path[prompt.path] = _in_prompt(View(view.library, prompt), target)
    return {path: spans for path, spans in spans_by_path.items() if spans}


def _files(home: View) -> Iterator[tuple[View, str]]:
    """A schema and its includes, each file once, with the path of the including module."""
    pending, seen = [(home, "")], {home.document.path}
    while pending:
        view, above = pending.pop(0)
        yield view, above
        folder = folder_of(view.document.path)
        for element in view.elements():
            src = element.get("src")
            if element.tag != "include" or src is None or folder is None or folder / src.value in seen:
                continue
            seen.add(folder / src.value)
            with contextlib.suppress(TextFileError):
                document = view.library.document(folder / src.value)
                path = "/".join(filter(None, (above, defined_path(element))))
                pending.append((View(view.library, document), path))


def _inside(target: Target, above: str) -> Target | None:
    """A target as an included file names it; None if it lies elsewhere."""
    if not above or target.kind == "schema":
        return target if not above else None
    below = target.path.removeprefix(f"{above}/")
    return None if below == target.path else replace(target, path=below)


def _defined(element: Element, target: Target) -> Span | None:
    """The span of the name if an element defines the target."""
    name = element.get("name")
    if name is None:
        return None
    match target.kind:
        case "schema":
            defined = element.tag == "schema"
        case "module":
            defined = element.tag == "module" and defined_path(element) == target.path
        case "param":
            defined = (
                element.tag in ("param", "parameter")
                and name.value == target.name
                and defined_path(element) == target.path
            )
        case _:
            defined = False
    return name.value_span if defined else None


def _at_home(view: View, target: Target) -> list[Span]:
    spans: list[Span] = []
    for element in view.elements():
        span = _defined(element, target)
        if span is not None:
            spans.append(span)
        if target.kind == "module":
            spans += _named_beside(view, element, target.path)
    return spans


def _named_beside(view: View, element: Element, path: str) -> list[Span]:
    """Where the scaffold of a union or schema names a module."""
    if element.tag == "union" and (member := element.get("scaffold")) is not None:
        above = defined_path(element)
        return [member.value_span] if path == (f"{above}/{member.value}" if above else member.value) else []
    if element.tag == "scaffold" and (modules := element.get("modules")) is not None:
        return [span for span, named in path_segments(view.document.text, modules) if named == path]
    return []


def _in_prompt(view: View, target: Target) -> list[Span]:
    if target.kind == "schema":
        attribute = view.root.get("schema") if view.root is not None else None
        return [attribute.value_span] if attribute is not None else []
    spans: list[Span] = []
    for place in view.page.places if view.page else ():
        if place.path != target.path:
            continue
        if target.kind == "module":
            spans += tag_spans(place.element)
        elif target.kind == "param":
            spans += _arguments(place.element, target.name)
    return spans


def _arguments(element: Element, name: str) -> list[Span]:
    """Where an import sets a parameter."""
    attribute = element.get(name)
    spans = [attribute.name_span] if attribute is not None else []
    for child in element.children:
        if isinstance(child, Element) and child.tag == "arg":
            key = child.get("name")
            if key is not None and key.value == name:
                spans.append(key.value_span)
    return spans
