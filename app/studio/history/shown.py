"""Shows a stored run in the panes, and reopens its schema."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from app.studio.history.compare import with_difference
from app.studio.history.record import Record, asked
from app.studio.runs.run_frame import RunFrame
from app.studio.web.digests import digest, digest_of_schema
from engine.pml import parse_schema, reads_files
from engine.pml.edit.writer import self_contained, written_alike

_GONE = "The files that this schema reads are missing or unreadable"
_CHANGED = "The files that this schema reads have changed since this run"
_AS_THEN = "The schema opens with the text that the files had then."


class Reopened(NamedTuple):
    """The schema of a stored run: its text, its origin, and a note for the user."""

    schema: str
    origin: str
    told: str = ""


def shown(record: Record, open_schema: str = "") -> RunFrame:
    """Returns a run's final frame with recomputed fields.

    Args:
        record: the run.
        open_schema: the schema in the editor. The run also belongs to it if it equals the run's schema with
            files inlined.
    """
    frame = with_difference(record.told)
    of = frame["of"]
    schema = of["schema"] or digest(record.schema)
    if record.contained and open_schema == record.contained:
        schema = digest_of_schema(open_schema, parse_schema(open_schema).tree)
    return {
        **frame,
        "kept": record.id,
        "question": frame["question"] or asked(record.prompt, parse_schema(record.whole).tree),
        "of": {**of, "schema": schema, "prompt": of["prompt"] or digest(record.prompt)},
    }


def reopened(record: Record, base: Path | None) -> Reopened:
    """Returns a run's schema: the original if its files are unchanged, else with files inlined.

    Args:
        record: the run.
        base: the folder of its files; None if there is none.
    """
    written = Reopened(record.schema, record.origin)
    if not reads_files(record.schema):
        return written
    today = parse_schema(record.schema, base=base)
    why = _CHANGED if today.ok else _GONE
    if record.contained:
        then = parse_schema(record.contained).tree
        alike = (
            today.tree is not None and then is not None and written_alike(self_contained(today.tree), then)
        )
        return written if today.ok and alike else Reopened(record.contained, "", f"{why}. {_AS_THEN}")
    of = record.told["of"]["schema"]
    if not of or (today.ok and of == digest_of_schema(record.schema, today.tree)):
        return written
    return written._replace(told=f"{why}, and their earlier text was not stored.")
