"""Tables, sizes, times and progress, apart from any command."""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata
from types import SimpleNamespace

import pytest

from app.base.sizes import size
from app.cli.base.output import (
    Console,
    Pace,
    PrintableFormatter,
    a_line_a_minute,
    counted,
    emit,
    inline,
    print_json,
    printable,
    progress_bar,
    reading_bar,
    table,
)
from engine.base.stopwatch import milliseconds


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.4249, "0.42 ms"), (9.06, "9.1 ms"), (123.4, "123 ms"), (999.4, "999 ms"), (1250, "1.25 s")],
)
def test_times_have_three_digits(value: float, text: str) -> None:
    assert milliseconds(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")],
)
def test_sizes_in_words(count: int, text: str) -> None:
    assert size(count) == text


def test_numbers_agree_with_their_noun() -> None:
    assert [counted(number, "module") for number in (0, 1, 2)] == ["0 modules", "1 module", "2 modules"]


def test_tables_align_names_left_and_numbers_right() -> None:
    assert table(["MODULE", "TOKENS"], [["a", "5"], ["long-name", "1200"]]) == (
        "MODULE     TOKENS\na               5\nlong-name    1200"
    )


def test_a_terminal_never_sees_escape_sequences() -> None:
    assert printable("a\x1b[2Jb\x9bc\x07\n\tü") == "a\ufffd[2Jb\ufffdc\ufffd\n\tü"
    assert "\x1b" not in table(["M"], [["\x1b[31m"]])


def test_json_keeps_every_script_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "東京"})
    out = capsys.readouterr().out
    assert "東京" in out
    assert json.loads(out) == {"text": "東京"}


def test_a_fault_is_an_object_where_a_program_reads(capsys: pytest.CaptureFixture[str]) -> None:
    Console(json=True).fail("the folder is gone")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": "the folder is gone"}
    assert captured.err == "pml: the folder is gone\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar() as progress:
        progress(1, 3, "encoding travel/tokyo")
        progress(3, 3, "encoding travel/rome")
    assert "encoding travel/tokyo" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


def test_the_stages_after_a_long_reading_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for long, told in ((True, True), (False, False)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with reading_bar() as progress:
            if long:
                progress(5 << 30, 5 << 30, "loading x")
            progress(0, 0, "probing x")
        assert ("probing x" in terminal.getvalue()) is told


def test_a_total_that_grows_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar() as progress:
        progress(0, 1, "checking")
        progress(1, 3, "checking")
    assert "1/3" in terminal.getvalue()


def test_a_fetch_tells_its_rate_and_the_time_left() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    told = []
    for seconds, done in ((0, 0), (0.5, 1), (2, 4), (23, 57), (30, 60), (34, 62)):
        now[0] = float(seconds)
        told.append(pace.words("fetching x", done << 20, 100 << 20))
    assert told[:2] == ["", ""], "too early to tell"
    assert told[2] == ", 2.0 MiB/s, 48 s left"
    assert told[5] == ", 465.5 KiB/s, 84 s left", "of the last seconds alone"
    assert pace.words("fetching y", 0, 5) == ""


def test_progress_is_silent_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with progress_bar() as progress:
        progress(1, 3, "encoding travel/tokyo")
    assert pipe.getvalue() == ""


HOSTILE = "a\x1b[2J\x07b\x9b31mc\x7f\r\ud800"


def test_names_stay_on_one_line() -> None:
    assert inline("a\nb\tc\x1b[m\x9b\u2028\u202e\ud800東") == (
        "a\\x0ab\\x09c\\x1b[m\\x9b\\u2028\\u202e\\ud800東"
    )
    assert table(["M"], [["a\nb"]]) == "M\na\\x0ab"


def test_json_escapes_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({HOSTILE: HOSTILE})
    out = capsys.readouterr().out
    assert visible(out)
    assert json.loads(out) == {HOSTILE: HOSTILE}


def visible(text: str) -> bool:
    """Whether a terminal obeys nothing in a text."""
    return all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp") for char in text)


def test_documents_are_printed_as_they_are_but_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emit("a\x9bb\n")
    assert capsys.readouterr().out == "a\x9bb\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    emit("a\x9bb\n")
    assert capsys.readouterr().out == "a\ufffdb\n"


def test_log_lines_are_printable() -> None:
    record = logging.LogRecord("engine", logging.WARNING, "", 0, "segment %s is gone", (HOSTILE,), None)
    assert visible(PrintableFormatter("pml: %(message)s").format(record))


def test_a_line_a_minute_tells_what_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 5.0
    monkeypatch.setattr("app.cli.base.output.time", SimpleNamespace(monotonic=lambda: now))
    known, unknown = a_line_a_minute(of_total=True), a_line_a_minute(of_total=False)
    for now in (5.0, 64.9, 65.0, 66.0, 125.0):
        known(int(now), 200, "1.0 rows/s")
        unknown(int(now), int(now) + 1, "answering")
    assert capsys.readouterr() == (
        "",
        "pml: 65/200 1.0 rows/s\npml: 65 answering\npml: 125/200 1.0 rows/s\npml: 125 answering\n",
    )
