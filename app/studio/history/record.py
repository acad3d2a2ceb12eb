"""A stored run: its two documents, its final frame, and the user's name and note."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from typing_extensions import TypedDict

from app.studio.documents.samples import gist
from app.studio.history.frames import read_frame
from app.studio.history.measurements import FidelitySummary, summary_of
from app.studio.history.ratings import LONGEST_NOTE, Ratings, ratings_of, unrated
from app.studio.runs.payback import apart
from app.studio.runs.run_frame import ModelOfRun, RunFrame
from engine.base.errors import PromptCacheError
from engine.pml import Schema
from engine.pml.edit.prompt_source import PromptEditError
from engine.pml.edit.question_text import question_of
from engine.pml.edit.writer import WriteError, self_contained, write_schema

LONGEST_NAME = 200


class StagesOfSides(TypedDict):
    """The stages of the time to first token, per side."""

    cached: dict[str, float]
    uncached: dict[str, float]


class RunSummary(TypedDict):
    """A run in a list. Times in milliseconds; `clear` if the timings of both sides differ clearly.

    `digest` is that of the schema's text.
    `scope` and `repair` are the cached side's; `reuse` is the reason of automatic reuse. `kl` is the mean per
    token in nats, from a measurement or else from a check. `linked` is the run whose prompt another model
    answered here, or "".
    """

    id: str
    started: str
    name: str
    note: str
    schema: str
    digest: str
    model: str
    state: str
    scope: str
    repair: str
    reuse: str
    prompt: str
    cached_ms: float | None
    uncached_ms: float | None
    encode_ms: float | None
    first_ms: float | None
    speedup: float | None
    clear: bool
    stages: StagesOfSides
    fidelity: FidelitySummary | None
    kl: float | None
    ratings: Ratings
    linked: str


@dataclass(frozen=True)
class Record:
    """A stored run.

    Attributes:
        schema: the schema's text.
        prompt: the prompt's text.
        frame: the run's final frame, as JSON.
        name: the user's name for it.
        note: the user's note on it.
        origin: the schema's source in the form of `Workspace.origin`; "" for an imported run.
        contained: the schema with the files that it read; "" if it read none.
        ratings: the user's ratings of both answers.
        linked: the id of the run whose prompt another model answered here; "" if there is none.
        id: 32 hexadecimal digits.
    """

    schema: str
    prompt: str
    frame: Mapping[str, Any]
    name: str = ""
    note: str = ""
    origin: str = ""
    contained: str = ""
    ratings: Ratings = field(default_factory=unrated)
    linked: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def told(self) -> RunFrame:
        """The final frame, with every field of its type."""
        return read_frame(self.frame)

    @property
    def whole(self) -> str:
        """The schema as it ran, independent of later file changes."""
        return self.contained or self.schema

    def summary(self) -> RunSummary:
        """Returns the list form of the run."""
        frame = self.told
        cached, uncached = frame["sides"]["cached"], frame["sides"]["uncached"]
        reuse = frame["reuse"]
        fidelity = summary_of(frame["fidelity"]) if frame["fidelity"] else None
        taken: Mapping[str, Any] = reuse or frame["settings"]
        checked = reuse["kl"] if reuse and reuse["checked"] else None
        return {
            "id": self.id,
            "started": frame["started"],
            "name": self.name,
            "note": self.note,
            "schema": frame["schema"],
            "digest": frame["of"]["schema"],
            "model": model_in_words(frame["model"]),
            "state": frame["state"],
            "scope": str(taken.get("scope", "")),
            "repair": str(taken.get("repair", "")),
            "reuse": reuse["why"] if reuse else "",
            "prompt": in_words(self.prompt),
            "cached_ms": cached["ttft_ms"],
            "uncached_ms": uncached["ttft_ms"],
            "encode_ms": frame["encoding"]["ms"],
            "first_ms": frame["payback"]["first_ms"] if frame["payback"] else None,
            "speedup": frame["comparison"].get("ttft_speedup"),
            "clear": apart(frame["comparison"]),
            "stages": {"cached": cached["timeline_ms"], "uncached": uncached["timeline_ms"]},
            "fidelity": fidelity,
            "kl": fidelity["kl_mean"] if fidelity else checked,
            "ratings": self.ratings,
            "linked": self.linked,
        }


def read_summaries(rows: Iterable[Mapping[str, str]]) -> list[RunSummary]:
    """Returns the list form of stored runs; an unreadable one says so.

    Args:
        rows: the id, the name, the note, the ratings, the link and the summary (JSON) of each run.
    """
    usual, summaries = Record("", "", {}).summary(), []
    for row in rows:
        try:
            stored = json.loads(row["summary"])
        except (ValueError, RecursionError):
            stored = None
        if not isinstance(stored, dict) or not stored:
            stored = {"state": "failed", "prompt": "This run cannot be read. Delete it."}
        own: dict[str, Any] = {name: row[name] for name in ("id", "name", "note", "linked")}
        own["ratings"] = ratings_of(row["ratings"])
        summaries.append(cast(RunSummary, {**usual, **stored, **own}))
    return summaries


def model_in_words(model: ModelOfRun) -> str:
    """Returns a model's name, and the quantization of its weights."""
    rounded = model["weights"].startswith("int")
    return f"{model['name']} · {model['weights']} weights" if rounded else model["name"]


def in_words(prompt: str) -> str:
    """Returns a prompt in one line: the start of its text, and its modules."""
    summary = gist(prompt)
    return " · ".join(part for part in (summary["words"], " + ".join(summary["picked"])) if part)


def contained(schema: Schema) -> str:
    """Returns a schema with the files that it reads inlined; "" if it reads none."""
    whole = self_contained(schema)
    try:
        return "" if whole is schema else write_schema(whole)
    except WriteError:  # the run can then only be shown with the files' later content
        return ""


def asked(prompt: str, schema: Schema | None) -> str:
    """Returns the question of a prompt; "" if it has none or is too broken to read."""
    try:
        return question_of(prompt, schema) if schema is not None else ""
    except PromptEditError:
        return ""


def require_label(name: str | None, note: str | None) -> None:
    """Checks the length of a name and a note.

    Raises:
        PromptCacheError: one of them is too long.
    """
    for label, text, most in (("name", name, LONGEST_NAME), ("note", note, LONGEST_NOTE)):
        if text is not None and len(text) > most:
            raise PromptCacheError(
                f"A {label} has at most {most} characters, but this one has {len(text)}. Shorten it."
            )
