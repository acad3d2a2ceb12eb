"""Exports runs as JSON, or as an HTML page that includes this JSON."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, NoReturn

from app.studio.history.frames import LONGEST_TEXT
from app.studio.history.ratings import read_ratings, unrated
from app.studio.history.record import Record, require_label
from app.studio.history.report import DATA_ID, report
from engine.base.errors import PromptCacheError
from engine.pml import reads_files

WHAT = "prompt_cache_studio"
WHOLE = "schema_with_files"  # earlier versions ignore it
VERSION = 1
LONGEST_FILE = 16 << 20
MOST_RUNS = 1000
_OPENING, _END = f'<script type="application/json" id="{DATA_ID}">', "</script>"
_ID = re.compile(r"[0-9a-f]{32}")


def for_others(record: Record) -> Record:
    """Returns a run without private data, such as the model's folder."""
    frame = record.told
    model = {**frame["model"], "name": _last(frame["model"]["name"])}
    return replace(record, frame={**frame, "model": model}, origin="")


def to_json(records: Sequence[Record]) -> str:
    """Returns runs as JSON for `from_text`."""
    runs = [
        {
            "id": record.id,
            "name": record.name,
            "note": record.note,
            "schema": record.schema,
            **({WHOLE: record.contained} if record.contained else {}),
            **({"ratings": record.ratings} if record.ratings != unrated() else {}),
            **({"linked": record.linked} if record.linked else {}),
            "prompt": record.prompt,
            "frame": record.told,
        }
        for record in map(for_others, records)
    ]
    return json.dumps({WHAT: "runs", "version": VERSION, "runs": runs}, indent=1, allow_nan=False)


def to_html(records: Sequence[Record]) -> str:
    """Returns runs as a standalone HTML page for `from_text`."""
    return report([for_others(record) for record in records], to_json(records))


def from_text(text: str, name: str) -> list[Record]:
    """Reads runs from an untrusted file.

    Args:
        text: the file's content, JSON or HTML.
        name: the file's name, for messages.

    Raises:
        PromptCacheError: the file is too large, has no runs, or a run is not valid.
    """
    if len(text) > LONGEST_FILE:
        raise PromptCacheError(
            f"{name!r} is larger than the limit of {LONGEST_FILE >> 20} MiB. Share fewer runs in a file."
        )
    if text.lstrip().startswith("<"):
        _, opening, rest = text.partition(_OPENING)
        text, end, _ = rest.partition(_END)
        if not opening or not end:
            _refuse(name)
    try:
        sent = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        _refuse(name)
    runs = sent.get("runs") if isinstance(sent, dict) and sent.get(WHAT) == "runs" else None
    if not isinstance(runs, list):
        _refuse(name)
    version = sent.get("version")
    if version != VERSION:
        raise PromptCacheError(
            f"{name!r} has version {reprlib.repr(version)}, but this studio reads version {VERSION}. "
            "Use a newer studio."
        )
    if len(runs) > MOST_RUNS:
        raise PromptCacheError(f"{name!r} has {len(runs)} runs, but at most {MOST_RUNS} can be imported.")
    return [_record(run, f"Run {number} of {name!r}") for number, run in enumerate(runs, 1)]


def _record(sent: object, which: str) -> Record:
    run: Mapping[str, Any] = sent if isinstance(sent, dict) else {}
    for field in ("schema", WHOLE, "prompt", "name", "note"):
        text = run.get(field, None if field in ("schema", "prompt") else "")
        if not isinstance(text, str):
            raise PromptCacheError(f"{which} has no {field} that is text. Nothing was imported.")
        if len(text) > LONGEST_TEXT and field != WHOLE:  # the schema with files may be longer than one file
            raise PromptCacheError(f"The {field} of {which} is too long. Nothing was imported.")
    name, note = run.get("name", ""), run.get("note", "")
    try:
        require_label(name, note)
    except PromptCacheError as error:
        raise PromptCacheError(f"{which}: {error} Nothing was imported.") from None
    frame = Record(run["schema"], run["prompt"], run.get("frame") or {}).told
    contained = run.get(WHOLE, "") if reads_files(run["schema"]) else ""
    record = Record(run["schema"], run["prompt"], dict(frame), name, note, contained=contained)
    ids = {field: run[field] for field in ("id", "linked") if isinstance(run.get(field), str)}
    valid = {field: value for field, value in ids.items() if _ID.fullmatch(value)}
    return replace(record, ratings=read_ratings(run.get("ratings")), **valid)


def _last(name: str) -> str:
    """Returns the last part of a path."""
    return PurePath(name).name if PurePath(name).is_absolute() else name


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse(name: str) -> NoReturn:
    raise PromptCacheError(
        f"{name!r} has no runs of the studio. Choose a file that Share created, JSON or HTML. Nothing "
        "was imported."
    )
