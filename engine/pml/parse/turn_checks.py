"""What the rules of a schema say about whole turns in modules, which a prompt may import or leave out."""

from __future__ import annotations

from typing import Any, Final

from engine.pml.diagnostics.diagnostic import Reporter, Span, quote
from engine.pml.tree.tree import Role
from engine.pml.xml.suggestions import wrapped

TURNS_RULE: Final = (
    "a role stands directly in the schema or in a module at its top level, and in no other role"
)


def check_turns(path: str, children: tuple[Any, ...], report: Reporter) -> tuple[Any, ...]:
    """Reports what stands beside the turns of a module, each stretch of it once.

    White space beside them is nothing, wherever white space is kept.

    Args:
        path: the path of the module.
        children: what it holds.
        report: takes the faults.

    Returns:
        What the module holds.
    """
    if not any(isinstance(child, Role) for child in children):
        return children
    held = tuple(child for child in children if not _is_space(child))
    stretch: list[Span] = []
    for child in (*held, None):
        if child is not None and not isinstance(child, Role):
            stretch.append(child.span)
        elif stretch:
            span = Span(stretch[0].start, stretch[-1].end)
            message = (
                f"module {quote(path)} holds whole turns, and this stands beside them; put it into a turn of "
                "its own, or into a module of its own"
            )
            report.add("E212", message, span, "<user>…</user>", wrapped(span, "<user>", "</user>"))
            stretch = []
    return held


def _is_space(child: Any) -> bool:
    return not getattr(child, "text", "x").strip()
