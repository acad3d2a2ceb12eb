"""Checks whole turns in modules of a schema."""

from __future__ import annotations

from typing import Any, Final

from engine.pml.diagnostics.diagnostic import Reporter, Span, quote
from engine.pml.tree.tree import Role
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


def _is_space(child: Any) -> bool:
    return not getattr(child, "text", "x").strip()
