"""Prefill and decoding, as typed events with timings."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from engine.layout import Scope
from engine.model import Model
from engine.segment import Placement

Side = Literal["cached", "uncached"]
SIDES: tuple[Side, ...] = ("cached", "uncached")


@dataclass(frozen=True)
class RunSettings:
    """How a prompt is run.

    Attributes:
        max_new_tokens: the longest answer, in tokens.
        temperature: 0 takes the likeliest token every time.
        seed: of the sampling; the same on both sides.
        scope: what modules see while they are encoded.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    scope: Scope = "anchored"


@dataclass(frozen=True)
class SegmentUse:
    """A segment that an answer read.

    Attributes:
        path: of the module, "" for the anonymous one.
        tokens: of the whole segment.
        tier: where it was found, or "none".
        outcome: "hit", or "miss" where it had to be computed.
    """

    path: str
    tokens: int
    tier: Literal["memory", "disk", "none"]
    outcome: Literal["hit", "miss"]


@dataclass(frozen=True)
class Answer:
    """One side's answer with its figures.

    Attributes:
        ttft_ms: from the prompt's text to the first token id, in milliseconds.
        tpot_ms: mean time of each further token, in milliseconds.
        timeline_ms: the parts of ttft_ms, in order.
        tokens: prompt, from_cache, computed, generated.
        stopped: what ended it: "eos" or "length".
        first_logits: [vocabulary] fp32, of the first token; not part of the JSON.
    """

    text: str
    token_ids: tuple[int, ...]
    ttft_ms: float
    tpot_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    segments: tuple[SegmentUse, ...]
    stopped: Literal["eos", "length"]
    warnings: tuple[str, ...] = ()
    first_logits: Tensor | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `pml run --json` prints for a side."""
        names = [f for f in self.__dataclass_fields__ if f not in ("first_logits", "segments")]
        values = {name: getattr(self, name) for name in names}
        values["token_ids"] = list(self.token_ids)
        values["warnings"] = list(self.warnings)
        return {**values, "segments": [asdict(use) for use in self.segments]}


@dataclass(frozen=True)
class Comparison:
    """The cached answer beside the uncached one.

    Attributes:
        ttft_speedup: uncached ÷ cached time to first token.
        first_token_agrees: both sides found the same token likeliest.
        kl_first_token: of the cached distribution from the uncached one, in nats, at temperature 1.
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
    """Something that takes a while, before the first token."""

    side: Side
    what: str
    done: int
    total: int


@dataclass(frozen=True)
class FirstToken:
    """The first token is known."""

    side: Side
    ttft_ms: float
    timeline_ms: dict[str, float]
    tokens: dict[str, int]


@dataclass(frozen=True)
class Delta:
    """More text of an answer."""

    side: Side
    text: str


@dataclass(frozen=True)
class Finished:
    """One side is done."""

    side: Side
    answer: Answer


@dataclass(frozen=True)
class Compared:
    """Both sides are done. Always the last event."""

    comparison: Comparison


Event = Working | FirstToken | Delta | Finished | Compared


class Stopwatch:
    """Adds up named parts of a duration, in milliseconds."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._started = time.perf_counter()

    def restart(self) -> None:
        """Leaves out the time since the last lap."""
        self._started = time.perf_counter()

    def lap(self, part: str) -> None:
        """Counts the time since the last lap for this part."""
        now = time.perf_counter()
        self.parts[part] = self.parts.get(part, 0.0) + (now - self._started) * 1000
        self._started = now

    @property
    def total(self) -> float:
        """Milliseconds of all parts."""
        return sum(self.parts.values())


class Sampler:
    """Chooses the next token: the likeliest at temperature 0, else a draw from a seeded generator."""

    def __init__(self, settings: RunSettings) -> None:
        self._temperature = settings.temperature
        self._generator = torch.Generator().manual_seed(settings.seed)

    def choose(self, logits: Tensor) -> int:
        """Returns a token for logits [vocabulary]."""
        if not self._temperature > 0:
            return int(logits.argmax())
        weights = torch.softmax(logits.float().cpu() / self._temperature, -1)
        return int(torch.multinomial(weights, 1, generator=self._generator))


class TextStream:
    """Token ids → text, a piece at a time, without ever splitting a character."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._given = ""

    @property
    def text(self) -> str:
        """All of it, with what was held back."""
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))

    def add(self, token: int) -> str:
        """Returns the text that this token completes."""
        self._ids.append(token)
        text = self.text
        if text.endswith("\ufffd"):
            return ""
        piece, self._given = text[len(self._given) :], text
        return piece

    def rest(self) -> str:
        """Returns what was held back, once no more tokens come."""
        return self.text[len(self._given) :]


@dataclass(frozen=True)
class Prefill:
    """What is computed before the first token.

    Attributes:
        placements: segments that are read; empty for a full prefill.
        token_ids: the tokens that are computed.
        positions: of those, ascending.
        total_tokens: of the whole prompt.
    """

    placements: Sequence[Placement]
    token_ids: Sequence[int]
    positions: Sequence[int]
    total_tokens: int


def respond(
    model: Model,
    prefill: Prefill,
    settings: RunSettings,
    side: Side,
    clock: Stopwatch,
    uses: Sequence[SegmentUse] = (),
    warnings: Sequence[str] = (),
) -> Generator[Event, None, Answer]:
    """Computes the first token, then the rest of the answer.

    Args:
        model: that answers.
        prefill: the prompt.
        settings: how to run it.
        side: named in the events.
        clock: has counted what went before; counts "prefill" and "sample".
        uses: segments that are read, for the answer.
        warnings: for the answer.

    Yields:
        FirstToken, Delta and at last Finished. Closing the generator stops it.

    Returns:
        The answer.
    """
    limit = max(1, min(settings.max_new_tokens, model.context_length - prefill.total_tokens))
    sampler, stream = Sampler(settings), TextStream(model.tokenizer)
    clock.restart()
    kv = model.key_values(prefill.placements, len(prefill.token_ids) + limit)
    logits = model.forward(prefill.token_ids, prefill.positions, kv)[-1].float()
    clock.lap("prefill")
    tokens = [sampler.choose(logits)]
    clock.lap("sample")
    counts = {
        "prompt": prefill.total_tokens,
        "from_cache": prefill.total_tokens - len(prefill.token_ids),
        "computed": len(prefill.token_ids),
    }
    yield FirstToken(side, clock.total, dict(clock.parts), counts)
    times: list[float] = []
    while tokens[-1] not in model.end_tokens:
        if text := stream.add(tokens[-1]):
            yield Delta(side, text)
        if len(tokens) == limit:
            break
        started = time.perf_counter()
        if not times:
            kv.fold()
        position = prefill.total_tokens + len(tokens) - 1
        tokens.append(sampler.choose(model.forward(tokens[-1:], [position], kv)[-1]))
        times.append((time.perf_counter() - started) * 1000)
    if rest := stream.rest():
        yield Delta(side, rest)
    answer = Answer(
        text=stream.text,
        token_ids=tuple(tokens),
        ttft_ms=clock.total,
        tpot_ms=sum(times) / len(times) if times else 0.0,
        timeline_ms=dict(clock.parts),
        tokens={**counts, "generated": len(tokens)},
        segments=tuple(uses),
        stopped="eos" if tokens[-1] in model.end_tokens else "length",
        warnings=tuple(warnings),
        first_logits=logits,
    )
    yield Finished(side, answer)
    return answer


def compare(cached: Answer, uncached: Answer) -> Comparison:
    """Sets two answers to the same prompt side by side."""
    kl, agrees = float("nan"), False
    if cached.first_logits is not None and uncached.first_logits is not None:
        kl = first_token_divergence(cached.first_logits, uncached.first_logits)
        agrees = bool(cached.first_logits.argmax() == uncached.first_logits.argmax())
    speedup = uncached.ttft_ms / cached.ttft_ms if cached.ttft_ms else float("inf")
    return Comparison(speedup, agrees, kl, cached.token_ids == uncached.token_ids)


def first_token_divergence(cached: Tensor, uncached: Tensor) -> float:
    """Returns KL(uncached ‖ cached) of two logit vectors [vocabulary], in nats."""
    p, q = torch.log_softmax(uncached.double(), -1), torch.log_softmax(cached.double(), -1)
    return max(0.0, float((p.exp() * (p - q)).sum()))
