"""Calls `python -m benchmarks` inside the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from app.cli.command import main
from benchmarks.__main__ import NAME, bench
from tests.engine.tiny import save_tiny


@pytest.fixture
def run_bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Runs a command: its status, standard output and standard error."""

    def call(*arguments: object) -> SimpleNamespace:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments], bench, NAME)
        captured = capsys.readouterr()
        return SimpleNamespace(status=left.value.code, out=captured.out, err=captured.err)

    return call


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("bench-model") / "model"))
