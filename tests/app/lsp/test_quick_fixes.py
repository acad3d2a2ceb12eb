"""Quick fixes as an editor gets them: what they are called, and that they mend."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.base.document_index import Document, Library
from app.lsp.quick_fixes import MOST_SECONDS, MOST_TRIED, QuickFix, quick_fixes
from engine.pml import Diagnostic, Span, apply_edits
from tests.drawing import EVERY
from tests.pml.mistake_table import MISTAKES, TRAVEL, Mistake

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


@pytest.mark.parametrize(
    "mistake", [one for one in MISTAKES if one.says and one.reader != "trip"][:: 1 if EVERY else 5]
)
def test_a_fix_that_is_offered_mends(mistake: Mistake) -> None:
    text = mistake.source
    path = Path("/nowhere/schema.pml") if mistake.reader == "schema" else PROMPT
    library, fixes = offered(path, text)
    before = errors(library, path, text)
    for fix in fixes:
        assert fix.title
        assert errors(library, path, apply_edits(text, fix.edits)) <= before


def made(text: str, fixes: list[QuickFix]) -> list[str]:
    return [apply_edits(text, fix.edits) for fix in fixes]


def test_of_several_repairs_each_says_what_the_prompt_is_then_and_none_is_sure() -> None:
    text = '<prompt schema="travel"><budget>Where?</prompt>'
    fixes = offered(PROMPT, text)[1]
    assert made(text, fixes) == [text.replace("<budget>", "<budget/>"), text.replace("?", "?</budget>")]
    assert [fix.title.partition(": ")[2] for fix in fixes] == [
        "“Where?” then follows budget",
        "it is then inside budget",
    ]
    assert not any(fix.sure for fix in fixes)


def test_a_module_that_was_renamed_is_known_by_its_text() -> None:
    text = '<prompt schema="travel"><budget/></prompt>'
    library = Library()
    for schema in (TRAVEL, TRAVEL.replace('"budget"', '"a-purse"')):
        library.hold(HOME, schema)
    (fix,) = quick_fixes(library, library.hold(PROMPT, text), Span(0, len(text)))
    assert made(text, [fix]) == [text.replace("budget", "a-purse")]
    assert fix.sure


@pytest.mark.parametrize(("name", "offered"), [("purs", True), ("budget", False)])
def test_a_module_is_offered_for_an_import_with_a_name_like_its_own(name: str, offered: bool) -> None:
    schema = '<schema name="s"><user><module name="purse">Cheap.</module></user></schema>'
    text = f'<prompt schema="s"><{name}/><user>Where?</user></prompt>'
    library = Library()
    library.hold(HOME, schema)
    fixes = quick_fixes(library, library.hold(PROMPT, text), Span(0, len(text)))
    assert made(text, fixes) == [text.replace(name, "purse")] * offered


def test_the_one_new_module_is_offered_for_a_name_that_the_schema_had() -> None:
    text = '<prompt schema="travel"><budget/></prompt>'
    library = Library()
    for schema in (TRAVEL, TRAVEL.replace('"budget">', '"purse">New text. ')):
        library.hold(HOME, schema)
    (fix,) = quick_fixes(library, library.hold(PROMPT, text), Span(0, len(text)))
    assert made(text, [fix]) == [text.replace("budget", "purse")]
    assert "“New text.” is read" in fix.title
    assert not fix.sure


def test_two_modules_that_a_typo_may_mean_are_both_offered() -> None:
    schema = (
        '<schema name="s"><module name="slow">Calm.</module> <module name="solo">Alone.</module></schema>'
    )
    text = '<prompt schema="s"><slo/> Where?</prompt>'
    library = Library()
    library.hold(HOME, schema)
    fixes = quick_fixes(library, library.hold(PROMPT, text), Span(0, len(text)))
    assert made(text, fixes) == [text.replace("slo/", one) for one in ("slow/", "solo/")]


def test_the_only_parameter_is_offered_for_an_unknown_argument() -> None:
    text = '<prompt schema="travel"><domestic town="Nice"/> Where?</prompt>'
    (fix,) = offered(PROMPT, text)[1]
    assert made(text, [fix]) == [text.replace("town", "city")]
    assert (fix.title, fix.sure) == ("Write city: its value is then “Nice”", False)


def test_nothing_is_offered_for_an_import_that_may_mean_any_of_several_modules() -> None:
    text = '<prompt schema="travel"><something/></prompt>'
    assert offered(PROMPT, text)[1] == []


def test_a_fix_elsewhere_is_not_offered() -> None:
    text = '<prompt schema="travel"><budge/> and <foo/></prompt>'
    library = Library()
    library.hold(HOME, TRAVEL)
    document = library.hold(PROMPT, text)
    assert quick_fixes(library, document, Span(0, 3)) == []
    (fix,) = quick_fixes(library, document, Span(26, 26))
    assert fix.title == "Write budget"


@dataclass
class Checks:
    """A diagnose that is counted: how often a document, or what it would be, is checked."""

    library: Library
    number: int = 0

    def diagnostics(self, document: Document) -> tuple[Diagnostic, ...]:
        self.number += 1
        return Library.diagnostics(self.library, document)


def counted(library: Library, monkeypatch: pytest.MonkeyPatch) -> Checks:
    checks = Checks(library)
    monkeypatch.setattr(library, "diagnostics", checks.diagnostics)
    return checks


MANY_FAULTS = ("<" * 400, "\n".join(["<p>List<String> & x</p>"] * 100))


@pytest.mark.parametrize("text", MANY_FAULTS)
def test_a_document_of_faults_is_checked_a_few_times(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    document = library.hold(HOME, text)
    checks = counted(library, monkeypatch)
    fixes = quick_fixes(library, document, Span(0, len(text)), clock=lambda: 0.0)
    assert 1 < len(fixes) <= MOST_TRIED
    assert checks.number <= 1 + MOST_TRIED


@pytest.mark.parametrize("text", MANY_FAULTS)
def test_the_fix_at_the_cursor_is_offered_in_a_document_of_faults(text: str) -> None:
    library = Library()
    document = library.hold(HOME, text)
    cursor = text.rindex("<", 0, len(text) - len("</p>"))
    for end in (cursor, len(text)):
        first = quick_fixes(library, document, Span(cursor, end))[0]
        assert cursor in {edit.span.start for edit in first.edits}


def test_fixes_are_tried_while_there_is_time_and_one_always(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    document = library.hold(HOME, MANY_FAULTS[0])
    checks = counted(library, monkeypatch)
    ticks = itertools.count(0.0, 2 * MOST_SECONDS)
    (fix,) = quick_fixes(library, document, Span(7, 300), clock=lambda: next(ticks))
    assert fix.edits[0].span.start == 7
    assert checks.number == 2


def test_one_edit_that_mends_two_faults_is_offered_once() -> None:
    text = '<schema name="s"><module name="m">A List<String> of it.</module></schema>'
    library = Library()
    document = library.hold(HOME, text)
    (fix,) = quick_fixes(library, document, Span(0, len(text)))
    assert [fault.code for fault in fix.faults] == ["E105", "E205"]
    assert fix.sure
    assert apply_edits(text, fix.edits) == text.replace("<String", "&lt;String")
