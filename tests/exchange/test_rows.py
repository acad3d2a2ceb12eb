"""Rows of a batch: whatever a file holds is read as rows, faults of rows, or one fault of the file."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.base.errors import PromptCacheError
from engine.exchange import ExchangeError
from engine.files.text_files import Lines, NoFileError, TextFileError, decode
from engine.pml import ArgumentText, NewText, Schema, bind, parse_prompt
from engine.pml.whitespace.rules import SPACE
from engine.pml.xml.entities import forbidden_character
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row, read_rows
from tests.pml.documents import schema_tree

SCHEMA = """<schema name="trip">
  <module name="plan">For <param name="duration" len="9"/>
    <union>
      <module name="tokyo">T.</module>
      <module name="rome">R <param name="hotel" len="9"/>.</module>
    </union>
  </module>
  <module name="rome-again">Again.<module name="rome">Again <param name="id" len="9"/></module></module>
  <user>Go.</user>
</schema>"""
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30).filter(lambda text: not forbidden_character(text))


def schema() -> Schema:
    tree = schema_tree(SCHEMA)
    return tree


def rows(content: bytes) -> list[Row]:
    return list(read_rows(io.BytesIO(content), "the file"))


def spelled(row: Row) -> tuple[tuple[str, ...], dict[str, str], str]:
    """The modules, arguments and new text of the prompt that a row spells."""
    prompt = parse_prompt(prompt_text(row, schema()))
    assert prompt.tree is not None
    assert prompt.ok
    bound = bind(schema(), prompt.tree)
    assert bound.ok, bound.diagnostics
    given = {
        f"{part.module}/{part.param.name}": part.text
        for part in bound.parts
        if isinstance(part, ArgumentText) and part.given
    }
    return bound.imports, given, "".join(part.text for part in bound.parts if isinstance(part, NewText))


@given(st.binary(max_size=300))
@example(b'id,text\n1,"a\n2,b')
@example(b'"id,text')
@example(b"id\rtext,\n")
@example(b'{"id": 1}\n\xff\n{"id": 2}')
@example(b"id,text\n\0\n")
@example(b"text\n\xff\xfe\n")
def test_any_bytes_are_rows_or_faults(content: bytes) -> None:
    for before in (b"", b"id,picks,text\n", b'{"id": 0}\n'):
        try:
            found = rows(before + content)
        except (ExchangeError, TextFileError):
            continue
        assert [row.line for row in found] == sorted(row.line for row in found)
        for row in found:
            assert row.digest
            assert json.dumps(row.id)
            with contextlib.suppress(PromptCacheError):
                assert prompt_text(row, schema())


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_what_a_spreadsheet_writes_comes_back(cells: list[tuple[str, str]]) -> None:
    written = io.StringIO(newline="")
    writer = csv.writer(written)
    writer.writerow(["id", "text", "duration"])
    writer.writerows([number, *pair] for number, pair in enumerate(cells, 1))
    found = rows(written.getvalue().encode())
    assert [(row.id, row.text, row.arguments.get("duration", "")) for row in found] == [
        (str(number), *pair) for number, pair in enumerate(cells, 1)
    ]


@given(TEXTS, TEXTS)
@example("  two\n    indented", "a\r\nb")
@example("]]>&<é>", '"quoted" <arg>')
def test_text_and_arguments_reach_the_prompt_as_they_are(text: str, argument: str) -> None:
    row = Row(1, 1, picks=("tokyo",), arguments={"duration": argument}, text=text)
    imports, given_arguments, new = spelled(row)
    lines = {value: value.replace("\r\n", "\n").replace("\r", "\n") for value in (text, argument)}
    assert imports == ("plan", "plan/tokyo")
    assert given_arguments == {"plan/duration": lines[argument]}
    words = "\n".join(line if line.strip(SPACE) else "" for line in lines[text].strip(SPACE).split("\n"))
    assert new == (f"\n{words}" if words else "")


@pytest.mark.parametrize(
    ("row", "imports", "arguments"),
    [
        ({"picks": ("plan/rome",)}, ("plan", "plan/rome"), {}),
        ({"picks": ("rome-again", "tokyo")}, ("rome-again", "plan", "plan/tokyo"), {}),
        ({"picks": ("plan", "tokyo")}, ("plan", "plan/tokyo"), {}),
        ({"arguments": {"hotel": "Roma"}}, ("plan", "plan/rome"), {"plan/rome/hotel": "Roma"}),
        (
            {"arguments": {"rome-again/rome": {"id": "7"}, "plan": {"duration": ""}}},
            ("rome-again", "rome-again/rome", "plan"),
            {"rome-again/rome/id": "7", "plan/duration": ""},
        ),
        ({}, (), {}),
    ],
)
def test_picks_and_arguments_by_any_end_of_their_paths(
    row: dict[str, Any], imports: tuple[str, ...], arguments: dict[str, str]
) -> None:
    assert spelled(Row(1, 1, **row))[:2] == (imports, arguments)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"picks": ("rome",)}, "'rome' could be several modules. Write 'plan/rome' or 'rome-again/rome'."),
        ({"picks": ("lan/tokyo",)}, "no module 'lan/tokyo'. Did you mean 'plan/tokyo'?"),
        ({"picks": ("xyz",)}, "no module 'xyz'. It has 'plan', "),
        ({"arguments": {"xyz": "x"}}, "Write '_xyz' for a note."),
        ({"arguments": {"tokyo": {"a": "x"}}}, "'plan/tokyo' has no parameter 'a'. It has "),
        ({"prompt": "prompts/one.pml"}, "The prompt is not a document"),
        ({"fault": "It is broken."}, "It is broken."),
    ],
)
def test_what_a_schema_does_not_have_is_refused_in_words(row: dict[str, Any], words: str) -> None:
    with pytest.raises(ExchangeError) as refused:
        prompt_text(Row(1, 1, **row), schema())
    assert words in str(refused.value)


def test_a_whole_prompt_stays_as_it_is() -> None:
    text = '<prompt>\n <plan/>\n</prompt><!-- "as written" -->'
    assert prompt_text(rows(json.dumps({"prompt": text}).encode())[0], schema()) == text


def test_a_digest_follows_what_is_asked_and_not_how_it_is_called() -> None:
    one, other, third = rows(b'id,picks,text\n1,"a, b",So?\n2,a b,So?\n3,b a,So?\n')
    assert one.digest == other.digest != third.digest


def test_a_digest_leaves_out_what_is_trimmed() -> None:
    one, other = rows(b'id,text\n1,So?\n2," So?\n"\n')
    assert one.digest == other.digest == "655fd692ab0a0297"


LOST = "Close every quote, and double those inside a cell."


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('1,"a\n2,b\n3,c\n', f"The quote opened in line 2 is never closed: lines 2 to 4 {{}}. {LOST}"),
        ('1,"a\n2,b\n3,c', f"The quote opened in line 2 is never closed: lines 2 to 4 {{}}. {LOST}"),
        ('"1\n1",5" x,"a\nb\n', f"The quote opened in line 3 is never closed: lines 2 to 4 {{}}. {LOST}"),
        ('1,"a\n2,"b"\n', f"Lines 2 to 3 {{}}, which cannot be read as CSV: ',' expected after '\"'. {LOST}"),
        ('1,"a\n' + "x" * 999_999 + "\n", None),
    ],
    ids=["open", "no line end", "behind others", "closed later", "long"],
)
def test_a_quote_that_is_left_open_is_told_with_the_lines_it_takes(content: str, fault: str | None) -> None:
    found = rows(f"id,text\n{content}".encode())[0].fault
    assert found == (
        fault or f"The quote opened in line 2 is never closed: lines 2 to 3 {{}}. {LOST}"
    ).format("were read as one row")


def test_a_cell_beyond_the_bound_is_told_with_the_lines_it_takes() -> None:
    first = rows(b'id,text\n1,"a\n' + (b"x" * 999_999 + b"\n") * 6 + b"2,b\n")[0]
    assert first.fault == f"A cell has more than 5 MB: lines 2 to 8 were read as one row. {LOST}"


def test_a_quote_that_is_left_open_among_the_columns() -> None:
    with pytest.raises(ExchangeError, match="The quote opened in line 1 is never closed: lines 1 to 3 were"):
        rows(b'id,"text\n1,a\n2,b\n')


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_in_which_excel_names_the_separator(separator: str, end: str) -> None:
    others = ",;\t|".replace(separator, "")
    lines = [f"SEP={separator}", f"id{separator}text", f"1{separator}a{others}b"]
    found = rows((end.join(lines) + end).encode())
    assert [(row.line, row.id, row.text, row.fault) for row in found] == [(3, "1", f"a{others}b", "")]
    with pytest.raises(ExchangeError, match="has no header line"):
        rows(b"sep=;\n")


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r", b"\n\r\n"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r", "mixed"])
@pytest.mark.parametrize("last", [True, False])
def test_every_line_end_ends_a_row(before: bytes, ends: str, last: bool) -> None:
    table = ["id,picks,text", "1,tokyo,A", '2,rome,"B ""b"""', "3,,C"]
    objects = [{"id": number, "text": letter} for number, letter in enumerate("ABC", 1)]
    for lines, ids in ((table, ["1", "2", "3"]), ([json.dumps(one) for one in objects], [1, 2, 3])):
        marks = itertools.cycle(["\r", "\n", "\r\n"]) if ends == "mixed" else itertools.repeat(ends)
        content = "".join(line + mark for line, mark in zip(lines, marks, strict=False))
        content = content if last else content.rstrip("\r\n")
        found = rows(before + content.encode())
        assert [row.fault for row in found] == ["", "", ""]
        assert [row.id for row in found] == ids
        assert [row.text[:1] for row in found] == ["A", "B", "C"]
        first = before.count(b"\r") + before.count(b"\n") - before.count(b"\r\n") + len(lines) - 2
        assert [row.line for row in found] == [first, first + 1, first + 2]


@pytest.mark.parametrize("inner", ["\n", "\r\n", "\r", "\r\n\r", "\u2028"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_within_a_cell_are_its_own(inner: str, end: str) -> None:
    found = rows(f'id,text{end}1,"a{inner}b"{end}2,c{end}'.encode())
    assert [(row.id, row.text, row.fault) for row in found] == [("1", f"a{inner}b", ""), ("2", "c", "")]


def test_faults_of_a_table_with_cr_are_in_plain_words() -> None:
    found = rows(b'id,text\r1,"a"x\r2,b\r3,"open\r4,d\r')
    assert [row.line for row in found] == [2, 3, 4]
    assert "new-line" not in "".join(row.fault for row in found)
    assert "The quote opened in line 4 is never closed: lines 4 to 5" in found[2].fault
    with pytest.raises(TextFileError, match="byte 0xE9 in line 3"):
        decode(b"one\rtwo\rth\xe9")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id,text\n1,a\n".encode("utf-16"), "it begins with the mark of UTF-16. Save it as UTF-8"),
        ("id,text\n1,a\n".encode("utf-16-le"), "it looks like UTF-16. Save it as UTF-8"),
        ("id,text\n1,a\n".encode("utf-16-be"), "it looks like UTF-16. Save it as UTF-8"),
        ('{"text": "a"}\n'.encode("utf-16-le"), "it looks like UTF-16. Save it as UTF-8"),
        (b"id,text,text\n1,a,b\n", "has the column 'text' twice; rename one"),
        (b"id,text,TEXT\n1,a,b\n", "has the column 'text' twice; rename one"),
        (b"text,set top-p,set top_p\na,0.5,0.6\n", "has the column 'set top-p' twice; rename one"),
        (b"id|text\n1|a\n", "has no header line"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_once(content: bytes, words: str) -> None:
    with pytest.raises((ExchangeError, TextFileError), match=words):
        rows(content)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"id,picks,text\n1,,Hello\nworld\n", 3, "has 1 of 3 cells, and no prompt. Put quotes"),
        (b"id,text\n1,Hello, world\n", 2, "has 3 cells, but there are 2 columns. Put quotes around a cell"),
        (b"id,,text\n1,x,a\n", 2, "in a column without a name. Name the column in the first line."),
        (b'{"text":"a","settings":{"top-p":0.5,"top_p":0.6}}', 1, "'top_p' is given twice. Give it once."),
    ],
)
def test_ragged_rows_and_double_names_are_faults_of_the_row(content: bytes, line: int, words: str) -> None:
    (fault,) = [row for row in rows(content) if row.fault]
    assert fault.line == line
    assert words in fault.fault


def test_cells_at_the_end_of_a_row_may_be_missing_and_separators_in_quotes_do_not_count() -> None:
    assert rows(b"id,picks,text,_note\n1,tokyo\n")[0].picks == ("tokyo",)
    assert rows(b"id,picks,text\n1,tokyo,,,\n")[0].fault == ""
    assert rows(b'"_a,b,c";text\nx;y\n')[0].text == "y"
    assert rows(b"id,text\r") == rows(b"\r\n\r") == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_of_just_the_bound_and_beyond_with_any_end(end: bytes) -> None:
    lines = Lines(io.BytesIO(b"x" * 9 + end + b"y" * 10 + end + b"z" * 30 + end + b"z"), "the file", limit=9)
    assert next(lines) == "x" * 9 + end.decode()
    for number in (2, 3):
        with pytest.raises(TextFileError, match=f"in line {number}"):
            next(lines)
    assert [*lines] == ["z"]
    many = Lines(io.BytesIO((b"a" * 5 + end) * 40_000), "the file", limit=1000)
    assert sum(1 for _ in many) == many.number == 40_000


@pytest.mark.parametrize("number", ["12.50", "12345678901234567890123", "1e-7", "100000.00", "-0.0", "1E5"])
def test_a_number_reaches_the_prompt_as_it_is_spelled(number: str) -> None:
    for arguments in (f'{{"plan/duration": {number}}}', f'{{"plan": {{"duration": {number}}}}}'):
        (row,) = rows(f'{{"picks": ["plan"], "arguments": {arguments}}}'.encode())
        assert spelled(row)[1] == {"plan/duration": number}
    one, other = rows(
        f'{{"arguments": {{"duration": {number}}}}}\n{{"arguments": {{"duration": 7}}}}'.encode()
    )
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"arguments": {"duration": NaN}}', "column 28: NaN is not a JSON number (arguments.duration)."),
        (
            '{"arguments": {"duration": 1e400}}',
            "column 28: the number 1e400 is too large (arguments.duration).",
        ),
        ('{"arguments": {"a": 1, "a": 2}}', "column 24: the key 'a' occurs twice (arguments.a)."),
        ('{"text": "a", "text": "b"}', "column 15: the key 'text' occurs twice (text)."),
        ('{"settings": {"temperature": Infinity}}', "Infinity is not a JSON number (settings.temperature)."),
        ('{"expect": {"contains": "a", "contains": "b"}}', "the key 'contains' occurs twice"),
    ],
)
def test_what_json_leaves_open_is_a_fault_of_the_row(line: str, words: str) -> None:
    good, bad, after = rows(f'{{"id": 1}}\n{line}\n{{"id": 3}}'.encode())
    assert (good.fault, after.fault) == ("", "")
    assert bad.line == 2
    assert words in bad.fault


def test_lines_of_a_file_within_bounds() -> None:
    lines = Lines(
        io.BytesIO(b"\xef\xbb\xbfone\r\n" + b"x" * 40 + b"\ntwo\n" + b"y" * 40), "the file", limit=9
    )
    assert next(lines) == "one\r\n"
    for number in (2, 4):
        with pytest.raises(TextFileError, match=f"in line {number}"):
            next(lines)
        assert lines.number == number
        if number == 2:
            assert next(lines) == "two\n"
    with pytest.raises(StopIteration):
        next(lines)


def test_a_line_of_just_the_bound_is_read() -> None:
    assert list(Lines(io.BytesIO(b"x" * 9 + b"\r\n" + b"y" * 9), "the file", limit=9)) == [
        "x" * 9 + "\r\n",
        "y" * 9,
    ]


def test_a_disk_that_fails_is_no_fault_of_a_row() -> None:
    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().readline(size)

    found = read_rows(Failing(b"id,text\n1,a\n2,b\n"), "the file")
    with pytest.raises(NoFileError, match="the file cannot be read: Input/output error"):
        list(found)
