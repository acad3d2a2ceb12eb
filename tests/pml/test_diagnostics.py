"""Every code of the catalogue has an example that triggers it, and the place it reports is exact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import pml
from engine.pml import CATALOGUE, Diagnostic, LineIndex, Span, bind, make, parse_prompt, parse_schema
from engine.pml.diagnostics.diagnostic import MAX_DIAGNOSTICS

TRAVEL = """<schema name="travel">
  <user>
    <module name="trip-plan">
      I want to be away for <param name="duration" len="5"/>.
      <union>
        <module name="domestic">The city of <param name="city" len="10" default="Lyon"/>.</module>
        <module name="overseas">
          <union>
            <module name="tokyo">Tokyo is large.</module>
            <module name="rome">Rome is old.</module>
          </union>
        </module>
      </union>
    </module>
    <module name="budget"><module name="notes">Spend little.</module></module>
    <module name="food"><module name="notes">Eat well.</module></module>
  </user>
  <module name="shot"><user>Q</user><assistant>A</assistant></module>
</schema>
"""


@dataclass(frozen=True)
class Example:
    """A document with its fault between « and »; `says` is what the message must hold."""

    code: str
    text: str
    says: str
    kind: str = "schema"


def schema(code: str, text: str, says: str) -> Example:
    return Example(code, text, says)


def prompt(code: str, text: str, says: str) -> Example:
    return Example(code, text, says, "prompt")


def bound(code: str, text: str, says: str) -> Example:
    return Example(code, text, says, "bound")


EXAMPLES = [
    schema("E103", '<schema name="a">x«\0»y</schema>', "U+0000"),
    schema("E103", '<schema name="a">x«\x1b»y</schema>', "U+001B"),
    schema("E103", '<schema name="a">x«\ud800»y</schema>', "U+D800"),
    schema(
        "E104", '<schema name="a">«<module name="m"» <module name="n">x</module></schema>', "'>' is missing"
    ),
    schema("E104", '<schema name="a"><module name="m">x</module>«</schema»', "'>' is missing"),
    schema("E105", '<schema name="a">«<module name="m">»text</schema>', "<module name='m'> is never closed"),
    schema("E105", '«<schema name="a">»text', "the document ends first"),
    schema("E106", '<schema name="a">x«</module>»</schema>', "closes nothing"),
    schema("E106", '<schema name="a"><module name="m">x«</modul>»</schema>', "does not match <module>"),
    schema("E107", '<schema name="a"><module name="m" «cache»>x</module></schema>', 'cache="…"'),
    schema("E107", '<schema name="a"><module «name=m»>x</module></schema>', 'write name="m"'),
    schema(
        "E107", '<schema name="a"><module name="m"«cache»="true">x</module></schema>', "a space is missing"
    ),
    schema("E107", '<schema name="a"><module name="m" «$»>x</module></schema>', "'$' is not an attribute"),
    schema("E107", '<schema name="a"><module «name="m»>x</module></schema>', "no closing quote"),
    schema(
        "E108", '<schema name="a"><module name="m" «name="n"»>x</module></schema>', "already given at line 1"
    ),
    schema("E109", '<schema name="a">1 «<» 2</schema>', "write &lt;"),
    schema("E109", '<schema name="a">salt «&» pepper</schema>', "write &amp;"),
    schema("E109", '<schema name="a">x«]]>»y</schema>', "write ]]&gt;"),
    schema("E109", '<schema name="a"><module name="m«<»n">x</module></schema>', "write &lt;"),
    schema("E110", '<schema name="a">a«&nbsp;»b</schema>', "&#160;"),
    schema("E110", '<schema name="a">a«&lol9;»b</schema>', "'&lol9;' is unknown"),
    schema("E110", '<schema name="a">a«&#0;»b</schema>', "a character that XML forbids"),
    schema("E110", '<schema name="a">a«&#xFFFFFFFF;»b</schema>', "a character that XML forbids"),
    schema("E110", '<schema name="a">a«&#x;»b</schema>', "not a character reference"),
    schema("E111", '«<!DOCTYPE schema [<!ENTITY x "y">]>»<schema name="a">x</schema>', "DOCTYPE"),
    schema("E111", '<schema name="a">«<!ELEMENT x>»</schema>', "'<!' must begin"),
    schema("E112", '<schema name="a">«<?php echo 1 ?>»</schema>', "processing instructions"),
    schema("E113", '<?xml version="1.0" encoding="«latin-1»"?><schema name="a">x</schema>', "not 'latin-1'"),
    schema("E113", ' «<?xml version="1.0"?>»<schema name="a">x</schema>', "at the very start"),
    schema("E114", '<schema name="a">x «<!-- note</schema>»', "never closed"),
    schema("E114", '<schema name="a">x <!-- a «--» b --></schema>', "'--'"),
    schema("E114", '<schema name="a">«<![CDATA[ x </schema>»', "CDATA"),
    schema("E115", '<schema name="a">x</schema> «more»', "text is after the root"),
    schema("E115", '<schema name="a">x</schema><«schema» name="b">y</schema>', "<schema> is after"),
    schema("E115", '«x»<schema name="a">x</schema>', "before the root"),
    schema("E116", "«»", "empty"),
    schema("E118", '<schema name="a"><«x:module» name="m">x</x:module></schema>', "prefix"),
    schema(
        "E118", '<schema name="a"><module name="m" «x:y»="1">x</module></schema>', "xml:space and xml:lang"
    ),
    schema(
        "E199",
        '<?xml version="1.0" encoding="UTF-8" standalone="«m»aybe"?><schema name="a">x</schema>',
        "not well-formed",
    ),
    schema("E301", '<schema name="a"><«a\xd7»/>x</schema>', "cannot name an element"),
    schema(
        "E301",
        '<schema name="a"><module name="m" «a\xd7»="1">x</module></schema>',
        "cannot name an attribute",
    ),
    schema(
        "W615",
        '<schema name="a"><module name="caf\xe9">x</module><module name="«cafe\u0301»">y</module></schema>',
        "U+00E9 against U+0065 U+0301; rename one",
    ),
    schema("E121", "«# Notes»\n\nThe ferry leaves at nine.", "`pml import FILE --from text -o schema.pml`"),
    schema(
        "E121", "«messages:»\n  - role: user\n    content: Hi <b>\n", "`pml import FILE.yaml -o schema.pml`"
    ),
    schema("E121", '«{"messages": []}»', "`pml import FILE.json -o schema.pml`"),
    schema("E121", '«import os»\nprint("x")', "`pml import FILE.py -o schema.pml`"),
    schema("E121", "«Hello {{ name }}»", "--from jinja"),
    schema("E121", "«<!DOCTYPE html>»\n<html><body><p>x<br></body></html>", "an HTML page"),
    schema("E121", '«<?xml version="1.0"?>»\n<rss><item>x</item></rss>', "another kind of XML"),
    schema("E201", '<«prompt» schema="a">x</prompt>', "this is a prompt"),
    schema("E201", '<«scheme» name="a">x</scheme>', "begins with <schema"),
    prompt("E201", '<«schema» name="a">x</schema>', "this is a schema"),
    schema("E202", "<«schema»>x</schema>", "name of <schema> is missing"),
    schema("E202", '<schema name="a"><«module»>x</module></schema>', "name of <module> is missing"),
    schema("E202", '<schema name="a"><module «name=""»>x</module></schema>', "is empty"),
    schema("E202", '<schema name="a"><module name="m"><«param» name="p"/></module></schema>', 'len="10"'),
    prompt("E202", "<prompt><m><«arg»>x</arg></m></prompt>", '<arg name="…">'),
    schema(
        "E203", '<schema name="a"><module name="m" «cahce»="false">x</module></schema>', "did you mean cache?"
    ),
    prompt("E203", '<prompt «shema»="a">x</prompt>', "did you mean schema?"),
    schema("E204", '<schema name="a"><module name="m" cache="«no»">x</module></schema>', 'cache="false"'),
    schema("E204", '<schema name="a" xml:space="«keep»">x</schema>', "preserve"),
    schema(
        "E204", '<schema name="a"><module name="m"><param name="p" len="«0»"/></module></schema>', "from 1 to"
    ),
    schema(
        "E204",
        f'<schema name="a"><module name="m"><param name="p" len="«{"9" * 5000}»"/></module></schema>',
        "whole",
    ),
    schema(
        "E204",
        '<schema name="a"><module name="m"><param name="p" len="1" «length="1"»/></module></schema>',
        "the same attribute",
    ),
    schema("E205", '<schema name="a"><«modul» name="m">x</modul></schema>', "did you mean <module>?"),
    schema("E205", '<schema name="a"><«zzz»/>x</schema>', '<module name="…">'),
    schema("E206", '<schema name="a">x <«param» name="p" len="3"/></schema>', "inside a module"),
    schema("E206", '<schema name="a"><user><«system»>x</system></user></schema>', "directly in the schema"),
    schema("E206", '<schema name="a"><union><«union»/></union></schema>', "only modules"),
    prompt("E206", "<prompt><user><«tokyo»/></user></prompt>", "move the import out"),
    prompt("E206", '<prompt><«module» name="tokyo"/></prompt>', "<tokyo/>"),
    prompt("E206", '<prompt><«arg» name="x">y</arg></prompt>', "import with its parameter"),
    schema(
        "E207",
        '<schema name="a"><union> «loose text» <module name="m">x</module></union></schema>',
        "'loose text'",
    ),
    schema(
        "E207",
        '<schema name="a"><module name="m"><param name="p" len="3">«x»</param></module></schema>',
        "empty",
    ),
    schema("E208", '<schema name="a"><module name="m" src="«../secret»"/></schema>', "'..'"),
    schema("E208", '<schema name="a"><module name="m" src="«/etc/passwd»"/></schema>', "absolute"),
    schema("E209", '<schema name="a"><module name="m" src="«notes.txt»"/></schema>', "save it next to"),
    schema(
        "E210",
        '<schema name="a"><module name="m" «src="notes.txt"»>text</module></schema>',
        "empty the module",
    ),
    schema(
        "E212",
        '<schema name="a"><module name="m"><user>x</user> «x <param name="p" len="1"/>» </module></schema>',
        "put it into a turn of its own",
    ),
    schema(
        "E206",
        '<schema name="a"><module name="m"><module name="n"><«user»>x</user></module></module></schema>',
        "in a top-level module",
    ),
    schema(
        "E301",
        '<schema name="a"><module name="«3 days»">x</module></schema>',
        "'3 days' cannot name a module",
    ),
    schema("E301", '<schema name="«größe 3»">x</schema>', "cannot name a schema"),
    schema(
        "E301",
        f'<schema name="a"><module name="m"><module name="«{"n" * 1999}»">x</module>y</module></schema>',
        "more than 2000 characters",
    ),
    schema(
        "E302",
        '<schema name="a">\n<module name="m">x</module>\n<module name="«m»">y</module></schema>',
        "module 'm' is already defined at line 2; rename one, or nest it",
    ),
    schema(
        "E302",
        '<schema name="a"><module name="m">x</module><union><module name="«m»">y</module></union></schema>',
        "'m'",
    ),
    schema(
        "E303", '<schema name="a"><module name="«user»">x</module></schema>', "'user' is an element of PML"
    ),
    schema(
        "E304",
        '<schema name="a"><module name="m"><param name="p" len="1"/>'
        '<param name="«p»" len="2"/></module></schema>',
        "parameter 'p' is already defined at line 1; remove len to repeat its argument, or rename one",
    ),
    schema(
        "E305",
        '<schema name="a"><union scaffold="«tokio»"><module name="tokyo">x</module>'
        '<module name="b">y</module></union></schema>',
        "did you mean 'tokyo'?",
    ),
    schema(
        "E306",
        '<schema name="a"><module name="m">x</module><module name="n">y</module>'
        '<scaffold modules="m  «nn»"/></schema>',
        "no module 'nn'",
    ),
    bound("E401", '<prompt schema="«voyage»"><budget/></prompt>', "but 'travel' is open"),
    bound("E402", "<prompt><«trip-pan»/></prompt>", "did you mean <trip-plan/>?"),
    bound(
        "E402",
        "<prompt><trip-plan><overseas><«tokio»/></overseas></trip-plan></prompt>",
        "did you mean <tokyo/>?",
    ),
    bound("E403", "<prompt><trip-plan><«tokyo»/></trip-plan></prompt>", "is in 'trip-plan/overseas'"),
    bound("E403", "<prompt><trip-plan><«budget»/></trip-plan></prompt>", "at the top level"),
    bound("E404", "<prompt><«notes»/></prompt>", "'budget/notes' or 'food/notes'"),
    bound("E405", "<prompt>\n<budget/>\n<«budget»/></prompt>", "is imported at lines 2 and 3"),
    bound(
        "E406",
        "<prompt><trip-plan><overseas>\n<tokyo/>\n<«rome»/></overseas></trip-plan></prompt>",
        "'trip-plan/overseas/rome' (line 3) and 'trip-plan/overseas/tokyo' (line 2)",
    ),
    bound("E406", "<prompt>\n<tokyo/>\n<«domestic»/></prompt>", "'trip-plan/domestic' (line 3)"),
    bound("E407", '<prompt><trip-plan «durration="3 days"»/></prompt>', "did you mean 'duration'?"),
    bound(
        "E408",
        '<prompt><trip-plan duration="3"> «<arg name="duration">4</arg>»</trip-plan></prompt>',
        "line 1",
    ),
    bound("E409", "<prompt>«<user»>Hi</user>\n<budget/></prompt>", "precedes the last import (line 2)"),
    schema("W601", '<schema name="a"><«union»><module name="m">x</module></union></schema>', "one module"),
    schema("W602", '<schema name="a"><«union»/></schema>', "no member"),
    schema("W603", '<schema name="a">«<module name="m">»  </module></schema>', "'m' is empty"),
    schema(
        "W613",
        '<schema name="a"><module name="m">I pay.</module><module name="«n»">I walk.</module></schema>',
        "words run together: 'I pay.I walk.'; put a line break between them",
    ),
    schema(
        "W616",
        '<schema name="a">To: <module name="m">Ada</module>\n«## Rules»</schema>',
        "not if module 'm' is left out: it then follows 'To:'; write 'To:' into module 'm' too",
    ),
    bound(
        "W613", '<prompt><trip-plan duration="3">«By train.»<domestic/></trip-plan></prompt>', "run together"
    ),
    bound("W617", "<prompt>«By train.»<shot/></prompt>", "'By train.' is next to whole turns, so it is"),
    bound("W604", "<prompt><«trip-plan»/></prompt>", "'duration' of 'trip-plan' stays empty"),
    schema(
        "W605",
        f'<schema name="a"><module name="m">{"long text " * 5}</module>'
        f'«<module name="n">»{"long text " * 5}</module></schema>',
        "'n' repeats the text of 'm'",
    ),
    schema(
        "W606",
        '<schema name="a"><union><module name="m">x</module><module name="n">y</module></union>'
        '<scaffold modules="«m n»"/></schema>',
        "so no prompt imports both",
    ),
    schema(
        "W606", '<schema name="a"><module name="m">x</module><scaffold modules="«m»"/></schema>', "one module"
    ),
]

ELSEWHERE = {"E101", "E102", "E117", "E119", "E120", "E211", "W600"}
"""Codes with tests of their own, below, in test_reader and in test_including."""


def diagnose(example: Example) -> tuple[Diagnostic, ...]:
    text = example.text.replace("«", "").replace("»", "")
    if example.kind == "schema":
        return parse_schema(text).diagnostics
    parsed = parse_prompt(text)
    if example.kind == "prompt" or parsed.tree is None:
        return parsed.diagnostics
    assert parsed.ok, parsed.diagnostics
    tree = parse_schema(TRAVEL).tree
    assert tree is not None
    return bind(tree, parsed.tree).diagnostics


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.code}-{example.says[:25]}")
def test_each_fault_is_reported_at_its_place(example: Example) -> None:
    start = example.text.index("«")
    end = example.text.index("»") - 1
    found = [found for found in diagnose(example) if found.code == example.code]
    assert [(one.span.start, one.span.end) for one in found] == [(start, end)]
    assert example.says in found[0].message
    assert found[0].severity == CATALOGUE[example.code][0]


def test_every_code_of_the_language_has_an_example() -> None:
    folder = Path(pml.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py") if path.name != "codes.py"]
    used = {code for code in CATALOGUE if any(f'"{code}"' in text for text in texts)} | {"E119", "W600"}
    assert used == {example.code for example in EXAMPLES} | ELSEWHERE
    assert all(code[:2] in ("E5", "W6") for code in set(CATALOGUE) - used)


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_severity_follows_the_family(code: str) -> None:
    assert (CATALOGUE[code][0] == "error") == code.startswith("E")


def test_the_travel_schema_of_the_examples_is_clean() -> None:
    assert parse_schema(TRAVEL).diagnostics == ()


def test_all_faults_are_found_in_one_pass() -> None:
    source = (
        '<schema nme="a">\n<module name="m" cache=no>1 < 2 &nbsp;</module>\n'
        '<modul name="m">y</modul>\n<union/>'
    )
    codes = [found.code for found in parse_schema(source).diagnostics]
    assert sorted(codes) == sorted(
        ["E105", "E203", "E107", "E204", "E109", "E110", "E205", "E302", "W602"],
    )


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
    found = parse_schema(f'<schema name="a"><module name="{"!" * 9999}">x</module></schema>').diagnostics
    assert len(found[0].message) < 200


def test_a_file_that_cannot_be_read_names_its_value(tmp_path: Path) -> None:
    source = '<schema name="a"><module name="m" src="missing.txt"/></schema>'
    found = parse_schema(source, base=tmp_path).diagnostics[0]
    assert found.code == "E209"
    assert "'missing.txt'" in found.message
    assert source[found.span.start : found.span.end] == "missing.txt"
