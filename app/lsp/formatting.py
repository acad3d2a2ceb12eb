"""A document in its canonical form, as one small edit."""

from __future__ import annotations

from engine.pml import Edit, Span
from engine.pml.edit.formatter import format_source


def formatting(text: str) -> tuple[Edit, ...]:
    """The edit that formats a document; none where it is in its canonical form.

    Raises:
        PromptCacheError: it is not well-formed, or is neither a schema nor a prompt.
    """
    formatted = format_source(text)
    if formatted == text:
        return ()
    shorter = min(len(text), len(formatted))
    head = 0
    while head < shorter and text[head] == formatted[head]:
        head += 1
    tail = 0
    while tail < shorter - head and text[-1 - tail] == formatted[-1 - tail]:
        tail += 1
    if text[head - 1 : head + 1] == "\r\n":  # no position of the protocol lies inside a line end
        head -= 1
    if tail and text[len(text) - tail - 1 : len(text) - tail + 1] == "\r\n":
        tail -= 1
    span = Span(head, len(text) - tail)
    return (Edit(span, formatted[head : len(formatted) - tail]),)
