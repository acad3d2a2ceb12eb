"""One run as it is kept: its two documents, what it told, and what the user calls it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from typing_extensions import TypedDict

from app.studio.documents.samples import gist
from app.studio.history.frames import as_mapping, as_number, as_time, as_times, as_words, read_frame
from app.studio.history.measurements import FidelitySummary, read_summary_of, summary_of
from app.studio.runs.payback import apart
from app.studio.runs.run_frame import ModelOfRun, RunFrame
from engine.base.errors import PromptCacheError
from engine.pml import Schema
from engine.pml.edit.writer import WriteError, self_contained, write_schema

_WORDS = ("started", "schema", "model", "state", "scope", "repair", "reuse", "prompt")
_TIMES = ("cached_ms", "uncached_ms", "encode_ms", "first_ms")

LONGEST_NAME = 200
LONGEST_NOTE = 4000


class StagesOfSides(TypedDict):
    """What the time to the first token went into, on each side."""

    cached: dict[str, float]
    uncached: dict[str, float]


class RunSummary(TypedDict):
    """A run in a list. Times in milliseconds; `clear` where the timings of both sides do not overlap.

    `scope` and `repair` are those that the cached side took, `reuse` says why it took them under a promise.
    `kl` is the mean per token in nats, measured by the user, else by a check behind the answer.
    """

    id: str
    started: str
    name: str
    note: str
    schema: str
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


@dataclass(frozen=True)
class Record:
    """A run that is kept.

    Attributes:
        schema: the schema's text.
        prompt: the prompt's text.
        frame: what the run told last, as JSON.
        name: the user's name for it.
        note: the user's note on it.
        origin: where the schema came from, as `Workspace` spells it; "" for a run of somebody else.
        contained: the schema with what its files said when it was run; "" of one that reads none.
        id: 32 hexadecimal digits.
    """

    schema: str
    prompt: str
    frame: Mapping[str, Any]
    name: str = ""
    note: str = ""
    origin: str = ""
    contained: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def told(self) -> RunFrame:
        """What the run told, with every field of its type."""
        return read_frame(self.frame)

    @property
    def whole(self) -> str:
        """The schema as it was run, whatever its files say by now."""
        return self.contained or self.schema

    def summary(self) -> RunSummary:
        """The run in a list."""
        told = self.told
        cached, uncached = told["sides"]["cached"], told["sides"]["uncached"]
        reuse = told["reuse"]
        fidelity = summary_of(told["fidelity"]) if told["fidelity"] else None
        taken: Mapping[str, Any] = reuse or told["settings"]
        checked = reuse["kl"] if reuse and reuse["checked"] else None
        return {
            "id": self.id,
            "started": told["started"],
            "name": self.name,
            "note": self.note,
            "schema": told["schema"],
            "model": model_in_words(told["model"]),
            "state": told["state"],
            "scope": str(taken.get("scope", "")),
            "repair": str(taken.get("repair", "")),
            "reuse": reuse["why"] if reuse else "",
            "prompt": in_words(self.prompt),
            "cached_ms": cached["ttft_ms"],
            "uncached_ms": uncached["ttft_ms"],
            "encode_ms": told["encoding"]["ms"],
            "first_ms": told["payback"]["first_ms"] if told["payback"] else None,
            "speedup": told["comparison"].get("ttft_speedup"),
            "clear": apart(told["comparison"]),
            "stages": {"cached": cached["timeline_ms"], "uncached": uncached["timeline_ms"]},
            "fidelity": fidelity,
            "kl": fidelity["kl_mean"] if fidelity else checked,
        }


def read_summary(sent: object, run: str, name: str, note: str) -> RunSummary:
    """A run in a list, every field of its type; of a row that cannot be read it says so."""
    told = as_mapping(sent)
    words = {field: as_words(told.get(field)) for field in _WORDS}
    times = {field: as_time(told.get(field)) for field in _TIMES}
    both = times["cached_ms"] and times["uncached_ms"]
    stages = as_mapping(told.get("stages"))
    if not told:
        words |= {"state": "failed", "prompt": "This run cannot be read. Delete it."}
    found = {
        "id": run,
        "name": name,
        "note": note,
        **words,
        **times,
        "speedup": as_number(told.get("speedup")) if both else None,
        "clear": told.get("clear") is not False,
        "stages": {side: as_times(stages.get(side)) for side in ("cached", "uncached")},
        "fidelity": read_summary_of(told.get("fidelity")),
        "kl": as_number(told.get("kl")),
    }
    return cast(RunSummary, found)


def model_in_words(model: ModelOfRun) -> str:
    """A model's name, and how its weights are rounded, if they are."""
    rounded = model["weights"].startswith("int")
    return f"{model['name']} · {model['weights']} weights" if rounded else model["name"]


def in_words(prompt: str) -> str:
    """A prompt in a line: the beginning of its text, and the modules that it picks."""
    found = gist(prompt)
    return " · ".join(part for part in (found["words"], " + ".join(found["picked"])) if part)


def contained(schema: Schema) -> str:
    """A schema that reads no other files, which may be others by the time it is read again; "" of most."""
    whole = self_contained(schema)
    try:
        return "" if whole is schema else write_schema(whole)
    except WriteError:  # then only what its files say by then can be shown; the answers stay
        return ""


def require_label(name: str | None, note: str | None) -> None:
    """Refuses a name or a note that is too long.

    Raises:
        PromptCacheError: it is.
    """
    for what, text, most in (("name", name, LONGEST_NAME), ("note", note, LONGEST_NOTE)):
        if text is not None and len(text) > most:
            raise PromptCacheError(
                f"A {what} has at most {most} characters, and this one has {len(text)}. Shorten it."
            )
