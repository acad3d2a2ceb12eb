"""Calling `pml` as a terminal does, inside the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.command import main
from tests.app.studio_server import Served


@pytest.fixture
def run_pml(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Runs `pml` with some words: its status, and what it wrote to standard output and standard error."""

    def call(*arguments: str | Path) -> SimpleNamespace:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=left.value.code, out=captured.out, err=captured.err)

    return call


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One running studio for all tests that ask over HTTP."""
    server = Served(tmp_path_factory.mktemp("studio"))
    yield server
    server.stop()
