"""The events of a run, and the answer with its figures. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from engine.base.tiers import Outcome, Tier

if TYPE_CHECKING:
    from torch import Tensor

Side = Literal["cached", "uncached"]
SIDES: tuple[Side, ...] = ("cached", "uncached")
Ending = Literal["eos", "length", "stop"]


@dataclass(frozen=True)
class SegmentUse:
    """A segment that an answer read.

    Attributes:
        path: the path of the module, "" for the anonymous one.
        tokens: the number of tokens of the whole segment.
        tier: the tier where it was found.
        outcome: whether it was found or had to be computed.
        reason: the reason of a miss, a `Reason` or the text of an earlier version; "" for a hit.
        key: the segment's name; not part of the JSON.
    """

    path: str
    tokens: int
    tier: Tier
    outcome: Outcome
    reason: str = ""
    key: str = field(default="", repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        fields = asdict(self)
        del fields["key"]
        return fields


@dataclass(frozen=True)
class TokenLogprob:
    """The log-probability of a token, at temperature 1.

    Attributes:
        token: the token.
        logprob: its log-probability, in nats.
        top: the likeliest tokens with theirs, as many as were requested.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


_NOT_IN_JSON = (
    "first_logits",
    "segments",
    "stop",
    "grammar",
    "cut_short",
    "marked",
    "unmarked",
    "written_for",
    "read_ms",
    "reuse",
    "logprobs",
)


@dataclass(frozen=True)
class ReuseTaken:
    """The reuse level of an answer with a KL limit.

    Attributes:
        rung: the level, from 0, the segments as stored.
        scope: what modules saw; "" if nothing was reused.
        repair: which cached tokens were recomputed.
        scaffold: paths of the modules that were encoded together; empty unless all were.
        why: the level and its reason, in a line.
        promise: the upper limit of the KL, in nats per answer token.
        kl: the measured KL: of this answer if it was checked, else the mean of the last checked ones; None if
            unknown.
        checked: whether this answer was checked.
        combination: the name of the segments that it read together; "" if it read none.
    """

    rung: int
    scope: str
    repair: str
    scaffold: tuple[str, ...]
    why: str
    promise: float
    kl: float | None = None
    checked: bool = False
    combination: str = field(default="", repr=False)

    @property
    def broken(self) -> bool:
        """Whether this answer was checked and exceeds the limit."""
        return self.checked and self.kl is not None and self.kl > self.promise

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `pml run --json` prints under `reuse`."""
        taken: Any = "uncached"
        if self.scope:
            taken = {"scope": self.scope, "repair": self.repair}
            if self.scaffold:
                taken["scaffold"] = list(self.scaffold)
        quality = {"kl": self.kl, "promise": self.promise, "checked": self.checked}
        return {"taken": taken, "why": self.why, **quality}


@dataclass(frozen=True)
class Answer:
    """One side's answer with its figures.

    Attributes:
        ttft_ms: time from the prompt's text to the first token id, in milliseconds.
        tpot_ms: mean time of each further token in milliseconds: forward pass, choice and text. Tokens of one
            pass share its time equally.
        timeline_ms: the parts of ttft_ms, in order.
        tokens: the token counts by name:
            prompt;
            from_cache: read from segments;
            encoded: those of from_cache whose segments this run computed;
            computed;
            generated;
            read: found in memory or on disk before this run;
            written: computed by this run and written to disk, as segments or marked prefixes;
            choosing: the cost of choosing repair tokens, in tokens through the whole network;
            drafted: generated tokens that were guessed;
            accepted: guesses that the model confirmed;
            repeated: generated tokens computed again, because rounding might have decided them;
            forced: generated tokens that the grammar left no choice about; absent without a grammar.
        stopped: the reason of the end: "eos" (the model ended it, or it is complete by its grammar),
            "length", or "stop" for a stop string.
        grammar: the format that it keeps to, as the setting of a run; not part of the JSON.
        stop: the stop string that ended it, if any; not part of the JSON.
        cut_short: whether the context window ended it before `max_new_tokens` did; not part of the JSON.
        marked: the end of the marked prefix that is written to disk, as a position; not part of the JSON.
        unmarked: the reason why no more is written; "" if all marks are; not part of the JSON.
        written_for: written tokens by minimum lifetime in seconds, 0 for no minimum; not part of the JSON.
        read_ms: the earlier compute time of the prefix that this prompt read, without segments, in
            milliseconds;
            None if unknown; not part of the JSON.
        passes: passes after the first token; fewer than tokens if guesses are accepted.
        waited_ms: milliseconds of waiting for other answers and other programs; in no other figure.
        first_logits: [vocabulary] fp32, of the first token, -inf where a grammar permits none; not in JSON.
        reuse: the reuse level of an answer with a KL limit; not part of the JSON.
        logprobs: of its tokens, if requested; not part of the JSON.
    """

    text: str
    token_ids: tuple[int, ...]
    ttft_ms: float
    tpot_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    segments: tuple[SegmentUse, ...]
    stopped: Ending
    warnings: tuple[str, ...] = ()
    passes: int = 0
    waited_ms: float = 0.0
    first_logits: Tensor | None = field(default=None, repr=False, compare=False)
    grammar: str = "text"
    stop: str | None = None
    cut_short: bool = False
    marked: int = 0
    unmarked: str = ""
    written_for: Mapping[float, int] = field(default_factory=dict)
    read_ms: float | None = 0.0
    reuse: ReuseTaken | None = None
    logprobs: tuple[TokenLogprob, ...] = field(default=(), repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `pml run --json` prints for a side."""
        names = [f for f in self.__dataclass_fields__ if f not in _NOT_IN_JSON]
        values = {name: getattr(self, name) for name in names}
        values["token_ids"] = list(self.token_ids)
        values["warnings"] = list(self.warnings)
        return {**values, "segments": [use.to_json() for use in self.segments]}


@dataclass(frozen=True)
class Comparison:
    """The cached answer compared with the uncached one.

    Attributes:
        ttft_speedup: uncached ÷ cached time to first token.
        first_token_agrees: both sides have the same most likely token.
        kl_first_token: KL of the cached distribution from the uncached one, in nats, at temperature 1.
        same_text: the whole answers are equal.
    """

    ttft_speedup: float
    first_token_agrees: bool
    kl_first_token: float
    same_text: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Working:
    """A task before the first token, or a wait, is in progress. Encoding counts tokens."""

    side: Side
    what: str
    done: int
    total: int

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of a run."""
        return {"event": "working", **asdict(self)}


@dataclass(frozen=True)
class Barred(Working):
    """Another program computes the next part; this side checks again later, out of turn."""


@dataclass(frozen=True)
class Waiting(Working):
    """The next step waits for another answer's step; progress is unchanged."""


@dataclass(frozen=True)
class FirstToken:
    """The first token is known. The attributes are as in `Answer`."""

    side: Side
    ttft_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    written_for: Mapping[float, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of a run."""
        return {"event": "first token", **asdict(self)}


@dataclass(frozen=True)
class Delta:
    """More text of an answer; "" after a pass that recomputed one of its tokens.

    `waited_ms` is the time spent so far waiting for other answers' steps. `logprobs` has the tokens of this
    step, if requested; then a step may have no text.
    """

    side: Side
    text: str
    waited_ms: float = field(default=0.0, compare=False)
    logprobs: tuple[TokenLogprob, ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of a run."""
        return {"event": "delta", "side": self.side, "text": self.text}


@dataclass(frozen=True)
class Finished:
    """One side has finished."""

    side: Side
    answer: Answer

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of a run."""
        return {"event": "finished", "side": self.side, "answer": self.answer.to_json()}


@dataclass(frozen=True)
class Compared:
    """Both sides have finished. Always the last event."""

    comparison: Comparison

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of a run."""
        return {"event": "compared", "comparison": self.comparison.to_json()}


@dataclass(frozen=True)
class Listener:
    """Callbacks during an answer's steps, where events are impossible, on the thread that reads the answer.

    Attributes:
        turn: called when the turn of a side has come after a Waiting; must be quick.
        stopped: polled, also between the layers of a long pass; if it returns true, the events end.
        checked: called with the result of a check of the answer, long after its end, on a separate thread.
    """

    turn: Callable[[Side], None] = lambda _: None
    stopped: Callable[[], bool] = lambda: False
    checked: Callable[[ReuseTaken], None] = lambda _: None


Event = Working | FirstToken | Delta | Finished | Compared
