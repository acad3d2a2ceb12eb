"""Standard streams that are closed, or that nobody reads on: any command ends quietly."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from app.cli.base.output import progress_bar, say
from app.cli.base.streams import UNREAD
from app.cli.command import main

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = '<schema name="a"><module name="m">text</module></schema>'
PRINTING = [
    ("--help",),
    ("--version",),
    ("cache", "list", "--help"),
    ("check", "a.pml"),
    ("check", "a.pml", "--json"),
    ("format", "a.pml"),
    ("format", "--diff", "a.pml"),
    ("layout", "a.pml"),
    ("layout", "a.pml", "--json"),
    ("run", "--schema", "a.pml", "a.prompt.pml", "--max-new-tokens", "1"),
    ("run", "--schema", "a.pml", "a.prompt.pml", "--max-new-tokens", "1", "--json"),
    ("export", "a.pml", "--to", "python"),
    ("import", "page.j2"),
    ("import", "page.j2", "-o", "page.pml"),
    ("cache", "stats"),
    ("cache", "list", "--json"),
    ("cache", "verify"),
    ("layout", "none.pml", "--json"),  # the fault is an object too
]
COMPLAINING = [("check", "none.pml"), ("layout", "none.pml"), ("nonsense",), ("cache", "unpin", "none")]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "a.prompt.pml").write_text('<prompt schema="a"><m/></prompt>', encoding="utf-8")
    (tmp_path / "page.j2").write_text("Hello", encoding="utf-8")
    monkeypatch.setenv("PML_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield stream


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_output_that_nobody_reads_ends_a_command_quietly(
    words: tuple[str, ...],
    unread: TextIO,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", unread)
    assert ended(*words) == UNREAD
    assert capsys.readouterr().err == ""
    assert Path("page.pml").exists() == ("page.pml" in words), "what was to be written is, and whole"
    if "page.pml" in words:
        assert Path("page.pml").read_text(encoding="utf-8") == '<schema name="page">\n  Hello\n</schema>\n'


@pytest.mark.parametrize("words", COMPLAINING, ids=" ".join)
def test_complaints_that_nobody_reads_end_a_command_quietly(
    words: tuple[str, ...], unread: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", unread)
    assert ended(*words) == UNREAD


PML = f"{sys.executable} -m app"


@pytest.mark.parametrize(
    ("line", "status", "printed"),
    [
        (f"{PML} format big.pml | head -n 1; exit ${{PIPESTATUS[0]}}", UNREAD, '<schema name="a">\n'),
        pytest.param(
            f"{PML} check a.pml --json | true; exit ${{PIPESTATUS[0]}}", None, "", marks=pytest.mark.long
        ),
        (f"{PML} check a.pml 2>&-", 0, "a.pml: schema, ok\n"),
        (f"{PML} check a.pml <&- >&- 2>&-", 0, ""),
        pytest.param(f"{PML} check a.pml >&-", 0, "", marks=pytest.mark.long),
        pytest.param(f"{PML} layout none.pml --json >&- 2>&-", 2, "", marks=pytest.mark.long),
    ],
)
def test_in_a_shell(line: str, status: int | None, printed: str) -> None:
    texts = "".join(f'<module name="m{number}">{"text " * 20}</module>' for number in range(2000))
    Path("big.pml").write_text(f'<schema name="a">{texts}</schema>', encoding="utf-8")
    # Without a buffer Python drops what a pipe did not take at once, and never hears that nobody reads.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == (printed, "")
    assert done.returncode == status if status is not None else done.returncode in (0, UNREAD)


def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    """Else what a library complains of could be written into it."""
    line = (
        f"{sys.executable} -c 'from app.cli.base.streams import stand_in; stand_in(); import os; "
        "print(os.open(os.devnull, os.O_RDONLY) > 2)' 2>&-"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_stops_a_command_as_ctrl_c_does(number: signal.Signals) -> None:
    code = (
        "import signal, sys, time\nfrom app.base import signals\nfrom app.cli import command\n"
        "signals.REPEATED_SECONDS = 60\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have them ignored
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "@command.pml.command()\n"
        "def wait():\n"
        "    try: print('begun', flush=True); time.sleep(60)\n"
        "    finally: print('ending', flush=True); sys.stdin.read(); print('ended', flush=True)\n"
        "command.main(['wait'])\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stdout.readline() == "ending\n"
        if number != signal.SIGINT:  # a group gets it twice
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert out == "ended\n"
    assert process.returncode == 128 + number
    told = "pml: interrupted" if number == signal.SIGINT else f"pml: stopped by {number.name}"
    assert err.strip() == told


FULL = Path("/dev/full")  # a disk without room, where the system has one


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
@pytest.mark.parametrize(
    "words",
    ["check a.pml", "check a.pml --json", "format a.pml", "cache stats", "layout none.pml --json"],
)
def test_a_full_disk_under_standard_output_is_an_error(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FULL.open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert ended(*words.split()) == 1
    errors = [one for one in capsys.readouterr().err.splitlines() if "none.pml" not in one]
    assert errors == ["pml: Standard output cannot be written: No space left on device."]
    with FULL.open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", full)
        assert ended(*words.split()) == 1


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
def test_a_full_disk_is_one_error_of_a_process() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    line = f"{PML} check a.pml > {FULL}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == "pml: Standard output cannot be written: No space left on device.\n"
    assert done.returncode == 1


@pytest.mark.parametrize("module", ["click", "app.cli.command"])
def test_an_interrupt_while_the_command_is_loaded_ends_it_quietly(module: str) -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "import app.__main__\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, printing: Callable[[], None]) -> str:
    """What a terminal is sent that is standard output and standard error."""
    reading, writing = pty.openpty()
    with os.fdopen(reading, "rb", 0) as received, os.fdopen(writing, "w", encoding="utf-8") as stream:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            printing()
        print("end", file=stream, flush=True)
        sent = b""
        while not sent.endswith(b"end\r\n"):
            sent += received.read(4096)
    return sent.removesuffix(b"end\r\n").decode()


@pytest.mark.parametrize(
    ("variable", "value", "seen"),
    [
        ("TERM", "xterm", "plain\r\n\x1b[1mbold\x1b[0m\r\n"),
        ("NO_COLOR", "1", "plain\r\nbold\r\n"),
        ("NO_COLOR", "", "plain\r\n\x1b[1mbold\x1b[0m\r\n"),
        ("TERM", "dumb", "plain\r\nbold\r\n"),
    ],
)
def test_a_terminal_gets_no_more_escape_sequences_than_it_wants(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, seen: str
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)

    def printing() -> None:
        say("plain")
        say("bold", bold=True)

    assert on_a_terminal(monkeypatch, printing) == seen


def test_a_dumb_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    def printing() -> None:
        with progress_bar() as progress:
            progress(1, 2, "half")
        say("done", err=True)

    assert on_a_terminal(monkeypatch, printing) == "done\r\n"
