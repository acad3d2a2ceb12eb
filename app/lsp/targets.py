"""Finds the target at a place: a module, parameter, schema name, file or PML word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from app.base.pml_keywords import IN_PROMPTS
from app.lsp.view import View, defined_path
from engine.pml import Span
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.names import PATH

Kind = Literal["module", "param", "schema", "file", "element", "attribute"]


@dataclass(frozen=True)
class Target:
    """The target at a place."""

    kind: Kind
    span: Span  # span of the word
    path: str = ""  # path of the module; the module of a parameter; the element of an attribute
    name: str = ""  # name of a parameter, schema, file, element or attribute


def target_at(view: View, offset: int) -> Target | None:
    """Returns the target at an offset; None without one."""
    element = element_at(view.root, offset)
    if element is None:
        return None
    for span in tag_spans(element):
        if _holds(span, offset):
            return _of_tag(view, element, span)
    for attribute in element.attributes.values():
        if _holds(attribute.value_span, offset):
            target = _of_value(view, element, attribute, offset)
            return target or _of_attribute(view, element, attribute)
        if _holds(attribute.name_span, offset):
            return _of_attribute(view, element, attribute)
    return None


def element_at(root: Element | None, offset: int) -> Element | None:
    """Returns the innermost element at an offset; the second of two adjacent ones."""
    if root is None or not _holds(root.span, offset):
        return None
    while True:
        inner = [
            child for child in root.children if isinstance(child, Element) and _holds(child.span, offset)
        ]
        if not inner:
            return root
        root = inner[-1]


def tag_spans(element: Element) -> list[Span]:
    """Returns the spans of an element's name in its start tag and in a matching end tag."""
    spans = [element.tag_span]
    if element.close_span is not None and element.end_name == element.tag:
        start = element.close_span.start + len("</")
        spans.append(Span(start, start + len(element.tag)))
    return spans


def _of_tag(view: View, element: Element, span: Span) -> Target:
    if view.document.kind == "prompt" and element.tag not in IN_PROMPTS:
        path = view.path_of(element)
        if path:
            return Target("module", span, path)
    return Target("element", span, name=element.tag)


def _of_attribute(view: View, element: Element, attribute: Attribute) -> Target:
    if view.document.kind == "prompt" and element.tag not in IN_PROMPTS:
        path = view.path_of(element)
        if path:
            return Target("param", attribute.name_span, path, attribute.name)
    return Target("attribute", attribute.name_span, element.tag, attribute.name)


def _of_value(view: View, element: Element, attribute: Attribute, offset: int) -> Target | None:
    key, value, span = (element.tag, attribute.name), attribute.value, attribute.value_span
    if view.document.kind == "prompt":
        if key == ("prompt", "schema"):
            return Target("schema", span, name=value)
        host = view.path_of(element.parent) if key == ("arg", "name") and element.parent else None
        return Target("param", span, host, value) if host else None
    match key:
        case ("schema", "name"):
            return Target("schema", span, name=value)
        case ("module", "name"):
            return Target("module", span, defined_path(element))
        case ("module" | "include", "src"):
            return Target("file", span, name=value)
        case ("param" | "parameter", "name"):
            return Target("param", span, defined_path(element), value)
        case ("union", "scaffold"):
            above = defined_path(element)
            return Target("module", span, f"{above}/{value}" if above else value)
        case ("scaffold", "modules"):
            return _of_path(view, attribute, offset)
    return None


def _of_path(view: View, attribute: Attribute, offset: int) -> Target | None:
    """The module up to a segment of a path."""
    for segment, path in path_segments(view.document.text, attribute):
        if _holds(segment, offset):
            return Target("module", segment, path)
    return None


def path_segments(text: str, attribute: Attribute) -> list[tuple[Span, str]]:
    """Returns the segments of the paths in an attribute, each with the path up to its end."""
    start = attribute.value_span.start
    segments: list[tuple[Span, str]] = []
    for word in PATH.finditer(text, start, attribute.value_span.end):
        for part in re.finditer(r"[^/]+", word[0]):
            place = word.start() + part.start()
            segments.append((Span(place, place + len(part[0])), word[0][: part.end()]))
    return segments


def _holds(span: Span, offset: int) -> bool:
    return span.start <= offset <= span.end
