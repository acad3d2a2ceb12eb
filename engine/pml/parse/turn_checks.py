"""Checks whole turns in modules of a schema, and text next to the turns of a schema."""

from __future__ import annotations

from typing import Any, Final

from engine.pml.diagnostics.diagnostic import Edit, Fix, Reporter, Span, quote
from engine.pml.tree.tree import Role
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.names import ROLES
from engine.pml.xml.suggestions import wrapped

TURNS_RULE: Final = "a role must be directly in the schema or in a top-level module, and not in another role"


def check_turns(path: str, children: tuple[Any, ...], report: Reporter) -> tuple[Any, ...]:
    """Reports content next to the turns of a module, each contiguous range once; returns the content.

    White space next to turns is removed, even preserved white space.
    """
    if not any(isinstance(child, Role) for child in children):
        return children
    content = tuple(child for child in children if not _is_space(child))
    stretch: list[Span] = []
    for child in (*content, None):
        if child is not None and not isinstance(child, Role):
            stretch.append(child.span)
        elif stretch:
            span = Span(stretch[0].start, stretch[-1].end)
            message = (
                f"module {quote(path)} contains whole turns and this content; put it into a turn of "
                "its own, or into a module of its own"
            )
            report.add("E212", message, span, "<user>…</user>", wrapped(span, "<user>", "</user>"))
            stretch = []
    return content


def check_text_beside(root: Element, text: str, report: Reporter) -> None:
    """Reports text next to the turns of a schema; a fix moves it into the turn before or after it."""
    roles = [child for child in root.children if isinstance(child, Element) and child.tag in ROLES]
    if not roles:
        return
    before = -1  # index of the last turn so far
    for child in root.children:
        if child in roles[before + 1 : before + 2]:
            before += 1
        elif isinstance(child, Chars) and child.kind != "comment" and child.text.strip():
            nearest = roles[max(before, 0) : before + 2]
            piece = text[child.span.start : child.span.end]
            start = child.span.start + len(piece) - len(piece.lstrip())
            span = Span(start, start + len(piece.strip()))
            where = " or ".join(dict.fromkeys(f"<{role.tag}>" for role in nearest))
            message = f"{quote(child.text.strip(), 30)} belongs to no turn; move it into {where}"
            fixes = (_moved_into(role, span, piece.strip()) for role in nearest)
            report.add("W619", message, span, choices=tuple(fix for fix in fixes if fix))


def _moved_into(role: Element, span: Span, piece: str) -> Fix | None:
    if role.close_span is None:
        return None
    behind = role.span.end <= span.start
    place = role.close_span.start if behind else role.open_span.end
    into = Edit(Span(place, place), f" {piece}" if behind else f"{piece} ")
    where = "the end" if behind else "the beginning"
    return Fix(f"Move it to {where} of <{role.tag}>", (Edit(span, ""), into))


def _is_space(child: Any) -> bool:
    return not getattr(child, "text", "x").strip()
