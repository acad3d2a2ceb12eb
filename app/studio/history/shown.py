"""A kept run as the panes show it, as it was told when it was over; its schema as it can be opened again."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from app.studio.history.record import Record
from app.studio.runs.differences import word_difference
from app.studio.runs.run_frame import RunFrame
from app.studio.web.digests import digest, digest_of_schema, reads_files
from engine.pml import parse_schema
from engine.pml.edit.writer import self_contained, written_alike

_GONE = "The files that this schema takes parts from are not here, or cannot be read"
_CHANGED = "The files that this schema takes parts from have changed since this run"
_AS_THEN = "What is open is the text of the run: the schema with what they said then."


class Reopened(NamedTuple):
    """The schema of a kept run as it is opened: its text, its origin, and what there is to say of it."""

    schema: str
    origin: str
    told: str = ""


def shown(record: Record, open_schema: str = "") -> RunFrame:
    """The last frame of a run, with what is not kept as it follows from the rest.

    Args:
        record: the run.
        open_schema: the schema that stands in the editor; the run belongs to it as well where it is the run's
            own with the text of its files.
    """
    told = record.told
    cached, uncached = (told["sides"][side]["text"] for side in ("cached", "uncached"))
    of = told["of"]
    schema = of["schema"] or digest(record.schema)
    if record.contained and open_schema == record.contained:
        schema = digest_of_schema(open_schema, parse_schema(open_schema).tree)
    return {
        **told,
        "of": {**of, "schema": schema, "prompt": of["prompt"] or digest(record.prompt)},
        "difference": word_difference(cached, uncached) if cached and uncached else None,
    }


def reopened(record: Record, base: Path | None) -> Reopened:
    """The schema of a run: as it was written where its files say what they said then, else with their text.

    Args:
        record: the run.
        base: the folder that its files are read from; None where there is none.
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
    return written._replace(told=f"{why}, and what they said then was not kept.")
