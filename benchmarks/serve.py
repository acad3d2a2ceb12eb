"""What the HTTP server adds to the engine: milliseconds to an answer's first text, and to each further one.

The engine and the server are in this process, as in `pml serve`; the reader is in another one and takes bytes
off a socket (`benchmarks.raw_reader`), so no client is in any time. The same prompt goes straight into
`Engine.submit` and to each endpoint, all in turns: a conversation to three of them, and the same words as one
text to /v1/completions. Everything before its last tokens is in memory.

- `first`: from a moment before the request is sent, or the prompt is prepared, to the first event with text.
- `token`: from then on to the last event with text, by the events between.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from app.server.application import application, behind_the_door
from app.server.core.service import Service
from app.server.http.access import Access
from app.server.serving import configured
from benchmarks.answers import text_of
from benchmarks.crowd import Endless
from benchmarks.machine import machine
from benchmarks.raw_reader import RawReader
from benchmarks.turns import orders
from engine import Block, Engine, Message
from engine.base.choices import Quantize, Weights
from engine.base.errors import PromptCacheError
from engine.base.events import Delta, Finished
from engine.inference.model_settings import own_settings
from engine.inference.run_settings import RunSettings
from engine.model.loading import load
from engine.model.model import Model
from engine.pml import Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prepared import PreparedPrompt
from engine.store import Store

Timed = list[tuple[float, str]]
"""Texts of an answer, each with the milliseconds after which it was there."""
_ROLES = 64  # tokens that a chat template may add


@dataclass(frozen=True)
class Goal:
    """What the server may add.

    Attributes:
        figure: of an endpoint's `beyond`.
        words: what it is.
        most: the goal.
    """

    figure: str
    words: str
    most: float


GOALS = (
    Goal("first_ms", "ms to the first text beyond the engine's own", 3.0),
    Goal("first_share", "the same by the engine's own time", 0.05),
    Goal("token_ms", "ms to each further text beyond the engine's own", 0.3),
)


@dataclass(frozen=True)
class Endpoint:
    """An endpoint, and how its dialect says things.

    Attributes:
        path: of the requests.
        like: the way in which the engine is given the same prompt.
        body: makes the body of a request from a long text, a question and the most tokens.
        text: the text of an event; "" of one that has none.
    """

    path: str
    like: str
    body: Callable[[str, str, int], dict[str, Any]]
    text: Callable[[dict[str, Any]], str]


def _turns(long: str, question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": long}, {"role": "user", "content": question}]


CONVERSATION, RAW = "engine, a conversation", "engine, a text"
ENDPOINTS = (
    Endpoint(
        "/v1/chat/completions",
        CONVERSATION,
        lambda long, question, new: {"messages": _turns(long, question), "max_tokens": new},
        lambda event: event["choices"][0]["delta"].get("content") or "",
    ),
    Endpoint(
        "/v1/messages",
        CONVERSATION,
        lambda long, question, new: {
            "system": long,
            "messages": _turns(long, question)[1:],
            "max_tokens": new,
        },
        lambda event: event["delta"]["text"] if event["type"] == "content_block_delta" else "",
    ),
    Endpoint(
        "/v1/responses",
        CONVERSATION,
        lambda long, question, new: {"instructions": long, "input": question, "max_output_tokens": new},
        lambda event: event["delta"] if event["type"] == "response.output_text.delta" else "",
    ),
    Endpoint(
        "/v1/completions",
        RAW,
        lambda long, question, new: {"prompt": f"{long}\n\n{question}", "max_tokens": new},
        lambda event: event["choices"][0]["text"],
    ),
)


class Asked:
    """One prompt for an engine and for a server of it; answers end by their length alone.

    Args:
        model: the model that answers.
        folder: for a store.
        cached: about how many tokens stand before the question.
        new: about how many tokens the question has.
        tokens: of each answer.
        seed: the seed of the texts.

    Attributes:
        counts: of the latest answer of the engine in each way: tokens of the prompt, and those of it that
            were read.

    Raises:
        PromptCacheError: it does not fit the model's context window.
    """

    def __init__(self, model: Model, folder: Path, cached: int, new: int, tokens: int, seed: int) -> None:
        longest = cached + new + tokens + _ROLES
        if longest >= model.context_length:
            raise PromptCacheError(
                f"{longest} tokens do not fit the model's {model.context_length}; lower --cached."
            )
        model.__class__ = Endless
        draw = random.Random(seed)
        self._long, self._question = text_of(model, cached, draw), text_of(model, new, draw)
        self.engine, self._tokens = Engine(model, Store.open(folder)), tokens
        self.counts: dict[str, dict[str, int]] = {}

    def straight(self, way: str) -> Timed:
        """Asks the engine, after a time that does not count."""
        self._straight(way)
        return self._straight(way)

    def _straight(self, way: str) -> Timed:
        engine = self.engine
        given = {**own_settings(engine.model), "temperature": 0.0, "max_new_tokens": self._tokens}
        settings = RunSettings(hold_conversation=False, **given)
        found: Timed = []
        started = time.perf_counter()
        for event in engine.submit(self._prepared(way), settings).events():
            if isinstance(event, Delta) and event.text:
                found.append(((time.perf_counter() - started) * 1000, event.text))
            elif isinstance(event, Finished):
                self.counts[way] = {name: event.answer.tokens[name] for name in ("prompt", "read")}
        return found

    def _prepared(self, way: str) -> PreparedPrompt:
        if way == CONVERSATION:
            turns = (Message("system", (Block(self._long),)), Message("user", (Block(self._question),)))
            return self.engine.conversation(turns)
        schema = self.engine.schema(Schema("completion", (), (), NOWHERE))
        text = Text(f"{self._long}\n\n{self._question}", NOWHERE)
        return schema.prompt(Prompt("completion", (text,), NOWHERE))

    def served(self, reader: RawReader, endpoint: Endpoint) -> Timed:
        """Asks the server, after a time that does not count."""
        body = endpoint.body(self._long, self._question, self._tokens)
        common = {"model": self.engine.model.name, "stream": True, "temperature": 0}
        told = reader.ask(endpoint.path, {**common, **body})
        for _, event in told:
            if event.get("error"):
                raise PromptCacheError(f"{endpoint.path} broke off: {event['error']}")
        return [(ms, text) for ms, event in told if (text := endpoint.text(event))]


@contextlib.contextmanager
def serving(engine: Engine, longest: int) -> Iterator[int]:
    """Serves an engine on a thread of its own until the block ends; gives the port.

    Args:
        engine: who answers.
        longest: tokens of an answer.
    """
    service = Service(longest=longest)
    server = uvicorn.Server(configured(behind_the_door(application(service), Access())))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), name="server")
        thread.start()
        service.opened(engine)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def run(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    cached: int = 1024,
    new: int = 32,
    tokens: int = 64,
    repeats: int = 15,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures every endpoint.

    Args:
        model: name of the model.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: "auto", "packed" or "plain".
        quantize: how they are rounded: "none", "int8" or "int4".
        cached: about how many tokens stand before the question.
        new: about how many tokens the question has.
        tokens: of each answer.
        repeats: samples of each way, each after a time of the same way that does not count.
        seed: the seed of the texts, and of the orders in which the ways take turns.
        progress: called with a line of text now and then.

    Returns:
        `results` (of each way name, params, first_ms and token_ms with samples, median and least, prompt and
        read tokens where the engine was asked), `beyond` (of each endpoint `first_ms`, `first_share` and
        `token_ms`: the median of the rounds' differences, low and high of one round, and whether it had the
        engine's text), `goals` (endpoint, words, value, most, met), `machine`.

    Raises:
        PromptCacheError: numbers that cannot be run, or a model that cannot be loaded.
    """
    if min(cached, new, repeats) < 1 or tokens < 2:
        raise PromptCacheError("--cached, --new and --repeats must be at least 1, and --tokens at least 2.")
    say = progress or (lambda _: None)
    say(f"loading {model}")
    loaded = load(model, device=device, dtype=dtype, weights=weights, quantize=quantize)
    samples: dict[str, list[Timed]] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pml-bench-"))
        asked = Asked(loaded, Path(folder), cached, new, tokens, seed)
        stack.enter_context(asked.engine)
        reader = stack.enter_context(RawReader(stack.enter_context(serving(asked.engine, tokens))))
        ways = _ways(asked, reader)
        for number, order in enumerate(orders(len(ways), repeats, seed), 1):
            for index in order:
                name = list(ways)[index]
                found = ways[name]()
                _require_texts(name, found)
                samples.setdefault(name, []).append(found)
            say(f"round {number} of {repeats}")
    params = {"model": model, "dtype": loaded.dtype, "cached": cached, "new": new, "tokens": tokens}
    figures = {
        name: {"first_ms": _firsts(samples[name]), "token_ms": _tokens(samples[name])} for name in ways
    }
    beyond = [_beyond(endpoint, figures, samples) for endpoint in ENDPOINTS]
    return {
        "results": [
            {
                "name": name,
                "params": {**params, "seed": seed},
                **{figure: _median(values) for figure, values in found.items()},
                **asked.counts.get(name, {}),
            }
            for name, found in figures.items()
        ],
        "beyond": beyond,
        "goals": judged(beyond),
        "machine": machine(loaded),
    }


def _ways(asked: Asked, reader: RawReader) -> dict[str, Callable[[], Timed]]:
    """Every way by its name."""

    def straight(way: str) -> Callable[[], Timed]:
        return lambda: asked.straight(way)

    def served(endpoint: Endpoint) -> Callable[[], Timed]:
        return lambda: asked.served(reader, endpoint)

    return {
        **{way: straight(way) for way in (CONVERSATION, RAW)},
        **{endpoint.path: served(endpoint) for endpoint in ENDPOINTS},
    }


def _firsts(samples: Sequence[Timed]) -> list[float]:
    return [one[0][0] for one in samples]


def _tokens(samples: Sequence[Timed]) -> list[float]:
    return [(one[-1][0] - one[0][0]) / (len(one) - 1) for one in samples]


def _require_texts(name: str, texts: Timed) -> None:
    """Refuses an answer of which too little is seen, as where its tokens are parts of characters.

    Raises:
        PromptCacheError: it has no two texts.
    """
    if len(texts) < 2:
        raise PromptCacheError(f"{name}: an answer came in {len(texts)} texts and needs 2; raise --tokens.")


def _median(values: Sequence[float]) -> dict[str, Any]:
    return {"samples_ms": values, "median_ms": statistics.median(values), "least_ms": min(values)}


def _beyond(
    endpoint: Endpoint,
    figures: Mapping[str, Mapping[str, list[float]]],
    samples: Mapping[str, Sequence[Timed]],
) -> dict[str, Any]:
    """What an endpoint adds to the engine: figures of the rounds' differences."""
    ours, own = figures[endpoint.path], figures[endpoint.like]
    first, token = (
        [one - other for one, other in zip(ours[name], own[name], strict=True)]
        for name in ("first_ms", "token_ms")
    )
    whole = statistics.median(own["first_ms"])
    texts = {
        "".join(text for _, text in one) for name in (endpoint.path, endpoint.like) for one in samples[name]
    }
    return {
        "name": endpoint.path,
        "first_ms": _range(first),
        "first_share": _range([ms / whole for ms in first]),
        "token_ms": _range(token),
        "same_text": len(texts) == 1,
    }


def _range(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def judged(beyond: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every goal at every endpoint: what was measured, what is asked, and whether it is met.

    An endpoint that answered with another text than the engine's meets none.

    Args:
        beyond: what the endpoints add.
    """
    return [
        {
            "endpoint": one["name"],
            "words": goal.words,
            "value": one[goal.figure]["median"],
            "most": goal.most,
            "met": one["same_text"] and one[goal.figure]["median"] <= goal.most,
        }
        for goal in GOALS
        for one in beyond
    ]
