"""Paths that lead to no file: every command that reads a document says so, and waits for nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

SCHEMA = '<schema name="a"><module name="m">text</module></schema>'
Pml = Callable[..., SimpleNamespace]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe that is closed as soon as somebody reads it: a reader that waits fails, and does not hang."""
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: os.close(os.open(path, os.O_WRONLY)))
    writer.start()
    yield path
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer.join()
    os.close(descriptor)


@pytest.mark.parametrize(
    "command",
    [
        ("check", "PIPE"),
        ("check", "LINK"),
        ("check", "SCHEMA", "--schema", "PIPE"),
        ("format", "PIPE"),
        ("format", "--write", "PIPE"),
        ("layout", "PIPE"),
        ("run", "--schema", "SCHEMA", "PIPE"),
        ("export", "PIPE", "--to", "pml"),
        ("export", "SCHEMA", "--to", "text", "--prompt", "PIPE"),
        ("import", "PIPE"),
        ("bench", "quality", "PIPE"),
    ],
)
def test_a_pipe_is_refused_in_words(
    run_pml: Pml, pipe: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "a.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "link").symlink_to(pipe)
    paths = {"PIPE": pipe, "SCHEMA": tmp_path / "a.pml", "LINK": tmp_path / "link"}
    refused = run_pml(*(paths.get(word, word) for word in command))
    assert refused.status == 1
    assert "is no plain file" in refused.err
    assert pipe.is_fifo()


def test_what_the_shell_holds_open_is_read() -> None:
    words = f"{sys.executable} -m app check <(printf '<schema name=\"a\">text</schema>')"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "schema, ok" in done.stdout
