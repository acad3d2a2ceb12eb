"""`pml decide --batch`: decisions for each row of a file, and figures for the rows with right answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.batch.batch_table import table_text
from app.batch.decided_rows import labelled, reports, row_columns, with_gold
from app.cli.base.documents import Document
from app.cli.base.files import save
from app.cli.base.map_options import NO_MAPS, MapOptions, say_used
from app.cli.base.options import ModelOptions
from app.cli.base.output import say
from app.cli.commands.batch import Batch, Deciding, answer_batch
from app.cli.decisions.tables import confusion_table
from engine.base.events import Side
from engine.decisions.questions import Question, titles
from engine.decisions.readout import Readout
from engine.decisions.report import LEAST_ROWS, fit
from engine.inference.run_settings import RunSettings
from engine.pml import Schema
from engine.rows.rows import Row

if TYPE_CHECKING:
    from engine import Engine, PreparedPrompt
    from engine.maps.reuse import MapReuse

_SHOWN = 3  # rows with an unknown right answer on the terminal


@dataclass
class RowDecisions:
    """Answers the same questions about many prompts.

    Attributes:
        questions: the questions.
        readout: how the probabilities are read.
        sides: the sides that answer.
        table: a CSV file for all rows; None for none.
        fits: whether a temperature is fitted.
        map_choice: which attention maps the cached side reads.
        maps: these maps, after the first row.
        figures: the report of each question by side and name, after the last row.
    """

    questions: Sequence[Question]
    readout: Readout
    sides: Sequence[Side]
    table: Path | None
    fits: bool
    map_choice: MapOptions = NO_MAPS
    maps: MapReuse | None = field(default=None, init=False)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def decide(self, engine: Engine, prompt: PreparedPrompt, settings: RunSettings) -> dict[str, Any]:
        """Returns the line of a row."""
        if self.maps is None:
            self.maps = self.map_choice.open(engine.model)
        line: dict[str, Any] = {}
        for side in self.sides:
            decided = prompt.decide(self.questions, self.readout, settings, mode=side, maps=self.maps)
            line[side] = decided.to_json()
            del line[side]["segments"]
        return line

    def finish(self, rows: Sequence[tuple[Row, Mapping[str, Any]]]) -> None:
        """Writes the table, and reports the figures of the rows with right answers."""
        if self.table is not None:
            text, _ = table_text(row_columns(self.questions, row, line) for row, line in rows)
            save(self.table, text, force=True)
            say(f"pml: All rows are also in {self.table}.", err=True)
        names = titles(self.questions)
        lost = sorted({name for row, _ in rows for name in row.gold} - {"", *names})
        if lost and (len(names) > 1 or any(len(row.gold) > 1 for row, _ in rows)):
            say(f"pml: no question is named {' or '.join(map(repr, lost))}, as gold columns are.", err=True)
        for at, (title, question) in enumerate(zip(names, self.questions, strict=True)):
            self._report(at, title, question, rows)

    def _report(
        self, at: int, title: str, question: Question, rows: Sequence[tuple[Row, Mapping[str, Any]]]
    ) -> None:
        labels = [label.strip() for label in question.labels]
        gold, unknown = with_gold(self.questions, at, rows)
        for row, name in unknown[:_SHOWN]:
            fault = f"line {row.line}: gold {name!r} is no option of {title!r}"
            say(f"pml: {fault}, so the row is not in the figures.", err=True)
        if len(unknown) > _SHOWN:
            say(f"pml: and {len(unknown) - _SHOWN} more such rows.", err=True)
        if self.fits and len(gold) < LEAST_ROWS:
            say(
                f"pml: {title}: --fit-temperature needs at least {LEAST_ROWS} labelled rows, and there are "
                f"{len(gold)}.",
                err=True,
            )
        for side, figures in reports(self.questions, at, gold).items():
            found = figures.to_json()
            lines = [
                f"{title}, {side}: accuracy {figures.accuracy:.1%}, macro F1 {figures.macro_f1:.3f}, "
                f"calibration error {figures.ece:.3f}"
            ]
            if self.readout.permutations > 1:
                lines[0] += f", {figures.order_flips:.1%} of orders flip the answer"
            lines.append(confusion_table(labels, figures.confusion))
            if self.fits and len(gold) >= LEAST_ROWS:
                fitted = fit(labelled(gold, side, at), self.readout.temperature)
                found["fit"] = fitted.to_json()
                what = f"--temperature {fitted.temperature:.3g}"
                lines.append(
                    f"{what if fitted.helps else f'No temperature helps. {what}'}, fitted on "
                    f"{fitted.fitted_on} rows: calibration error {fitted.ece_before:.3f} before and "
                    f"{fitted.ece_after:.3f} after, on {fitted.held_out} other rows"
                )
            self.figures.setdefault(side, {})[title] = found
            say("\n".join(lines), err=True)


def decide_rows(
    job: RowDecisions,
    path: str,
    schema: Document[Schema],
    settings: RunSettings,
    options: ModelOptions,
    output: Path | None,
    over: str | None,
    *,
    force: bool,
) -> int:
    """Answers for each row of a file; returns the exit status.

    Args:
        job: the questions.
        path: the file of rows, or `-`.
        schema: the schema of all rows.
        settings: scope, repair and placement.
        options: the model.
        output: the file of the lines, which an interruption keeps; None for standard output.
        over: a prompt that rows change; None for independent rows.
        force: replace existing files.
    """
    chosen = job.map_choice
    of_maps = [str(chosen.folder), chosen.threshold] if chosen.folder else []
    digest = json.dumps([[asdict(one) for one in job.questions], asdict(job.readout), *of_maps])
    mode: Any = "both" if len(job.sides) > 1 else job.sides[0]
    batch = Batch(
        path,
        schema,
        settings,
        mode,
        output,
        False,
        force,
        over,
        table=job.table,
        deciding=Deciding(job.decide, job.finish, digest),
    )
    status, _ = answer_batch(batch, options)
    if job.maps is not None:
        say_used(job.maps)
    return status
