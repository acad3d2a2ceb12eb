"""The command line `pml`: one file per command, plain error messages, and JSON output for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `pml` and raises SystemExit with its status; arguments are those of the process by default."""
    try:
        # Import late, so that Ctrl-C during the import shows no traceback.
        from app.cli.command import main as run

        run(arguments)
    except KeyboardInterrupt:
        sys.exit(130)
