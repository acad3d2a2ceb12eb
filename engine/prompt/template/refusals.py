"""Finds the first turn of a prompt that a chat template refuses."""

from __future__ import annotations

from collections.abc import Sequence

from engine.pml import Bound, Diagnostic, Import, Prompt, RoleOpen, Schema, Span, make
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prompt.conversation.tools import NO_TOOLS, Header, Tools, ToolsError
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.trimming import headers_of, turn_texts
from engine.prompt.template.turns import ChatError


def refusal(
    error: ChatError, chat: ChatFormat, bound: Bound, prompt: Prompt, tools: Tools = NO_TOOLS
) -> Diagnostic:
    """Returns the diagnostic for a refused conversation: E508 if two turns can be named, else E505."""
    turns = [part for part in bound.parts if isinstance(part, RoleOpen)]
    place = _first_refused(headers_of(bound.parts), turn_texts(bound.parts), chat, tools)
    if place is None:
        return make("E505", str(error), prompt.span, prompt.lines)
    before, behind = turns[place - 1], turns[place]
    message = (
        f"the model's chat template refuses the {_named(behind, bound.schema, prompt)} after the "
        f"{_named(before, bound.schema, prompt)}: {error}"
    )
    hint = "remove one of the two, or put a turn of another role between them"
    span = _span(behind, prompt) or _span(before, prompt) or prompt.span
    return make("E508", message, span, prompt.lines, hint)


def _first_refused(
    headers: Sequence[Header], contents: Sequence[str], chat: ChatFormat, tools: Tools
) -> int | None:
    """The index of the first turn that makes the template refuse the conversation; None for the first turn.

    Uses bisection, because a refused beginning is mostly refused with any later turns.
    """

    def takes(count: int) -> bool:
        try:
            chat.opening(headers[:count], contents[:count], None, tools)
        except (ChatError, ToolsError):
            return False
        return True

    taken, refused = 0, len(headers)
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if takes(middle):
            taken = middle
        else:
            refused = middle
    return refused - 1 if taken and not takes(refused) else None


def _named(part: RoleOpen, schema: Schema, prompt: Prompt) -> str:
    """A turn in words, with its line if it has one."""
    of = "" if part.new else f" of module {part.module!r}" if part.module else " of the schema"
    span = part.node.span
    if span == NOWHERE:
        return f"{part.role} turn{of}"
    line = (prompt if part.new else schema).lines.line(span.start)
    return f"{part.role} turn{of} (line {line} of the {'prompt' if part.new else 'schema'})"


def _span(part: RoleOpen, prompt: Prompt) -> Span | None:
    """The span in the prompt of a turn, or of the import that adds it."""
    if part.new:
        return part.node.span
    waiting = [child for child in prompt.children if isinstance(child, Import)]
    spans = [node.name_span for node in waiting if part.module and node.name == part.module]
    return spans[0] if spans else None
