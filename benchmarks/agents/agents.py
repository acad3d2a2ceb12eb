"""The command `python -m benchmarks agents`: how much of an agent's prompts the server reads from its cache.

Recorded runs of two agents go to the server as a client sends them: each request repeats the conversation
with the server's own answers. The model says the recorded answers, which stand in for its choices; all else
is computed. A line at the top has a nonce, which stays or changes with each request.
"""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click
import httpx

from app.cli.base.options import ModelOptions
from app.cli.base.param_types import Whole
from app.server.core.service import Service
from benchmarks.base.case import Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from benchmarks.speed.serve import CHAT, running
from engine import Engine
from engine.inference.sampler import Sampler
from engine.model.model import Model
from engine.prompt.template.chat_template import ChatFormat
from engine.store import Store

FOLDER = Path(__file__).parent
GOALS = {"stays": 0.97, "changes": 0.90}  # share of the tokens of earlier requests and answers
MOST_TURNS = 20
_LONGEST = 400  # tokens of an answer
_SECONDS = 600
_ANSWERS: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|im_end|>", "content": "text"},
    },
}
"""How calls are read from an answer, for tokenizers of transformers."""

Ask = Callable[[list[dict[str, Any]], str], dict[str, Any]]
"""Sends messages, has the model say a text, and returns the message of the answer."""


@case
def agent(
    group: Group, say: Say, size: Size, name: str, turns: int, nonce: str, moves: bool = False
) -> Sides:
    """One run of an agent; `nonce` says whether the line at the top stays or changes."""
    recorded = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    model = with_tools(size.loaded(say, _LONGEST))
    group.params = size.params(model)
    usages: list[dict[str, Any]] = []
    with _serving(model, moves) as (engine, port), httpx.Client(timeout=_SECONDS) as client:

        def ask(messages: list[dict[str, Any]], answer: str) -> dict[str, Any]:
            number = len(usages) if nonce == "changes" else 0
            head = {**messages[0], "content": recorded["system"].replace("{nonce}", f"4c{number:04}b7")}
            body = {"model": model.name, "messages": [head, *messages[1:]], "temperature": 0}
            body |= {"max_tokens": _LONGEST, "tools": recorded.get("tools", [])}
            with _saying(engine.model, answer):
                made = client.post(f"http://127.0.0.1:{port}{CHAT}", json=body)
            made.raise_for_status()
            usages.append(made.json()["usage"])
            message: dict[str, Any] = made.json()["choices"][0]["message"]
            return message

        play = _code if "tools" in recorded else _chat
        play(recorded, ask, turns)
        yield []
    shares = [usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"] for usage in usages]
    read, prompt = (sum(one(usage) for usage in usages[1:]) for one in (_read, _prompt))
    before = sum(_prompt(usage) + int(usage["completion_tokens"]) for usage in usages[:-1])
    share = read / before
    group.values["requests"] = len(usages)
    group.values["tokens of the last prompt"] = usages[-1]["prompt_tokens"]
    group.values["read, of the tokens of earlier requests and answers"] = share
    group.values["read, of all prompt tokens after the first request"] = read / prompt
    group.values["read, of the last prompt"] = shares[-1]
    goal = GOALS[nonce]
    verdict = "met" if share >= goal else "missed"
    group.notes.append(f"read of earlier tokens: {share:.3f}, ≥ {goal:g} {verdict}")


def _read(usage: dict[str, Any]) -> int:
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def _prompt(usage: dict[str, Any]) -> int:
    return int(usage["prompt_tokens"])


def _code(recorded: dict[str, Any], ask: Ask, turns: int) -> None:
    """A coding agent: each answer calls a tool, until the last."""
    messages = [{"role": "system"}, {"role": "user", "content": recorded["task"]}]
    for turn in recorded["turns"][:turns]:
        call = turn.get("call")
        separators = (",", ":") if turn.get("compact") else (", ", ": ")
        spelled = json.dumps(call, ensure_ascii=False, separators=separators)
        message = ask(messages, turn["text"] + (f"\n<tool_call>\n{spelled}\n</tool_call>" if call else ""))
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": made["id"], "content": turn["result"]}
            for made in message.get("tool_calls", [])
        ]


def _chat(recorded: dict[str, Any], ask: Ask, turns: int) -> None:
    """A chat over documents: two of them before each question."""
    messages = [{"role": "system"}]
    for turn in recorded["questions"][:turns]:
        texts = [*(recorded["documents"][name] for name in turn["documents"]), turn["question"]]
        blocks = [{"type": "text", "text": text} for text in texts]
        messages.append({"role": "user", "content": blocks})  # type: ignore[dict-item]
        messages.append(ask(messages, turn["answer"]))


def with_tools(model: Model) -> Model:
    """Returns the model with a chat template that has tools; its own may have none."""
    found = copy.copy(model)
    found.tokenizer = copy.deepcopy(model.tokenizer)
    found.tokenizer.chat_template = (FOLDER / "chat_template.jinja").read_text(encoding="utf-8")
    found.tokenizer.response_template = _ANSWERS
    found.chat = ChatFormat(found.tokenizer)
    return found


@contextlib.contextmanager
def _serving(model: Model, moves: bool) -> Iterator[tuple[Engine, int]]:
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        Engine(model, Store.open(Path(folder))) as engine,
        running(engine, Service(longest=_LONGEST, moves=moves)) as port,
    ):
        yield engine, port


@contextlib.contextmanager
def _saying(model: Model, text: str) -> Iterator[None]:
    """Has the model say a text and end its answer."""
    script = iter([*model.tokenize(text), min(model.end_tokens)])

    def choose(sampler: Sampler, *_: Any) -> int:
        token = next(script)
        sampler.note(token)
        return token

    with mock.patch.object(Sampler, "choose", choose), mock.patch.object(Sampler, "sure", return_value=True):
        yield


@click.option(
    "--modules", type=click.Choice(["off", "auto"]), default="off", show_default=True, help="As of pml serve."
)
@click.option(
    "--turns", type=Whole(2, MOST_TURNS), default=MOST_TURNS, show_default=True, help="Requests of each run."
)
@command(seed=0)
def agents(options: ModelOptions, modules: str, turns: int, seed: int) -> Report:
    """Share of an agent's prompt tokens that the server reads from its cache.

    The runs are a coding agent with tools, and a chat over documents. A line at the top stays, or changes
    with each request.
    """
    size = size_of(options, 1, 1, 1, seed)
    cases = [
        agent(f"{name}, the line at the top {nonce}", size, name, turns, nonce, modules == "auto")
        for name in ("coding", "rag")
        for nonce in GOALS
    ]
    return report_of(cases, pace_of(1, seed), narrate)
