"""The CSV table of a batch, in the format of the studio's Batch page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.batch.batch_table import GUARDED, columns_of, table_text
from app.cli.base.files import require_place, save
from app.cli.base.output import say
from engine.rows.rows import Row

_BEGINS = "\ufeffid,line,picks,".encode()  # start of every table; only such files are replaced


class RowTable:
    """Collects the rows of a table. Without `force` it replaces only a file that is such a table.

    Args:
        path: the file.
        held_by: returns the modules and settings of a row.
        force: replace any file.

    Raises:
        FileWriteError: the file is not writable.
    """

    def __init__(self, path: Path, held_by: Callable[[Row], Mapping[str, Any]], *, force: bool) -> None:
        self.path, self._held_by = path, held_by
        try:
            with path.open("rb") as file:
                force = force or file.read(len(_BEGINS)) == _BEGINS
        except OSError:
            pass
        require_place(path, force=force)
        self._rows: dict[int, dict[str, Any]] = {}
        self._kept: dict[str, Row] = {}

    def add(self, row: Row, told: Mapping[str, Any]) -> None:
        """Adds a row with its output line."""
        self._rows[row.line] = columns_of(row, told, self._held_by(row))

    def keep(self, row: Row) -> None:
        """Adds a row whose output line is from an earlier run."""
        self._kept[str(row.id)] = row

    def write(self, output: Path | None) -> None:
        """Writes the table, with earlier lines from `output`; raises FileWriteError if it fails."""
        if output is not None and self._kept:
            with output.open(encoding="utf-8") as lines:
                for line in map(json.loads, lines):
                    if "error" not in line and (row := self._kept.get(str(line["id"]))) is not None:
                        self.add(row, line)
        text, guarded = table_text(self._rows[line] for line in sorted(self._rows))
        save(self.path, text, force=True)
        say(f"pml: All rows are also in {self.path}.{f' {GUARDED}' if guarded else ''}", err=True)
