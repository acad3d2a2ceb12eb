"""Mistakes of the table have their code, place, hint and fix; the table has every code."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import pml
from engine.pml import CATALOGUE, LineIndex, Span, folded, make, mended, parse_prompt, parse_schema
from engine.pml.diagnostics.diagnostic import MAX_DIAGNOSTICS
from tests.pml.documents import errors
from tests.pml.mistake_table import MISTAKES, SCHEMAS, Mistake

ELSEWHERE = {"E101", "E102", "E117", "E119", "E120", "E211", "W600"}
"""Codes with tests of their own, below, in test_reader and in test_including."""


def fixed(mistake: Mistake) -> str:
    """The document after the first quick fix of each error, one after another."""
    source = mistake.source
    while left := errors(folded(mistake.diagnose(source))):
        fault = next((fault for fault in left if fault.fixes), None)
        assert fault is not None, (source, left)
        assert fault.hint or fault.choices
        changed = mended(source, fault, mistake.diagnose, fault.fixes[0])
        assert changed is not None, (source, fault)
        assert changed != source, fault
        assert len(errors(mistake.diagnose(changed))) <= len(left)
        source = changed
    return source


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.code}-{mistake.source[-40:]}")
def test_a_mistake_has_its_code_place_hint_and_fix(mistake: Mistake) -> None:
    found = [found for found in mistake.diagnose(mistake.source) if found.code == mistake.code]
    assert [(one.span.start, one.span.end) for one in found] == mistake.places
    assert mistake.says in f"{found[0].message} {found[0].hint}"
    assert found[0].severity == CATALOGUE[mistake.code][0]
    if mistake.fix == "quick":
        assert fixed(mistake) == mistake.after
    elif mistake.fix == "hand":
        assert mistake.after != mistake.source
        assert errors(mistake.diagnose(mistake.after)) == []


def test_the_table_has_as_many_mistakes_as_people_make() -> None:
    assert len(MISTAKES) > 300


def test_every_code_of_the_language_has_an_example() -> None:
    folder = Path(pml.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py") if path.name != "codes.py"]
    used = {code for code in CATALOGUE if any(f'"{code}"' in text for text in texts)} | {"E119", "W600"}
    assert used == {mistake.code for mistake in MISTAKES} | ELSEWHERE
    assert all(code[:2] in ("E5", "W6") for code in set(CATALOGUE) - used)


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_severity_follows_the_family(code: str) -> None:
    assert (CATALOGUE[code][0] == "error") == code.startswith("E")


def test_the_schemas_of_the_table_are_valid() -> None:
    assert [parsed.diagnostics for parsed in SCHEMAS.values()] == [(), ()]


def test_all_faults_are_found_in_one_pass() -> None:
    source = (
        '<schema nme="a">\n<module name="m" cache=no>1 < 2 &nbsp;</module>\n'
        '<modul name="m">y</modul>\n<union/>'
    )
    codes = [found.code for found in parse_schema(source).diagnostics]
    assert sorted(codes) == sorted(["E105", "E203", "E107", "E204", "E109", "E110", "E205", "E302", "W602"])


def test_diagnostics_come_in_the_order_of_the_text() -> None:
    source = '<schema name="a"><module>x</module><module name="m" name="n">&x;</module><union/></schema>'
    starts = [found.span.start for found in parse_schema(source).diagnostics]
    assert starts == sorted(starts)
    assert len(starts) == 4


def test_columns_count_characters_not_bytes_or_utf16_units() -> None:
    source = '<schema name="a">\n  🗼東京é <module>x</module></schema>'
    found = parse_schema(source).diagnostics[0]
    assert (found.code, found.line, found.column) == ("E202", 2, 9)
    assert source.split("\n")[1][found.column - 1 : found.end_column - 1] == "module"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_end_in_any_of_three_ways(line_end: str) -> None:
    source = line_end.join(['<schema name="a">', "one", "<module>x</module>", "</schema>"])
    found = parse_schema(source).diagnostics[0]
    assert (found.line, found.column, found.end_line, found.end_column) == (3, 2, 3, 8)
    assert source[found.span.start : found.span.end] == "module"


def test_json_has_the_documented_keys() -> None:
    found = make("E402", "message", Span(3, 5), "a\nbcd", "hint")
    assert found.to_json() == {
        "code": "E402",
        "severity": "error",
        "message": "message",
        "line": 2,
        "column": 2,
        "end_line": 2,
        "end_column": 4,
        "hint": "hint",
    }


def test_an_unknown_code_is_our_own_bug() -> None:
    with pytest.raises(KeyError):
        make("E999", "message", Span(0, 0), LineIndex(""))


def test_render_shows_the_line_and_a_caret() -> None:
    source = '<schema name="a">\n\t<modul name="m">x</modul>\n</schema>'
    found = parse_schema(source).diagnostics[0]
    assert found.render(source, "a.pml").splitlines() == [
        "a.pml:2:3: error E205: <modul> is not a PML element; did you mean <module>?",
        '2 | \t<modul name="m">x</modul>',
        "    \t ^^^^^",
        "    hint: module",
    ]


def test_render_cuts_long_lines_and_hides_control_characters() -> None:
    source = "x" * 5000 + "\x1b[31m" + "y" * 5000
    shown = make("E103", "m", Span(5000, 5001), source).render(source)
    line, caret = shown.splitlines()[1:3]
    assert len(line) < 140
    assert "\x1b" not in shown
    assert line[caret.index("^")] == "\N{REPLACEMENT CHARACTER}"


def test_render_of_a_span_over_lines_stops_at_the_end_of_the_first() -> None:
    source = "<a\nb\n>"
    assert make("E104", "m", Span(0, 6), source).render(source).splitlines()[2] == "    ^^"


def test_very_many_faults_are_counted_not_shown() -> None:
    diagnostics = parse_schema('<schema name="a">' + "<module>x</module>" * 4000 + "</schema>").diagnostics
    assert len(diagnostics) == MAX_DIAGNOSTICS + 1
    assert diagnostics[-1].code == "E119"
    assert "3000 more" in diagnostics[-1].message


def test_very_much_advice_is_no_error() -> None:
    modules = "".join(f'<module name="m{number}"/>' for number in range(5000))
    parsed = parse_schema(f'<schema name="a">{modules}</schema>')
    assert parsed.ok
    assert len(parsed.diagnostics) == MAX_DIAGNOSTICS + 1
    assert parsed.diagnostics[-1].code == "W600"
    assert "4000 more" in parsed.diagnostics[-1].message


def test_messages_hide_no_character() -> None:
    source = '<schema name="a"><b\u202eda\u0301 \u200b/>\u202e</schema>'
    found = parse_schema(source).diagnostics
    assert found
    for one in found:
        assert one.message.isprintable()
        assert "\u202e" not in one.render(source)
    assert "\\u202e" in found[0].message


def test_huge_names_give_short_messages() -> None:
    for source in (
        f"<schema><{'x' * 100_000}>",
        f"<{'x' * 100_000}></y>",
        f"<prompt><m {'x' * 100_000}=1/></prompt>",
    ):
        for found in (*parse_schema(source).diagnostics, *parse_prompt(source).diagnostics):
            assert len(found.message) + len(found.hint) < 700


def test_the_caret_stands_under_wide_and_combined_characters() -> None:
    source = '<schema name="a">東京 e\u0301 <modul name="m">x</modul></schema>'
    line, caret = parse_schema(source).diagnostics[0].render(source).splitlines()[1:3]
    assert line[caret.index("^") - 1 :].startswith("modul")
    assert caret.count("^") == 5
    assert caret.index("^") == len('1 | <schema name="a">') + 4 + 1 + 1 + 1 + 1


def test_nesting_beyond_the_limit_has_its_own_sentence() -> None:
    source = '<schema name="a">' + '<module name="m">' * 256 + "x" + "</module>" * 256 + "</schema>"
    found = [one for one in parse_schema(source).diagnostics if one.code == "E117"]
    assert len(found) == 1
    assert found[0].span.start == len('<schema name="a">') + 255 * len('<module name="m">') + 1
    assert "256 deep" in found[0].message


def test_suggestions_ignore_case() -> None:
    found = parse_schema('<schema name="a"><MODULE name="m">x</MODULE></schema>').diagnostics
    assert [(one.code, one.hint) for one in found] == [("E205", "module")]


def test_messages_cut_long_values() -> None:
    inner = '<module name="{}">x<param name="p" len="{}"/></module>'
    source = f'<schema name="a"><module name="m">Y. {inner}</module></schema>'
    for code, name, length, says in (
        ("E301", "!" * 9999, "1", ""),
        ("E301", "n" * 1999, "1", "more than 2000 characters"),
        ("E204", "n", "9" * 5000, "whole"),
    ):
        found = parse_schema(source.format(name, length)).diagnostics[0]
        assert (found.code, len(found.message) < 200) == (code, True)
        assert says in found.message


def test_a_file_that_cannot_be_read_names_its_value(tmp_path: Path) -> None:
    source = '<schema name="a"><module name="m" src="missing.txt"/></schema>'
    found = parse_schema(source, base=tmp_path).diagnostics[0]
    assert found.code == "E209"
    assert "'missing.txt'" in found.message
    assert source[found.span.start : found.span.end] == "missing.txt"
