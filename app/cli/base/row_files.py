"""Files with all rows of a batch, written at its end: a CSV table, and the files of evaluation tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.batch.batch_table import GUARDED, columns_of, table_text
from app.cli.base.files import require_place, save
from app.cli.base.output import say
from engine.rows.evaluations import CONFIG, FILES, ITEMS, RESULTS, Evaluation, Tool
from engine.rows.rows import Row

_BEGINS = {  # starts of our files; only such files are replaced without --force
    CONFIG: b'{\n "description": ',
    RESULTS: b'{\n "results": {\n  "version": 3',
    ITEMS: b'{"datasetName": ',
}
_TABLE = "\ufeffid,line,picks,".encode()
_KEPT = ("text", "ttft_ms", "tokens")


@dataclass
class RowFiles:
    """Collects the rows of a batch.

    Attributes:
        table: the CSV file; None for none.
        exports: tools for evaluation, each with its folder.
        whole: whether whole lines are wanted, even without a file.
    """

    table: Path | None
    exports: Sequence[tuple[Tool, Path]]
    whole: bool = False
    _rows: dict[int, tuple[Row, Mapping[str, Any]]] = field(default_factory=dict)
    _kept: dict[str, Row] = field(default_factory=dict)

    @property
    def wanted(self) -> bool:
        """Whether the lines of rows are wanted at the end."""
        return self.whole or self.table is not None or bool(self.exports)

    def require_places(self, *, force: bool) -> None:
        """Raises FileWriteError if a file is not writable, or is not ours and `force` is not set."""
        for path, begins in self._places():
            require_place(path, force=force or _is_ours(path, begins))

    def paths(self) -> list[Path]:
        """Returns all files."""
        return [path for path, _ in self._places()]

    def add(self, row: Row, told: Mapping[str, Any]) -> None:
        """Adds a row with its output line."""
        if self.whole:
            self._rows[row.line] = row, told
        elif self.wanted:
            sides = {side: told[side] for side in ("cached", "uncached") if side in told}
            small = {side: {name: answer[name] for name in _KEPT} for side, answer in sides.items()}
            self._rows[row.line] = row, {**told, **small}

    def keep(self, row: Row) -> None:
        """Adds a row whose output line is from an earlier run."""
        self._kept[str(row.id)] = row

    def read_kept(self, output: Path | None) -> None:
        """Reads the lines of an earlier run from the output."""
        if output is None or not self._kept or not self.wanted:
            return
        with output.open(encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                if "error" not in line and (row := self._kept.get(str(line["id"]))) is not None:
                    self.add(row, line)

    def rows(self) -> list[tuple[Row, Mapping[str, Any]]]:
        """Returns all rows with their output lines, in order."""
        return [self._rows[line] for line in sorted(self._rows)]

    def write_table(self, held: Sequence[Mapping[str, Any]]) -> None:
        """Writes the table; `held` has the modules and settings of each row."""
        if self.table is None:
            return
        columns = (columns_of(*one, of) for one, of in zip(self.rows(), held, strict=True))
        text, guarded = table_text(columns)
        save(self.table, text, force=True)
        say(f"pml: All rows are also in {self.table}.{f' {GUARDED}' if guarded else ''}", err=True)

    def write_exports(self, evaluation: Evaluation) -> None:
        """Writes the files of the tools."""
        for tool, folder in self.exports:
            texts, notes = evaluation.files(tool)
            for name, text in texts.items():
                save(folder / name, text, force=True)
            written = f"pml: {' and '.join(texts)} for {tool} in {folder}."
            say(" ".join([written, *notes]), err=True)

    def _places(self) -> list[tuple[Path, bytes]]:
        table = [] if self.table is None else [(self.table, _TABLE)]
        return table + [
            (folder / name, _BEGINS[name]) for tool, folder in self.exports for name in FILES[tool]
        ]


def _is_ours(path: Path, begins: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(begins)) == begins
    except OSError:
        return False
