"""Names that look alike and are two, such as those with an accent in one character or in a second one."""

from __future__ import annotations

from unicodedata import normalize

from engine.pml.diagnostics.diagnostic import Reporter, Span, quote
from engine.pml.tree.tree import Schema


def advise_on_lookalikes(schema: Schema, report: Reporter) -> None:
    """Tells of siblings whose names differ in nothing that a reader sees.

    Names are compared as they are written, so these are two; a prompt can only name the one whose characters
    it has.
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
                f"two {what} beside each other look like {quote(other)} and have other characters, "
                f"{_characters(other, name)}; rename one"
            )
            report.add("W615", message, span)


def _characters(left: str, right: str) -> str:
    """The first characters in which two names differ, by their numbers."""
    same = next((at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
    start = min(len(left), len(right)) if same is None else same
    pieces = (name[start : start + 2] for name in (left, right))
    return " against ".join(" ".join(f"U+{ord(char):04X}" for char in piece) or "nothing" for piece in pieces)
