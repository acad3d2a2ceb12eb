"""`pml run --batch` that is interrupted, killed or run twice: what is there then, and how it goes on."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.base.batch_results import Results
from app.cli.base.files import FileWriteError
from app.cli.commands.batch import Tally, is_standard_input
from engine import Engine
from engine.files import atomic
from engine.rows.rows import Row
from tests.app.cli.commands.test_batch import CSV, ROOT, Batch, batch, ids

__all__ = ["batch"]  # a fixture

pytestmark = pytest.mark.usefixtures("place")


def lines_in(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("option", "command"), [((), "The same command"), (("--force",), "The same command without --force")]
)
def test_an_interrupted_batch_keeps_what_is_done(
    option: tuple[str, ...], command: str, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Results.write

    def interrupted(results: Results, row: Any, outcome: Any) -> None:
        write(results, row, outcome)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Results, "write", interrupted)
        stopped = batch(CSV, "--output", "out.jsonl", *option)
    assert stopped.status == 130
    assert f"1 of 2 rows are in out.jsonl. {command} resumes there." in stopped.err
    assert len(Path("out.jsonl").read_text("utf-8").splitlines()) == 1
    assert "1 row answered, 1 answered before" in batch(CSV, "--output", "out.jsonl").err


@pytest.mark.parametrize(("mode", "wanted"), [("cached", False), ("both", True)])
def test_sides_that_are_compared_are_computed_one_by_one(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, mode: str, wanted: bool
) -> None:
    answer_all, found = Engine.answer_all, list[bool]()

    def noted(engine: Engine, *given: Any, **named: Any) -> Any:
        found.append("the same bits" in engine.answerer.alone)
        return answer_all(engine, *given, **named)

    monkeypatch.setattr(Engine, "answer_all", noted)
    assert batch(CSV, "--mode", mode).status == 0
    assert found == [wanted]


@pytest.mark.parametrize("option", [(), ("--as-they-end",)])
def test_a_file_gets_lines_as_rows_end_and_has_them_in_order_at_the_end(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    answer_all = Engine.answer_all
    asked: list[bool] = []

    def backwards(engine: Engine, *given: Any, as_they_end: bool, **named: Any) -> Any:
        asked.append(as_they_end)
        yield from reversed([*answer_all(engine, *given, as_they_end=as_they_end, **named)])

    monkeypatch.setattr(Engine, "answer_all", backwards)
    result = batch(CSV, "--output", "out.jsonl", *option)
    assert asked == [True], "what has ended is not lost with an interruption"
    assert ids(result.lines) == (["b", "a"] if option else ["a", "b"])


def test_many_rows_are_not_held(tmp_path: Path) -> None:
    import tracemalloc

    from engine.rows.rows import read_rows

    path = tmp_path / "many.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("id,text\n")
        file.writelines(f"{number},{'word ' * 400}\n" for number in range(3_000))
    assert path.stat().st_size > 2 * (2 << 20)
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            assert sum(not row.fault for row in read_rows(file, "many")) == 3_000
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


STOPS_AFTER_A_ROW = """
import signal, sys
from app.cli import main
from app.cli.base.batch_results import Results

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
write = Results.write
Results.write = lambda *given: (write(*given), sys.stdin.read())[0]
main(sys.argv[1:])
"""


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_stopped_is_gone_on_with(how: signal.Signals, batch: Batch) -> None:
    rows = "text\n" + "".join(f"Question {number}?\n" for number in range(12))
    Path("rows.csv").write_text(rows, encoding="utf-8")
    words = "run --batch rows.csv --schema trip.pml --max-new-tokens 2 --mode cached --output out.jsonl"
    output = Path("out.jsonl")
    with subprocess.Popen(
        [sys.executable, "-c", STOPS_AFTER_A_ROW, *words.split()],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while (not output.is_file() or b"\n" not in output.read_bytes()) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(how)
        assert process.stderr is not None
        told = process.stderr.read()
        status = process.wait(60)
    assert status == (130 if how is signal.SIGINT else -how), told
    assert ("The same command resumes there." in told) == (how is signal.SIGINT)
    assert output.read_bytes().count(b"\n") == 1
    again = batch(rows, "--output", "out.jsonl")
    assert again.status == 0, again.err
    assert ids(again.lines) == list(range(2, 14))
    assert "11 rows answered, 1 answered before" in again.err


def test_a_reader_that_goes_away_ends_a_batch(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader(io.StringIO):
        def write(self, text: str) -> int:
            if "\n" in self.getvalue():
                raise BrokenPipeError
            return super().write(text)

    reader = Reader()
    monkeypatch.setattr(sys, "stdout", reader)
    assert batch("text\n" + "So?\n" * 3).status == 141
    assert json.loads(reader.getvalue())["id"] == 2


def test_two_runs_do_not_write_to_one_output(batch: Batch) -> None:
    pytest.importorskip("fcntl")
    assert batch(CSV, "--output", "out.jsonl").status == 0
    key = json.loads(Path("out.jsonl").read_text("utf-8").splitlines()[0])["key"]
    other = Results(Path("out.jsonl"), key.partition("-")[0])
    other.open(force=False)
    there = Path("out.jsonl").read_text("utf-8")
    for option in ((), ("--force",)):
        refused = batch(CSV, "--output", "out.jsonl", *option)
        assert refused.status == 1
        assert "Another run is writing to out.jsonl" in refused.err
        assert Path("out.jsonl").read_text("utf-8") == there
    other.close()
    assert batch(CSV, "--output", "out.jsonl").status == 0


def test_a_full_disk_is_told_and_what_is_written_stays(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = os.write, []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 2:
            return write(descriptor, data[:20])
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr("app.cli.base.batch_results.os.write", full)
        stopped = batch(CSV, "--output", "out.jsonl")
    assert stopped.status == 1
    assert "out.jsonl cannot be written: No space left on device." in stopped.err
    again = batch(CSV, "--output", "out.jsonl")
    assert again.status == 0
    assert ids(again.lines) == ["a", "b"]
    assert "1 row answered, 1 answered before" in again.err


def test_who_reads_later_gets_a_line_a_minute(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 7.0)
    monkeypatch.setattr("app.cli.base.output.time", SimpleNamespace(monotonic=lambda: next(clock)))
    result = batch("text\n" + "So?\n" * 20)
    lines = [line for line in result.err.splitlines() if "/20 " in line]
    assert [line.partition("/")[0] for line in lines] == ["pml: 8", "pml: 17"]
    assert "rows/" in lines[0]


def test_a_studio_of_the_environment_is_left_alone(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PML_SERVER", "http://127.0.0.1:7860")
    assert batch(CSV).status == 0


def test_progress_tells_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("app.cli.commands.batch.time", SimpleNamespace(monotonic=lambda: now))
    broken, seen = Tally(total=100), []
    now += 1
    broken.failed = 50
    broken.told(lambda *how: seen.append(how))
    assert seen == [(50, 100, "50 failed")], "rows that fail at once tell nothing of the others"
    tally, told = Tally(total=100, kept=40), []
    tally.told(lambda *how: told.append(how))
    now += 30
    tally.answered, tally.failed = 9, 1
    tally.told(lambda *how: told.append(how))
    assert told == [(40, 100, "answering"), (50, 100, "1 failed, 18.0 rows/min, 2 min 47 s left")]
    assert tally.summary("") == "9 rows answered, 1 failed, 40 answered before; 30 s, 18.0 rows/min."
    now += 36_000
    unknown = Tally(total=None, answered=1, started=now - 7_200)
    unknown.told(lambda *how: told.append(how))
    assert told[-1] == (1, 2, "0.5 rows/h")
    assert unknown.summary(", in x") == "1 row answered, in x; 2 h 0 min, 0.5 rows/h."


def test_force_does_not_take_the_output_from_a_run_that_writes_to_it(batch: Batch) -> None:
    pytest.importorskip("fcntl")
    other = Results(Path("out.jsonl"), "0" * 16)
    other.open(force=False)
    other.write(Row(2, "theirs"), {})
    refused = batch(CSV, "--output", "out.jsonl", "--force")
    other.finish(in_order=True)
    assert refused.status == 1
    assert "Another run is writing to out.jsonl" in refused.err
    assert ids(lines_in("out.jsonl")) == ["theirs"]
    assert batch(CSV, "--output", "out.jsonl", "--force").status == 0


def test_an_output_is_taken_until_it_is_in_order_and_read_only_once_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fcntl = pytest.importorskip("fcntl")
    path, writing = Path("out.jsonl"), atomic.writing
    one, other = Results(path, "0" * 16), Results(path, "0" * 16)
    one.open(force=False)
    for line in (3, 2):
        one.write(Row(line, line), {})

    def in_the_midst(*given: Any, **named: Any) -> Any:
        with pytest.raises(FileWriteError, match="Another run is writing"):
            other.open(force=False)
        return writing(*given, **named)

    monkeypatch.setattr(atomic, "writing", in_the_midst)
    flock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        """The other run has opened the file as it was, and gets it when the first has put it in order."""
        monkeypatch.setattr(fcntl, "flock", flock)
        one.finish(in_order=True)
        flock(descriptor, how)

    third = Results(path, "0" * 16)
    monkeypatch.setattr(fcntl, "flock", late)
    third.open(force=False)
    third.write(Row(4, 4), {})
    third.close()
    assert ids(lines_in("out.jsonl")) == [2, 3, 4]


@pytest.mark.parametrize(
    "theirs", ['{"my": "own"}', "a note", '{"id": 1, "key": "another-1"}', "[" * 100_000]
)
def test_a_file_of_one_line_without_its_end_is_no_output_that_was_cut_off(batch: Batch, theirs: str) -> None:
    Path("out.jsonl").write_text(theirs, encoding="utf-8")
    refused = batch(CSV, "--output", "out.jsonl")
    assert refused.status == 1
    assert "use --force to replace it" in refused.err
    assert Path("out.jsonl").read_text("utf-8") == theirs


@pytest.mark.parametrize("left", ["", '{"id": "a", "ke', '{"id": "a"\0\0'])
def test_what_is_left_of_a_first_line_is_gone_on_from(batch: Batch, left: str) -> None:
    Path("out.jsonl").write_text(left, encoding="utf-8")
    assert batch(CSV, "--output", "out.jsonl").status == 0
    assert ids(lines_in("out.jsonl")) == ["a", "b"]


def test_the_output_may_not_be_what_standard_input_is_read_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("rows.csv").write_text(CSV, encoding="utf-8")
    with Path("rows.csv").open(encoding="utf-8") as rows:
        monkeypatch.setattr("sys.stdin", rows)
        assert is_standard_input(Path("rows.csv"))
        assert not is_standard_input(Path("out.jsonl"))
