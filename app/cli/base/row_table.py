"""The table of a batch that `--csv` asks for: a line for each row, as the studio's Batch page saves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.batch.batch_table import GUARDED, columns_of, table_text
from app.cli.base.files import require_place, save
from app.cli.base.output import say
from engine.rows.rows import Row

_BEGINS = "\ufeffid,line,picks,".encode()  # every table of ours, whose file may be replaced


class RowTable:
    """What is told of each row, until all are there.

    Args:
        path: the file.
        force: replace a file that is no table of a batch.

    Raises:
        FileWriteError: it cannot be written.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                force = force or file.read(len(_BEGINS)) == _BEGINS
        except OSError:
            pass
        require_place(path, force=force)
        self._rows: dict[int, dict[str, Any]] = {}
        self._kept: dict[str, Row] = {}

    def add(self, row: Row, told: Mapping[str, Any]) -> None:
        """Takes a row with what its line in the output says."""
        self._rows[row.line] = columns_of(row, told)

    def keep(self, row: Row) -> None:
        """Takes a row whose line is in the output from before."""
        self._kept[str(row.id)] = row

    def write(self, output: Path | None) -> None:
        """Writes the table.

        Args:
            output: where the lines of rows are that were kept.

        Raises:
            FileWriteError: it cannot be written.
        """
        if output is not None and self._kept:
            with output.open(encoding="utf-8") as lines:
                for told in map(json.loads, lines):
                    if "error" not in told and (row := self._kept.get(str(told["id"]))) is not None:
                        self.add(row, told)
        text, guarded = table_text(self._rows[line] for line in sorted(self._rows))
        save(self.path, text, force=True)
        say(f"pml: All rows are in {self.path} too.{f' {GUARDED}' if guarded else ''}", err=True)
