"""Formats a document with one small edit."""

from __future__ import annotations

from engine.pml import Edit, Span
from engine.pml.edit.formatter import format_source


def formatting(text: str) -> tuple[Edit, ...]:
    """Returns the edit that formats a document, if any; raises PromptCacheError if it is malformed."""
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
    if text[head - 1 : head + 1] == "\r\n":  # protocol positions cannot split a line end
        head -= 1
    if tail and text[len(text) - tail - 1 : len(text) - tail + 1] == "\r\n":
        tail -= 1
    span = Span(head, len(text) - tail)
    return (Edit(span, formatted[head : len(formatted) - tail]),)
