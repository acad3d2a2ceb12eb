"""The HTTP server: its overhead over the engine, reordered blocks, and many requests against another engine.

The engine and the server are in this process. Another process reads the streams, so the times include no work
of a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import random
import socket
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import uvicorn

from app.cli.base.options import ModelOptions
from app.server.application import application, behind_the_door
from app.server.core.service import Service
from app.server.http.access import Access
from app.server.serving import configured
from app.studio.sweeps.crowd import Endless
from app.studio.sweeps.drawn import text_of
from app.studio.sweeps.turns import Way, known
from benchmarks.base.case import SAME_TEXT, Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from benchmarks.speed.reader import Events, Reader
from engine import Block, Engine, Message
from engine.base.errors import PromptCacheError
from engine.base.events import Delta, Finished
from engine.inference.model_settings import own_settings
from engine.inference.run_settings import RunSettings
from engine.pml import Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prepared import PreparedPrompt
from engine.store import Store

Texts = list[tuple[float, str]]
"""Texts of an answer, each with its milliseconds."""
CONVERSATION, RAW = "engine, a conversation", "engine, a text"
CHAT, MESSAGES, COMPLETIONS = "/v1/chat/completions", "/v1/messages", "/v1/completions"
GOALS = {"first ms": 3.0, "first share": 0.05, "token ms": 0.3}  # over the engine's own time
QUESTION = "Which of these is the longest?"
_ROLES = 128  # tokens that a chat template and a question may add
_SHORT = 8  # tokens of an answer to reordered blocks


def _turns(long: str, question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": long}, {"role": "user", "content": question}]


BODIES: dict[str, Callable[[str, str, int], dict[str, Any]]] = {
    CHAT: lambda long, ask, new: {"messages": _turns(long, ask), "max_tokens": new},
    MESSAGES: lambda long, ask, new: {"system": long, "messages": _turns("", ask)[1:], "max_tokens": new},
    "/v1/responses": lambda long, ask, new: {"instructions": long, "input": ask, "max_output_tokens": new},
    COMPLETIONS: lambda long, ask, new: {"prompt": f"{long}\n\n{ask}", "max_tokens": new},
}


def text_in(event: dict[str, Any]) -> str:
    """The text of an event of any endpoint."""
    for choice in event.get("choices", ()):
        return str(choice.get("text") or choice.get("delta", {}).get("content") or "")
    if event.get("type") == "content_block_delta":
        return str(event["delta"].get("text", ""))
    return str(event["delta"]) if event.get("type") == "response.output_text.delta" else ""


@contextlib.contextmanager
def serving(size: Size, longest: int, say: Say) -> Iterator[tuple[Engine, int]]:
    """An engine whose answers end by length only, and the port of its server."""
    model = copy.copy(size.loaded(say, longest + _ROLES))
    model.__class__ = Endless
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        Engine(model, Store.open(Path(folder))) as engine,
        running(engine, Service(longest=longest)) as port,
    ):
        yield engine, port


@contextlib.contextmanager
def running(engine: Engine, service: Service) -> Iterator[int]:
    """The port of a server with an engine."""
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


@case
def overhead(group: Group, say: Say, size: Size, tokens: int) -> Sides:
    """The same prompt straight to the engine and to each endpoint: milliseconds to the first text."""
    draw = random.Random(size.seed)
    with serving(size, tokens, say) as (engine, port), Reader("127.0.0.1", port, 2) as reader:
        model = engine.model
        group.params = {**size.params(model), "tokens": tokens}
        long, question = text_of(model, size.cached, draw), text_of(model, size.new, draw)
        given: dict[str, list[Texts]] = {}

        def straight(way: str) -> Texts:
            settings = {**own_settings(model), "temperature": 0.0, "max_new_tokens": tokens}
            found: Texts = []
            started = time.perf_counter()
            prompt = _prepared(engine, way, long, question)
            events = engine.submit(prompt, RunSettings(hold_conversation=False, **settings)).events()
            for event in events:
                if isinstance(event, Delta) and event.text:
                    found.append(((time.perf_counter() - started) * 1000, event.text))
                elif isinstance(event, Finished):
                    counts = event.answer.tokens
                    group.values[f"{way}: tokens read"] = f"{counts['read']} of {counts['prompt']}"
            return found

        def over_http(path: str) -> Texts:
            body = {"model": model.name, "stream": True, "temperature": 0}
            (events,) = reader.ask(path, [body | BODIES[path](long, question, tokens)])
            return texts_of(events)

        def first(name: str, ask: Callable[[], Texts]) -> float:
            found = ask()
            if len(found) < 2:
                raise PromptCacheError(
                    f"{name}: an answer had {len(found)} texts and needs 2; raise --tokens."
                )
            given.setdefault(name, []).append(found)
            return found[0][0]

        asks: dict[str, Callable[[], Texts]] = {way: partial(straight, way) for way in (CONVERSATION, RAW)}
        asks |= {path: partial(over_http, path) for path in BODIES}
        yield [Way(name, partial(first, name, ask)) for name, ask in asks.items()]
        for name, found in given.items():
            given[name] = found[1::2]  # the others warm up
            group.values[f"{name}: token ms"] = statistics.median(_token(one) for one in given[name])
        for path in BODIES:
            _compare(group, path, given[path], given[RAW if path == COMPLETIONS else CONVERSATION])


def _prepared(engine: Engine, way: str, long: str, question: str) -> PreparedPrompt:
    if way == CONVERSATION:
        turns = (Message("system", (Block(long),)), Message("user", (Block(question),)))
        return engine.conversation(turns)
    text = Text(f"{long}\n\n{question}", NOWHERE)
    schema = engine.schema(Schema("completion", (), (), NOWHERE))
    return schema.prompt(Prompt("completion", (text,), NOWHERE))


def _token(texts: Texts) -> float:
    """Milliseconds of a text after the first."""
    return (texts[-1][0] - texts[0][0]) / (len(texts) - 1)


def _compare(group: Group, path: str, ours: Sequence[Texts], engines: Sequence[Texts]) -> None:
    """Adds the medians of the rounds' differences to the values, with the goals."""
    pairs = list(zip(ours, engines, strict=True))
    first = statistics.median(one[0][0] - own[0][0] for one, own in pairs)
    found = {
        "first ms": first,
        "first share": first / statistics.median(own[0][0] for _, own in pairs),
        "token ms": statistics.median(_token(one) - _token(own) for one, own in pairs),
    }
    same = len({"".join(text for _, text in one) for pair in pairs for one in pair}) == 1
    group.values[f"{path}, {SAME_TEXT}"] = "yes" if same else "no"
    for name, value in found.items():
        verdict = "met" if same and value <= GOALS[name] else "missed"
        group.values[f"{path}, {name}"] = value
        group.notes.append(f"{path}, {name} over the engine: {value:.3f}, ≤ {GOALS[name]:g} {verdict}")


def texts_of(events: Events) -> Texts:
    """The texts of a stream."""
    return [(ms, text) for ms, event in events if (text := text_in(event))]


@case
def moved(group: Group, say: Say, size: Size, blocks: int, path: str, *, named: bool) -> Sides:
    """Time to the first text of blocks in one order, and of the same blocks with the last one first."""
    draw = random.Random(size.seed)
    with serving(size, _SHORT, say) as (engine, port), Reader("127.0.0.1", port) as reader:
        group.params = {**size.params(engine.model), "blocks": blocks}
        texts: dict[str, str] = {}

        def ask(order: Sequence[str]) -> float:
            body = {
                "model": engine.model.name,
                **_body(path, {name: texts[name] for name in order}, named),
            }
            (events,) = reader.ask(path, [body])
            found = texts_of(events)
            if not found:
                raise PromptCacheError(f"{path}: no text came; take another --seed.")
            group.values["tokens read of the latest request"] = _read(path, events)
            return found[0][0]

        def draw_new() -> None:
            each = size.cached // blocks
            texts.update({f"block-{n}": text_of(engine.model, each, draw) for n in range(blocks)})

        def after(run: Sequence[str]) -> Callable[[], None]:
            def prepare() -> None:
                draw_new()
                ask(run)
                engine.store.finish_writing()

            return prepare

        names = [f"block-{number}" for number in range(blocks)]
        yield [
            Way("first", lambda: ask(names), draw_new),
            Way("moved", lambda: ask([names[-1], *names[:-1]]), after(names)),
        ]


def _body(path: str, texts: dict[str, str], named: bool) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts.values()]
    if named:
        for name, block in zip(texts, blocks, strict=True):
            block["module"] = name
    elif path == CHAT:
        blocks[-1]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    else:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    content = [*blocks, {"type": "text", "text": QUESTION}]
    options = {"stream_options": {"include_usage": True}} if path == CHAT else {}
    common = {"max_tokens": _SHORT, "temperature": 0, "stream": True, **options}
    return {"messages": [{"role": "user", "content": content}], **common}


def _read(path: str, events: Events) -> str:
    """Tokens that a request read from the cache."""
    if path == CHAT:
        usage = next(event["usage"] for _, event in reversed(events) if event.get("usage"))
        return f"{usage['prompt_tokens_details']['cached_tokens']} of {usage['prompt_tokens']}"
    usage = next(event["message"]["usage"] for _, event in events if event["type"] == "message_start")
    read = usage["cache_read_input_tokens"]
    return f"{read} of {usage['input_tokens'] + read + usage['cache_creation_input_tokens']}"


@case
def requests(group: Group, say: Say, size: Size, prompts: int, tokens: int, against: str) -> Sides:
    """Many requests at once with a shared beginning, to our server and to another one."""
    with contextlib.ExitStack() as stack:
        engine, port = stack.enter_context(serving(size, tokens, say))
        group.params = {**size.params(engine.model), "prompts": prompts, "tokens": tokens}
        draw = random.Random(size.seed)
        shared, bodies = text_of(engine.model, size.cached, draw), list[dict[str, Any]]()
        firsts: dict[str, list[float]] = {}

        def prepare() -> None:
            bodies[:] = [
                _completion(f"{shared} {text_of(engine.model, size.new, draw)}") for _ in range(prompts)
            ]

        def _completion(prompt: str) -> dict[str, Any]:
            return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}

        def ask(name: str, reader: Reader, path: str, more: dict[str, Any]) -> float:
            started = time.perf_counter()
            answers = reader.ask(path, [{**body, **more} for body in bodies])
            taken = (time.perf_counter() - started) * 1000
            found = [texts[0][0] for one in answers if (texts := texts_of(one))]
            firsts.setdefault(name, []).append(statistics.fmean(found) if found else 0.0)
            return taken

        sides: dict[str, tuple[Reader, str, dict[str, Any]]] = {}
        ours = stack.enter_context(Reader("127.0.0.1", port))
        sides["ours"] = (ours, COMPLETIONS, {"model": engine.model.name})
        if against:
            parts = urlsplit(against)
            base = parts.path.rstrip("/").removesuffix("/v1")
            theirs = stack.enter_context(Reader(parts.hostname or "", parts.port or 80))
            more = {
                "model": _model_at(f"{against.removesuffix('/').removesuffix('/v1')}"),
                "ignore_eos": True,
            }
            sides["theirs"] = (theirs, f"{base}{COMPLETIONS}", more)
        yield [Way(name, partial(ask, name, *how), prepare) for name, how in sides.items()]
        for name, found in firsts.items():
            group.values[f"{name}: mean ms to the first text"] = statistics.median(found[1::2])


def _model_at(url: str) -> str:
    """The first model of a server."""
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except (OSError, ValueError, LookupError) as error:
        raise PromptCacheError(f"{url}/v1/models names no model: {error}") from error


@command(cached=1024, new=32, tokens=64, repeats=15, seed=0)
def serve(options: ModelOptions, cached: int, new: int, tokens: int, repeats: int, seed: int) -> Report:
    """Milliseconds that the server adds to an answer's first text, and to each further one.

    The same prompt goes straight to the engine and, streamed, to each endpoint, in turns.
    """
    return report_of(
        [overhead("", size_of(options, cached, 1, new, seed), tokens)], pace_of(repeats, seed), narrate
    )


@command(blocks=3, tokens=1300, repeats=7, seed=0)
def reorder(options: ModelOptions, blocks: int, tokens: int, repeats: int, seed: int) -> Report:
    """Time to the first text of blocks as A B C, and then as C A B.

    The requests go to the server in both APIs: with the last block marked, and with a name for every block.
    The texts are new in each round. --tokens is the length of a block.
    """
    size = size_of(options, blocks * tokens, blocks, 1, seed)
    cases = [
        moved(f"{how}, {path}", size, blocks, path, named=how == "named")
        for how in ("marked", "named")
        for path in (CHAT, MESSAGES)
    ]
    return report_of(cases, pace_of(repeats, seed), narrate)


@click.option(
    "--against", default="", metavar="URL", help="Another server, for example http://127.0.0.1:8080."
)
@command(prompts=8, shared=2048, own=64, tokens=64, repeats=5, seed=0)
def crowd(
    options: ModelOptions,
    against: str,
    prompts: int,
    shared: int,
    own: int,
    tokens: int,
    repeats: int,
    seed: int,
) -> Report:
    """Requests per second with a shared beginning, ours and those of another engine in turns.

    --against names a server with OpenAI's API and the same model, such as vLLM or `llama-server`.
    """
    case = requests("", size_of(options, shared, 1, own, seed), prompts, tokens, against)
    report = report_of([case], pace_of(repeats, seed), narrate)
    (group,) = report["groups"]
    for name, samples in group["samples_ms"].items():
        group["values"][f"{name}: requests per second"] = 1000 * prompts / statistics.median(known(samples))
    return report
