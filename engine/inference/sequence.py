"""Prefill and decoding, as typed events with timings, and the comparison of two answers."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from engine.events import (
    Answer,
    Comparison,
    Delta,
    Ending,
    Event,
    Finished,
    FirstToken,
    SegmentUse,
    Side,
)
from engine.inference.params import RunSettings
from engine.inference.prefill import Prefill
from engine.inference.sampler import Sampler
from engine.inference.text_stream import TextStream
from engine.model.model import Model
from engine.stopwatch import Stopwatch


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
    room = max(1, model.context_length - prefill.end)
    limit = min(settings.max_new_tokens, room)
    sampler = Sampler(settings, prefill.prompt)
    stream = TextStream(model.tokenizer, settings.stop)
    clock.restart()
    kv = model.key_values(prefill.placements, len(prefill.token_ids) + limit)
    logits = model.forward(prefill.token_ids, prefill.positions, kv)[-1].float()
    clock.lap("prefill")
    tokens = [sampler.choose(logits)]
    clock.lap("sample")
    counts = {
        "prompt": len(prefill.prompt),
        "from_cache": len(prefill.prompt) - len(prefill.token_ids),
        "computed": len(prefill.token_ids),
        "encoded": prefill.encoded,
        "choosing": prefill.choosing,
    }
    yield FirstToken(side, clock.total, dict(clock.parts), counts)
    times: list[float] = []
    while tokens[-1] not in model.end_tokens:
        if text := stream.add(tokens[-1]):
            yield Delta(side, text)
        if len(tokens) == limit or stream.stopped:
            break
        started = time.perf_counter()
        if not times:
            kv.fold()
        position = prefill.end + len(tokens) - 1
        tokens.append(sampler.choose(model.forward(tokens[-1:], [position], kv)[-1]))
        times.append((time.perf_counter() - started) * 1000)
    if rest := stream.rest():
        yield Delta(side, rest)
    ending: Ending = "eos" if tokens[-1] in model.end_tokens else "stop" if stream.stopped else "length"
    if ending == "length" and room < settings.max_new_tokens:
        words = (
            f"The context window has room for {room} of the {settings.max_new_tokens} tokens of the answer."
        )
        warnings = [*warnings, words]
    answer = Answer(
        text=stream.text,
        token_ids=tuple(tokens),
        ttft_ms=clock.total,
        tpot_ms=sum(times) / len(times) if times else 0.0,
        timeline_ms=dict(clock.parts),
        tokens={**counts, "generated": len(tokens)},
        segments=tuple(uses),
        stopped=ending,
        warnings=tuple(warnings),
        waited_ms=clock.waited,
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
