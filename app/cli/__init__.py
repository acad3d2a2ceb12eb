"""The command line `pml`: one file per command, words for every fault, JSON where a program reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `pml` and exits with its status.

    Args:
        arguments: the words after `pml`; those of the process by default.

    Raises:
        SystemExit: always, with the status.
    """
    try:
        # Here, because a Ctrl-C is not to show where an import was when it came.
        from app.cli.command import main as run

        run(arguments)
    except KeyboardInterrupt:
        sys.exit(130)
