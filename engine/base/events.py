"""What a run reports while it goes on, and the answer with its figures at the end. No computing here."""

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
        tokens: how many tokens the whole segment has.
        tier: the tier where it was found.
        outcome: whether it was found; else it had to be computed.
        reason: the reason of a miss, a `Reason` or what an earlier version has written; "" of a hit.
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
        told = asdict(self)
        del told["key"]
        return told


_NOT_IN_JSON = (
    "first_logits",
    "segments",
    "stop",
    "cut_short",
    "marked",
    "unmarked",
    "written_for",
    "read_ms",
    "reuse",
)


@dataclass(frozen=True)
class ReuseTaken:
    """The remedy that an answer under a promise took.

    Attributes:
        rung: its place on the ladder of remedies, from 0, the segments as they are stored.
        scope: what modules saw; "" where nothing was reused.
        repair: which cached tokens were computed again.
        scaffold: paths of the modules that were encoded together; empty unless all were.
        why: the remedy and its reason, in a line.
        promise: the most that the KL may be, in nats per answer token.
        kl: what was measured of it: of this answer where it was checked, else the mean of the last ones
            before it; None where nothing was.
        checked: whether this very answer was checked.
        combination: the name of the segments that it read together; "" where it read none.
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
        """Whether this very answer was found to break the promise."""
        return self.checked and self.kl is not None and self.kl > self.promise

    def to_json(self) -> dict[str, Any]:
        """Returns what `pml run --json` prints under `reuse`."""
        taken: Any = "uncached"
        if self.scope:
            taken = {"scope": self.scope, "repair": self.repair}
            if self.scaffold:
                taken["scaffold"] = list(self.scaffold)
        found = {"kl": self.kl, "promise": self.promise, "checked": self.checked}
        return {"taken": taken, "why": self.why, **found}


@dataclass(frozen=True)
class Answer:
    """One side's answer with its figures.

    Attributes:
        ttft_ms: time from the prompt's text to the first token id, in milliseconds.
        tpot_ms: mean time of each further token in milliseconds: forward pass, choice, and its text; of
            several from one pass, each its share.
        timeline_ms: the parts of ttft_ms, in order.
        tokens: prompt, from_cache (read from segments), encoded (those of them whose segments this very run
            computed), computed, generated, read (those that were there before this run, in memory or on
            disk), written (those that this run computed and that go to disk: segments, and what is marked),
            and choosing: what it took a repair to choose its tokens, in tokens that pass through the whole
            network. Of those generated, drafted: how many were guessed, accepted: how many of these the
            model chose, and repeated: how many were computed again, since rounding might have decided.
        stopped: what ended it: "eos", "length", or "stop" for a stop string.
        stop: the stop string that ended it, where one did; not part of the JSON.
        cut_short: whether the context window ended it before `max_new_tokens` did; not part of the JSON.
        marked: the position up to which what was marked is on disk, or is written now; not part of the JSON.
        unmarked: why no more of what was marked is; "" where all of it is; not part of the JSON.
        written_for: how many of the written tokens are kept for how many seconds at least, 0 where nothing is
            said; not part of the JSON.
        read_ms: what computing had taken of what earlier prompts had left in memory or on disk and this one
            read, in milliseconds, segments not among it; None where that is not known; not part of the JSON.
        passes: through the network after the first token's; fewer than tokens where guesses accepted.
        waited_ms: how long its steps waited for those of other answers, and for what another program was
            encoding, in milliseconds; in no other figure.
        first_logits: [vocabulary] fp32, of the first token; not part of the JSON.
        reuse: the remedy that it took, where it was answered under a promise; not part of the JSON.
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
    stop: str | None = None
    cut_short: bool = False
    marked: int = 0
    unmarked: str = ""
    written_for: Mapping[float, int] = field(default_factory=dict)
    read_ms: float | None = 0.0
    reuse: ReuseTaken | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `pml run --json` prints for a side."""
        names = [f for f in self.__dataclass_fields__ if f not in _NOT_IN_JSON]
        values = {name: getattr(self, name) for name in names}
        values["token_ids"] = list(self.token_ids)
        values["warnings"] = list(self.warnings)
        return {**values, "segments": [use.to_json() for use in self.segments]}


@dataclass(frozen=True)
class Comparison:
    """The cached answer beside the uncached one.

    Attributes:
        ttft_speedup: uncached ÷ cached time to first token.
        first_token_agrees: both sides found the same token likeliest.
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
    """Something that takes a while: before the first token, or a wait."""

    side: Side
    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Barred(Working):
    """Another program is at what comes next: this is looked at again after a while, by nobody's turn."""


@dataclass(frozen=True)
class Waiting(Working):
    """The next step waits for another answer's, and of the work as much is done as before."""


@dataclass(frozen=True)
class FirstToken:
    """The first token is known.

    Attributes:
        side: the side that answers.
        ttft_ms: as of `Answer`.
        timeline_ms: as of `Answer`.
        tokens: as of `Answer`.
        written_for: as of `Answer`.
    """

    side: Side
    ttft_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    written_for: Mapping[float, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Delta:
    """More text of an answer; "" after a pass that computed a token of it again.

    Attributes:
        side: the side that answers.
        text: what is new.
        waited_ms: how long its steps have waited so far for those of other answers, in milliseconds.
    """

    side: Side
    text: str
    waited_ms: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Finished:
    """One side is done."""

    side: Side
    answer: Answer


@dataclass(frozen=True)
class Compared:
    """Both sides are done. Always the last event."""

    comparison: Comparison


@dataclass(frozen=True)
class Listener:
    """What is told in the middle of an answer's steps, where no event can be: on the thread that reads them.

    Attributes:
        turn: told that the turn of a side has come after a Waiting; must be quick.
        stopped: asked whether nobody wants the answer any more, also between the layers of a long pass: its
            events end there.
        checked: told what a check has found of the answer under a promise, long after its end, on a thread of
            its own.
    """

    turn: Callable[[Side], None] = lambda _: None
    stopped: Callable[[], bool] = lambda: False
    checked: Callable[[ReuseTaken], None] = lambda _: None


Event = Working | FirstToken | Delta | Finished | Compared
