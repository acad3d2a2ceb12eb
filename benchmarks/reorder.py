"""The same blocks of text in another order, asked of the HTTP server: with marks, and with names.

Each round draws new texts, has them answered in one order, and then with the last one first. So the first
request computes all, and the second shows what is read of blocks that have moved. A salt of their own keeps
the ways from reading of each other. The reader is another process, as in `benchmarks.serve`; what is timed is
a stream from a moment before the request is sent to its first event with text.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.answers import text_of
from benchmarks.crowd import Endless
from benchmarks.machine import machine
from benchmarks.raw_reader import RawReader
from benchmarks.serve import serving
from benchmarks.turns import orders
from engine import Engine
from engine.base.errors import PromptCacheError
from engine.model.loading import load
from engine.model.model import Model
from engine.store import Store

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
QUESTION = "Which of these is the longest?"
_TOKENS = 8  # of each answer: some are parts of characters
_ROLES = 128  # tokens that a chat template and the question may add
Texts = dict[str, str]


@dataclass(frozen=True)
class Way:
    """How blocks are given to the server.

    Attributes:
        path: the endpoint.
        named: whether they have names; else the last one is marked.
    """

    path: str
    named: bool

    @property
    def name(self) -> str:
        """In the results."""
        return f"{'named' if self.named else 'marked'}, {self.path}"

    def body(self, texts: Texts, salt: str) -> dict[str, Any]:
        """Returns a request over blocks in this order.

        Args:
            texts: by their names.
            salt: what it shares anything with.
        """
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts.values()]
        if self.named:
            for name, block in zip(texts, blocks, strict=True):
                block["module"] = name
        elif self.path == CHAT:
            blocks[-1]["prompt_cache_breakpoint"] = {"mode": "explicit"}
        else:
            blocks[-1]["cache_control"] = {"type": "ephemeral"}
        content = [*blocks, {"type": "text", "text": QUESTION}]
        options = {"stream_options": {"include_usage": True}} if self.path == CHAT else {}
        return {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": _TOKENS,
            "temperature": 0,
            "stream": True,
            "cache_salt": salt,
            **options,
        }


@dataclass(frozen=True)
class Asked:
    """What came of one request.

    Attributes:
        first_ms: to the first event with text.
        prompt: tokens of its prompt.
        read: of these, that were read.
    """

    first_ms: float
    prompt: int
    read: int


WAYS = tuple(Way(path, named) for named in (False, True) for path in (CHAT, MESSAGES))


def asked_of(path: str, events: Sequence[tuple[float, dict[str, Any]]]) -> Asked:
    """Reads a stream.

    Args:
        path: the endpoint.
        events: each with its time.

    Raises:
        PromptCacheError: it has broken off, or has no text.
    """
    for _, event in events:
        if event.get("error"):
            raise PromptCacheError(f"{path} broke off: {event['error']}")
    texts = [ms for ms, event in events if _text(path, event)]
    if not texts:
        raise PromptCacheError(f"{path}: no text came; take another --seed.")
    if path == CHAT:
        usage = next(event["usage"] for _, event in reversed(events) if event.get("usage"))
        return Asked(texts[0], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])
    usage = next(event["message"]["usage"] for _, event in events if event["type"] == "message_start")
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return Asked(texts[0], usage["input_tokens"] + read + written, read)


def _text(path: str, event: dict[str, Any]) -> str:
    if path == CHAT:
        return "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ()))
    return str(event["delta"]["text"]) if event["type"] == "content_block_delta" else ""


def run(
    model: str,
    *,
    blocks: int = 3,
    tokens: int = 1300,
    repeats: int = 7,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    **loading: Any,
) -> dict[str, Any]:
    """Measures both orders in every way.

    Args:
        model: name of the model.
        blocks: how many there are.
        tokens: about how many each has.
        repeats: rounds, each with texts of its own.
        seed: the seed of the texts, and of the orders in which the ways take turns.
        progress: called with a line of text now and then.
        loading: how the model is loaded, as of `engine.model.loading.load`.

    Returns:
        `results` (of each way name, params, prompt tokens; `first` and `moved`, the orders, each with
        samples_ms, median_ms, and the least tokens that were read), `machine`.

    Raises:
        PromptCacheError: numbers that cannot be run, or a model that cannot be loaded.
    """
    if blocks < 2 or min(tokens, repeats) < 1:
        raise PromptCacheError("--blocks must be at least 2, and --tokens and --repeats at least 1.")
    say = progress or (lambda _: None)
    say(f"loading {model}")
    loaded = load(model, **loading)
    if blocks * tokens + _ROLES > loaded.context_length:
        raise PromptCacheError(
            f"{blocks} blocks of {tokens} tokens do not fit the model's {loaded.context_length}; lower "
            "--tokens."
        )
    found = _rounds(loaded, blocks, tokens, repeats, seed, say)
    params = {"model": model, "dtype": loaded.dtype, "blocks": blocks, "tokens": tokens, "seed": seed}
    return {
        "results": [
            {
                "name": way.name,
                "params": params,
                "prompt": found[way][0][0].prompt,
                **{
                    name: _told([both[place] for both in found[way]])
                    for place, name in enumerate(("first", "moved"))
                },
            }
            for way in WAYS
        ],
        "machine": machine(loaded),
    }


def _rounds(
    model: Model, blocks: int, tokens: int, repeats: int, seed: int, say: Callable[[str], None]
) -> dict[Way, list[tuple[Asked, Asked]]]:
    """What came of both orders, way by way and round by round; the first round does not count."""
    draw, found = random.Random(seed), {way: list[tuple[Asked, Asked]]() for way in WAYS}
    model.__class__ = Endless
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pml-bench-"))
        engine = stack.enter_context(Engine(model, Store.open(Path(folder))))
        reader = stack.enter_context(RawReader(stack.enter_context(serving(engine, _TOKENS)), times=1))
        for number, order in enumerate(orders(len(WAYS), repeats + 1, seed)):
            texts = {f"block-{place}": text_of(model, tokens, draw) for place in range(blocks)}
            last = next(reversed(texts))
            moved = {last: texts[last], **texts}
            for way in (WAYS[index] for index in order):

                def ask(given: Texts, way: Way = way, number: int = number) -> Asked:
                    body = {"model": engine.model.name, **way.body(given, f"{way.name} {number}")}
                    return asked_of(way.path, reader.ask(way.path, body))

                both = ask(texts), ask(moved)
                if number:
                    found[way].append(both)
            engine.store.finish_writing()
            say(f"round {number} of {repeats}")
    return found


def _told(asked: Sequence[Asked]) -> dict[str, Any]:
    samples = [one.first_ms for one in asked]
    return {
        "samples_ms": samples,
        "median_ms": statistics.median(samples),
        "read": min(one.read for one in asked),
    }
