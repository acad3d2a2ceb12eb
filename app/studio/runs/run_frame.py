"""What is told of a run, while it goes on and for good: clean JSON, with its times in milliseconds.

Runs are kept on disk in this shape. Who changes what a field means raises `FORMAT`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.web.json_answers import Json, JsonOf
from engine.base.choices import PlacementPolicy

FORMAT: Final = 1

Side = Literal["cached", "uncached"]
Mode = Literal["both", "cached", "uncached"]
State = Literal["waiting", "working", "streaming", "done", "measured", "stopped", "not run", "failed"]
"""`measured`: nothing was answered, only measured how faithful the cached answer is."""
Ended = Literal["", "eos", "length", "stop"]
SIDES: tuple[Side, Side] = ("cached", "uncached")


class StepFrame(TypedDict):
    """How far a part of a run is; it `waits` while a step of other work is computed."""

    state: State
    waits: bool
    working: str
    done: int
    total: int


class SideFrame(StepFrame):
    """One side of a run, so far. Times in milliseconds.

    `samples_ms` are the times to the first token of which `ttft_ms` is the median. `cold_ms` are those that
    contain the encoding of segments that did not stay: they are no samples where there are others.
    """

    text: str
    ttft_ms: float | None
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    tokens_per_second: float | None
    samples_ms: list[float]
    cold_ms: list[float]
    waited_ms: float
    ended: Ended


class Sides(TypedDict):
    """Both sides."""

    cached: SideFrame
    uncached: SideFrame


class EncodingFrame(StepFrame):
    """The step ahead of the cached side, in which what is missing is computed.

    `ms` is what that took, without writing and waiting; None while it is not over. `others` segments were
    there, and computing them took `others_ms` when it was done; None where nobody knows.
    """

    modules: list[str]
    segments: int
    tokens: int
    ms: float | None
    others: int
    others_ms: float | None


class ComparedSoFar(TypedDict):
    """The cached answer beside the uncached one, as far as it is known.

    The speedup is that of the medians; at the least it is that of the slowest cached sample and the quickest
    uncached one, at the most that of the others.
    """

    ttft_speedup: NotRequired[float]
    least_speedup: NotRequired[float]
    most_speedup: NotRequired[float]
    first_token_agrees: NotRequired[bool]
    kl_first_token: NotRequired[float]
    same_text: NotRequired[bool]


class Payback(TypedDict):
    """From which run on the cache has taken less time than going without, its encoding included.

    `first_ms` is the time to the first token with all that is read encoded ahead of it; None where nobody
    knows. `runs` is None where it is not known or never; `words` say which.
    """

    first_ms: float | None
    runs: int | None
    words: str


class Difference(TypedDict):
    """Both texts cut into runs of words, each with whether it differs; how many words do."""

    cached: list[tuple[str, bool]]
    uncached: list[tuple[str, bool]]
    differing: int


class Belongs(TypedDict):
    """What a result belongs to: digests of both texts, of the settings that matter, and of the model."""

    schema: str
    prompt: str
    settings: str
    model: str


class ModelOfRun(TypedDict):
    """The model that answered."""

    name: str
    fingerprint: str
    device: str
    dtype: str
    weights: str


class ReuseFrame(TypedDict):
    """The remedy that the cached side took under a promise, and why; `scope` is "" where nothing was reused.

    `kl` is of this answer where it was checked, else what was measured before; `broken` where it was checked
    and is above the promise. `follows` while a check of it is due.
    """

    scope: str
    repair: str
    why: str
    kl: float | None
    checked: bool
    follows: bool
    broken: bool


class KeptFidelity(TypedDict):
    """How faithful the cached answer was found to be, and when that was measured, in ISO 8601."""

    measured: str
    found: Annotated[Json, JsonOf(named="engine.fidelity.findings:Fidelity")]


class RunFrame(TypedDict):
    """A run, so far. `settings` are those that were asked for; `placement` is the one that was used.

    `fidelity` is there once it was measured for the texts, settings and model of a kept run.
    """

    format: int
    number: int
    mode: Mode
    schema: str
    of: Belongs
    started: str
    settings: Annotated[Json, JsonOf(dict[str, Any])]
    placement: PlacementPolicy
    model: ModelOfRun
    order: list[Side]
    repeat: int
    state: State
    message: str
    warnings: list[str]
    encoding: EncodingFrame
    sides: Sides
    comparison: ComparedSoFar
    payback: Payback | None
    difference: Difference | None
    fidelity: KeptFidelity | None
    reuse: ReuseFrame | None
