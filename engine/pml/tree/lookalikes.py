"""Finds names that look alike but use different characters."""

from __future__ import annotations

from unicodedata import normalize

from engine.pml.diagnostics.diagnostic import Reporter, Span, quote
from engine.pml.tree.tree import Schema


def advise_on_lookalikes(schema: Schema, report: Reporter) -> None:
    """Reports siblings whose names look the same.

    Names are compared as written, so they differ for the parser. A prompt must use the exact characters.
    """
    for siblings in schema.index.members.values():
        _compare({name: module.name_span for name, module in siblings.items()}, "modules", report)
    for module in schema.modules():
        params = {param.name: param.name_span or param.span for param in module.params()}
        _compare(params, "parameters", report)


def _compare(names: dict[str, Span], what: str, report: Reporter) -> None:
    if all(map(str.isascii, names)):
        return
    seen: dict[str, str] = {}
    for name, span in names.items():
        other = seen.setdefault(normalize("NFKC", name), name)
        if other != name:
            message = (
                f"two sibling {what} look like {quote(other)} but use different characters, "
                f"{_characters(other, name)}; rename one"
            )
            report.add("W615", message, span)


def _characters(left: str, right: str) -> str:
    """Returns the code points of the first characters that differ."""
    same = next((at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
    start = min(len(left), len(right)) if same is None else same
    pieces = (name[start : start + 2] for name in (left, right))
    return " against ".join(" ".join(f"U+{ord(char):04X}" for char in piece) or "nothing" for piece in pieces)
