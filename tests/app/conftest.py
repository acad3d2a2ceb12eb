"""Calling `pml` as a terminal does, inside the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.command import main


@pytest.fixture
def run_pml(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Runs `pml` with some words: its status, and what it wrote to standard output and standard error."""

    def call(*arguments: str | Path) -> SimpleNamespace:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=left.value.code, out=captured.out, err=captured.err)

    return call
