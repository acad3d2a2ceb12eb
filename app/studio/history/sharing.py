"""Runs as one file for somebody else: JSON, or a page that opens without the studio and holds that JSON."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, NoReturn

from app.studio.history.frames import LONGEST_TEXT
from app.studio.history.record import Record, require_label
from app.studio.history.report import DATA_ID, report
from app.studio.web.digests import reads_files
from engine.base.errors import PromptCacheError

WHAT = "prompt_cache_studio"
WHOLE = "schema_with_files"  # earlier studios leave it out, and pass over it
VERSION = 1
LONGEST_FILE = 16 << 20
MOST_RUNS = 1000
_OPENING, _END = f'<script type="application/json" id="{DATA_ID}">', "</script>"
_ID = re.compile(r"[0-9a-f]{32}")


def for_others(record: Record) -> Record:
    """A run as it is shared: without what only this machine knows, such as the folder of the model."""
    told = record.told
    model = {**told["model"], "name": _last(told["model"]["name"])}
    return replace(record, frame={**told, "model": model}, origin="")


def to_json(records: Sequence[Record]) -> str:
    """Runs as JSON; `from_text` reads them again."""
    runs = [
        {
            "id": record.id,
            "name": record.name,
            "note": record.note,
            "schema": record.schema,
            **({WHOLE: record.contained} if record.contained else {}),
            "prompt": record.prompt,
            "frame": record.told,
        }
        for record in map(for_others, records)
    ]
    return json.dumps({WHAT: "runs", "version": VERSION, "runs": runs}, indent=1, allow_nan=False)


def to_html(records: Sequence[Record]) -> str:
    """Runs as a page without scripts and references; `from_text` reads them again."""
    return report([for_others(record) for record in records], to_json(records))


def from_text(text: str, name: str) -> list[Record]:
    """Reads the runs of a file that anybody may have written.

    Args:
        text: content of the file, JSON or a page.
        name: its name, for what there is to say.

    Raises:
        PromptCacheError: it is too large, holds no runs, or one of them is none.
    """
    if len(text) > LONGEST_FILE:
        raise PromptCacheError(
            f"{name!r} is larger than the {LONGEST_FILE >> 20} MiB that are read. Share fewer runs in a file."
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
            f"{name!r} is of version {reprlib.repr(version)}, and this studio reads {VERSION}. "
            "Use a newer studio."
        )
    if len(runs) > MOST_RUNS:
        raise PromptCacheError(f"{name!r} holds {len(runs)} runs; {MOST_RUNS} are read at most.")
    return [_record(run, f"Run {number} of {name!r}") for number, run in enumerate(runs, 1)]


def _record(sent: object, which: str) -> Record:
    run: Mapping[str, Any] = sent if isinstance(sent, dict) else {}
    for field in ("schema", WHOLE, "prompt", "name", "note"):
        text = run.get(field, None if field in ("schema", "prompt") else "")
        if not isinstance(text, str):
            raise PromptCacheError(f"{which} has no {field} that is a text. Nothing was imported.")
        if len(text) > LONGEST_TEXT and field != WHOLE:  # which no single file has to hold
            raise PromptCacheError(f"The {field} of {which} is too long. Nothing was imported.")
    name, note = run.get("name", ""), run.get("note", "")
    try:
        require_label(name, note)
    except PromptCacheError as error:
        raise PromptCacheError(f"{which}: {error} Nothing was imported.") from None
    told = Record(run["schema"], run["prompt"], run.get("frame") or {}).told
    contained = run.get(WHOLE, "") if reads_files(run["schema"]) else ""
    found = Record(run["schema"], run["prompt"], dict(told), name, note, contained=contained)
    given = run.get("id")
    return replace(found, id=given) if isinstance(given, str) and _ID.fullmatch(given) else found


def _last(name: str) -> str:
    """The last part of a path, or a name as it is."""
    return PurePath(name).name if PurePath(name).is_absolute() else name


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse(name: str) -> NoReturn:
    raise PromptCacheError(
        f"{name!r} holds no runs of the studio. Choose a file that Share made, JSON or HTML. Nothing was "
        "imported."
    )
