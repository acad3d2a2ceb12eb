"""Whether a schema reads otherwise than under the white-space rules of version 0.1.

Those made one space of white space at either end of a text run, or nothing at the ends of a schema or turn,
and dropped white space alone but between two parameters. What stood inside a run was as it is now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from engine.pml.tree.tree import Module, Param, Role, Schema, Text, Union
from engine.pml.whitespace.rules import INLINE, SPACE, Run, contents, preserves
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.names import ROLES
from engine.pml.xml.reader import read

_START: Final = "\x01"  # marks of what is not text: no document can hold these characters
_END: Final = "\x02"
_PARAM: Final = "\x03"


def is_new(schema: Schema, source: str) -> bool:
    """Whether any text of a schema, its seams included, is another than version 0.1 read there.

    Args:
        schema: a schema without errors. One that includes others is not new: version 0.1 could not read it.
        source: the document that it was parsed from.
    """
    root = None if schema.included else read(source).root
    return root is not None and "".join(_now(schema)) != "".join(_formerly(root, source))


def _now(schema: Schema) -> Iterator[str]:
    """The texts of a schema and their seams in document order; a file's own text is left out."""
    pending: list[Any] = [*reversed(schema.children)]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, Text):
            yield node.text
        elif isinstance(node, Param):
            yield _PARAM
        elif isinstance(node, Union):
            pending.extend(reversed(node.members))
        elif isinstance(node, Role):
            pending.extend(reversed(node.children))
        else:
            assert isinstance(node, Module)
            yield _START
            kept = [child for child in node.children if node.src is None or getattr(child, "seam", False)]
            pending += [_END, *reversed(kept)]


def _formerly(root: Element, source: str) -> Iterator[str]:
    """The texts of a schema in the same order, as version 0.1 read them."""
    pending: list[tuple[Element | str, bool]] = [(root, False)]
    while pending:
        item, preserve = pending.pop()
        if isinstance(item, str):
            yield item
        elif item.tag in INLINE:
            yield _PARAM
        elif item.tag == "union":
            inner = preserves(item, preserve)
            pending.extend((child, inner) for child in reversed(item.children) if isinstance(child, Element))
        else:
            inner = preserves(item, preserve)
            if item.tag == "module":
                yield _START
                pending.append((_END, False))
            pending.extend((child, inner) for child in reversed(_former_contents(item, source, inner)))


def _former_contents(element: Element, source: str, preserve: bool) -> list[Element | str]:
    """The elements of a container, and its texts with the white space that they had at their ends."""
    found = contents(element, source, preserve)
    if preserve:
        return [item.text if isinstance(item, Run) else item for item in found if not _silent(item)]
    bodies = (item.text.strip(SPACE) for item in found if isinstance(item, Run) and item.text.strip(SPACE))
    trims = element.tag in ("schema", *ROLES)
    items = _raw(element)
    result: list[Element | str] = []
    for place, item in enumerate(items):
        left = items[place - 1] if place else None
        right = items[place + 1] if place + 1 < len(items) else None
        if isinstance(item, Element):
            result.append(item)
        elif item.strip(SPACE):
            before = " " if item[0] in SPACE and not (trims and left is None) else ""
            after = " " if item[-1] in SPACE and not (trims and right is None) else ""
            result.append(before + next(bodies) + after)
        elif _is_param(left) and _is_param(right):
            result.append(" ")
    return result


def _raw(element: Element) -> list[Element | str]:
    """The elements of a container, and the characters between them as they stand; no empty ones."""
    items: list[Element | str] = [""]
    for child in element.children:
        if isinstance(child, Chars):
            text = "" if child.kind == "comment" else child.text
            items[-1:] = [items[-1] + text] if isinstance(items[-1], str) else [items[-1], text]
        elif not _silent(child):
            items.append(child)
    return [item for item in items if item]


def _silent(item: Run | Element) -> bool:
    return isinstance(item, Element) and item.tag == "scaffold"


def _is_param(item: Element | str | None) -> bool:
    return isinstance(item, Element) and item.tag in INLINE
