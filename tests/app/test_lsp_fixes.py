"""Quick fixes as an editor gets them: what they are called, and that they mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.library import Library
from app.lsp.quick_fixes import QuickFix, quick_fixes
from engine.pml import Span, apply_edits
from tests.pml.test_diagnostics import EXAMPLES, TRAVEL

HOME, PROMPT = Path("/nowhere/travel.pml"), Path("/nowhere/prompt.pml")


def offered(path: Path, text: str) -> tuple[Library, list[QuickFix]]:
    library = Library()
    library.hold(HOME, TRAVEL)
    document = library.hold(path, text)
    return library, quick_fixes(library, document, Span(0, len(text)))


def errors(library: Library, path: Path, text: str) -> int:
    found = library.diagnostics(library.imagined(path, text))
    return sum(one.severity == "error" for one in found)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('<prompt schema="travel"><budge/></prompt>', "Write budget"),
        ('<prompt schema="travel"><scaffold modules="budget"/>Where?</prompt>', "Remove it"),
    ],
)
def test_a_fix_is_called_by_what_it_does(text: str, title: str) -> None:
    assert [fix.title for fix in offered(PROMPT, text)[1]] == [title]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_a_fix_that_is_offered_mends(number: int) -> None:
    example = EXAMPLES[number]
    text = example.text.replace("«", "").replace("»", "")
    path = Path("/nowhere/schema.pml") if example.kind == "schema" else PROMPT
    library, fixes = offered(path, text)
    before = errors(library, path, text)
    for fix in fixes:
        assert fix.title
        assert errors(library, path, apply_edits(text, fix.edits)) <= before


def test_a_fix_elsewhere_is_not_offered() -> None:
    text = '<prompt schema="travel"><budge/> and <foo/></prompt>'
    library = Library()
    library.hold(HOME, TRAVEL)
    document = library.hold(PROMPT, text)
    assert quick_fixes(library, document, Span(0, 3)) == []
    (fix,) = quick_fixes(library, document, Span(26, 26))
    assert fix.title == "Write budget"
