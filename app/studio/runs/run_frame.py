"""The frames of a run: clean JSON with times in milliseconds.

Runs are stored in this format. A change of a field's meaning must raise `FORMAT`.
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
"""`measured`: a fidelity measurement without an answer."""
Ended = Literal["", "eos", "length", "stop"]
SIDES: tuple[Side, Side] = ("cached", "uncached")


class StepFrame(TypedDict):
    """The progress of a part of a run; it `waits` for other work. Encoding counts tokens."""

    state: State
    waits: bool
    working: str
    done: int
    total: int


class SideFrame(StepFrame):
    """One side of a run so far. Times in milliseconds.

    `ttft_ms` is the median of `samples_ms`, the times to first token. `cold_ms` are times that include
    encoding of evicted segments; they are samples only if there are no others. `format_fault` is why the
    answer is not as its format demands; "" if it is, None without a format.
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
    format_fault: str | None


class Sides(TypedDict):
    """Both sides."""

    cached: SideFrame
    uncached: SideFrame


class EncodingFrame(StepFrame):
    """The encoding of missing segments before the cached side.

    `ms` is its time without writing and waiting; None until it ends. `others` segments were stored already,
    and took `others_ms` to compute; None if unknown.
    """

    modules: list[str]
    segments: int
    tokens: int
    ms: float | None
    others: int
    others_ms: float | None


class ComparedSoFar(TypedDict):
    """The cached answer compared with the uncached one so far.

    The speedup is the ratio of medians. The minimum compares the slowest cached sample with the fastest
    uncached one, the maximum the reverse.
    """

    ttft_speedup: NotRequired[float]
    least_speedup: NotRequired[float]
    most_speedup: NotRequired[float]
    first_token_agrees: NotRequired[bool]
    kl_first_token: NotRequired[float]
    same_text: NotRequired[bool]


class Payback(TypedDict):
    """The run from which on the cache is faster in total, including encoding.

    `first_ms` is the time to first token including the encoding of all segments; None if unknown. `runs` is
    None if unknown or never; `words` says which.
    """

    first_ms: float | None
    runs: int | None
    words: str


class FirstDifference(TypedDict):
    """The first word that differs, by number from 1, on both sides; "" after the end of a text."""

    word: int
    cached: str
    uncached: str


class Difference(TypedDict):
    """Both texts split into runs of words, each with whether it differs; the number of differing words."""

    cached: list[tuple[str, bool]]
    uncached: list[tuple[str, bool]]
    differing: int
    first: FirstDifference | None


class Belongs(TypedDict):
    """Identifies a result's inputs: digests of both texts, of relevant settings, and of the model."""

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
    """The reuse settings that automatic reuse chose, and the reason; `scope` is "" if nothing was reused.

    `kl` is of this answer if checked, else from a measurement. `broken` if a check exceeds the limit.
    `follows` while a check is pending.
    """

    scope: str
    repair: str
    why: str
    kl: float | None
    checked: bool
    follows: bool
    broken: bool


class KeptFidelity(TypedDict):
    """A fidelity measurement with its time, in ISO 8601."""

    measured: str
    found: Annotated[Json, JsonOf(named="engine.fidelity.findings:Fidelity")]


class RunFrame(TypedDict):
    """A run so far. `settings` are the requested ones; `placement` is the one used.

    It times the first token `timings` times; `repeat` is the current one. `fidelity` is set once it was
    measured for a stored run's texts, settings and model. `kept` is the id of the stored run; "" until it is
    stored. `question` is the prompt's last text, "" if it has none.
    """

    format: int
    kept: str
    number: int
    mode: Mode
    question: str
    schema: str
    of: Belongs
    started: str
    settings: Annotated[Json, JsonOf(dict[str, Any])]
    placement: PlacementPolicy
    model: ModelOfRun
    order: list[Side]
    repeat: int
    timings: int
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
