"""A mistake that people make by hand, and whether what its remedy says removes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.pml import Diagnostic, mended


@dataclass(frozen=True)
class Mistake:
    """A document with one mistake.

    Attributes:
        name: what somebody did.
        code: what it is reported as, among other things.
        source: the document.
        after: the document after all quick fixes; "" where only soundness is asked for.
        says: what message or hint say, where a person has to write something.
        writes: what that person writes: pairs of old and new text. Empty where quick fixes do it.
    """

    name: str
    code: str
    source: str
    after: str = ""
    says: str = ""
    writes: tuple[tuple[str, str], ...] = ()


def schema(name: str, code: str, source: str, after: str = "") -> Mistake:
    return Mistake(
        name, code, f'<schema name="s">{source}</schema>', after and f'<schema name="s">{after}</schema>'
    )


def text(name: str, code: str, source: str, after: str = "") -> Mistake:
    """A mistake in the text of a module."""
    module = '<module name="m">{}</module>'.format
    return schema(name, code, module(source), after and module(after))


def param(name: str, code: str, attributes: str, after: str = "") -> Mistake:
    """A mistake in the attributes of a parameter."""
    return text(name, code, f"a <param {attributes}/> b", after and f"a <param {after}/> b")


def prompt(name: str, code: str, source: str, after: str = "") -> Mistake:
    opening = '<prompt schema="travel">'
    return Mistake(name, code, f"{opening}{source}</prompt>", after and f"{opening}{after}</prompt>")


def by_hand(mistake: Mistake, says: str, *writes: tuple[str, str]) -> Mistake:
    return Mistake(mistake.name, mistake.code, mistake.source, says=says, writes=writes)


def errors(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    return [diagnostic for diagnostic in found if diagnostic.severity == "error"]


def require_remedy(mistake: Mistake, diagnose: Callable[[str], Sequence[Diagnostic]]) -> None:
    """Does what the remedies of a mistake say, of several the first, until nothing is wrong."""
    found = errors(diagnose(mistake.source))
    assert mistake.code in {fault.code for fault in found}
    result = mistake.source
    if mistake.writes:
        fault = next(fault for fault in found if fault.code == mistake.code)
        assert mistake.says in fault.message + fault.hint
        for old, new in mistake.writes:
            assert old in result
            result = result.replace(old, new)
    while not mistake.writes and (left := errors(diagnose(result))):
        fault = next((fault for fault in left if fault.fixes), None)
        assert fault is not None, (result, left)
        assert fault.hint or fault.choices
        changed = mended(result, fault, diagnose, fault.fixes[0])
        assert changed is not None, (result, fault)
        assert len(errors(diagnose(changed))) <= len(left)
        assert changed != result
        result = changed
    assert errors(diagnose(result)) == []
    if mistake.after:
        assert result == mistake.after
