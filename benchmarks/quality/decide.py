"""Few-shot decisions per second: ours cached and uncached, transformers, and llama.cpp.

Each question has the modules with the examples in an order of its own, so a prefix cache helps little. The
time of transformers and of llama.cpp is that of the prompt up to the first token of the answer: they would
need more for all labels. llama.cpp reads the same GGUF file, and its answer counts as right if the greedy
text begins with the label.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import torch

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options
from app.cli.base.output import print_json, progress_bar, say, table
from app.cli.base.param_types import DOCUMENT, Whole
from engine.base.errors import PromptCacheError
from engine.decisions.decide import ask_all
from engine.decisions.questions import Question, choice
from engine.decisions.readout import Readout
from engine.engine import Engine
from engine.files.text_files import read_text_file
from engine.model.loading import load
from engine.pml.xml.escaping import escaped_text
from engine.prepared import PreparedPrompt, PreparedSchema
from engine.store import Store

READOUT = Readout(list_options=False)
WAYS: dict[str, dict[str, Any]] = {
    "uncached": {"mode": "uncached"},
    "anchored": {},
    "anchored impact:0.05": {"repair": "impact:0.05"},
    "anchored impact:0.15": {"repair": "impact:0.15"},
}
Answer = Callable[[PreparedPrompt, Question], str]


@dataclass(frozen=True)
class Rows:
    """Labelled texts: examples by label, (text, label) of each test, and the arrangement of the modules."""

    examples: dict[str, list[str]]
    tests: list[tuple[str, str]]
    arrangement: str = "mixed"

    @property
    def labels(self) -> list[str]:
        """The labels as the model writes them."""
        return [spoken(label) for label in self.examples]

    @cached_property
    def modules(self) -> list[str]:
        """The texts of the modules: one example of every label in each, or all examples of one label."""
        groups = [[_example(label, text) for text in texts] for label, texts in self.examples.items()]
        if self.arrangement == "mixed":
            groups = [list(group) for group in zip(*groups, strict=False)]
            for number, group in enumerate(groups):
                random.Random(number).shuffle(group)
        return ["".join(group) for group in groups]

    def schema(self) -> str:
        """A schema with all modules."""
        modules = "".join(
            f'<module name="m{number}">{escaped_text(text)}</module>'
            for number, text in enumerate(self.modules)
        )
        return f'<schema name="labels" xml:space="preserve">{modules}</schema>'

    def prompt(self, seed: int) -> str:
        """A prompt with all modules in an order of its own."""
        order = list(range(len(self.modules)))
        random.Random(seed).shuffle(order)
        imports = "".join(f"<m{number}/>" for number in order)
        return f'<prompt schema="labels" xml:space="preserve">{imports}</prompt>'


def spoken(label: str) -> str:
    """Returns a label as words."""
    return label.replace("_", " ")


def _example(label: str, text: str) -> str:
    return f"Message: {text}\nIntent: {spoken(label)}\n\n"


def read(path: str, limit: int, arrangement: str = "mixed") -> Rows:
    """Reads lines of JSON with `split`, `text` and `label`; the tests are spread over the labels.

    Raises:
        PromptCacheError: the file has no such lines.
    """
    examples: dict[str, list[str]] = {}
    tests: list[tuple[str, str]] = []
    for number, line in enumerate(read_text_file(Path(path)).splitlines(), 1):
        try:
            row = json.loads(line)
            if row["split"] == "train":
                examples.setdefault(row["label"], []).append(row["text"])
            else:
                tests.append((row["text"], row["label"]))
        except (ValueError, KeyError, TypeError) as error:
            raise PromptCacheError(f"{path}:{number} is not a labelled text: {error}.") from error
    if len(examples) < 2 or not tests:
        raise PromptCacheError(f"{path} needs examples (split train) of two labels, and tests.")
    random.Random(0).shuffle(tests)
    return Rows(examples, tests[:limit], arrangement)


@contextlib.contextmanager
def llama_cpp(path: str, tokens: int) -> Iterator[Answer]:
    """Opens llama.cpp's server on a GGUF file; each prompt is sent as token ids with its prompt cache on.

    Raises:
        PromptCacheError: xllamacpp is not installed.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise PromptCacheError("llama.cpp needs its server: pip install xllamacpp") from error
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = path, tokens, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
    params.cache_prompt, params.port, params.verbosity = True, 0, -1
    server = xllamacpp.Server(params)
    address = f"{server.listening_address}/completion"

    def answer(prompt: PreparedPrompt, question: Question) -> str:
        body = {"prompt": _ids(prompt, question), "n_predict": 8, "temperature": 0, "cache_prompt": True}
        data = json.dumps(body).encode()
        request = urllib.request.Request(address, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as response:
            found = json.load(response)
        answer.ms = found["timings"]["prompt_ms"]  # type: ignore[attr-defined]
        return str(found["content"]).strip().partition("\n")[0].strip()

    yield answer


def _ids(prompt: PreparedPrompt, question: Question) -> list[int]:
    (asked,) = ask_all(prompt.tokenized, [question], READOUT)
    return asked.prompt.planned(None).plan.token_ids


def transformers(engine: Engine) -> Answer:
    """The same network with torch's own attention, over the whole prompt."""
    module = engine.model.network.module

    @torch.inference_mode()
    def answer(prompt: PreparedPrompt, question: Question) -> str:
        before = module.config._attn_implementation
        module.set_attn_implementation("sdpa")
        try:
            module(input_ids=torch.tensor([_ids(prompt, question)]), use_cache=True, logits_to_keep=1)
        finally:
            module.set_attn_implementation(before)
        return ""

    return answer


def ours(given: dict[str, Any]) -> Answer:
    """A side of the engine, with a scope and a repair."""
    return lambda prompt, question: prompt.decide([question], READOUT, **given).answers[0].label


def measure(rows: Rows, schema: PreparedSchema, ways: dict[str, Answer], tell: Any) -> dict[str, Any]:
    """Asks each way every question, in turns, and returns its accuracy and times."""
    right = dict.fromkeys(ways, 0)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number, (text, label) in enumerate(rows.tests):
        source, question = rows.prompt(number), choice(f"Message: {text}\nIntent:", rows.labels)
        for name, answer in ways.items():
            tell(number, len(rows.tests), name)
            schema.prompt(source)  # a prompt of its own, so that no side finds plans of another
            started = time.perf_counter()
            found = answer(schema.prompt(source), question)
            took = (time.perf_counter() - started) * 1000
            times[name].append(getattr(answer, "ms", took))
            right[name] += found == spoken(label)
    return {
        name: {
            "accuracy": right[name] / len(rows.tests),
            "ms": sum(times[name]) / len(rows.tests),
            "per_second": 1000 * len(rows.tests) / sum(times[name]),
        }
        for name in ways
    }


@click.command()
@click.argument("path", metavar="FILE", type=DOCUMENT)
@click.option("--limit", type=Whole(1), default=48, show_default=True, help="Number of questions.")
@click.option(
    "--arrangement",
    type=click.Choice(["mixed", "grouped"]),
    default="mixed",
    show_default=True,
    help="mixed: a module has one example of every label; grouped: all examples of one label.",
)
@click.option("--gguf", help="GGUF file of the model for llama.cpp's server.")
@model_options
@json_option
@debug_option
def decide(
    path: str, limit: int, arrangement: str, gguf: str | None, as_json: bool, **choice_of_model: Any
) -> None:
    """Measure decisions per second over labelled texts in FILE."""
    options = ModelOptions(**choice_of_model)
    rows = read(path, limit, arrangement)
    with (
        tempfile.TemporaryDirectory(prefix="pml-decide-") as store,
        Engine(load(options.name, **options.loading), Store.open(Path(store))) as engine,
        contextlib.ExitStack() as stack,
    ):
        schema = engine.schema(rows.schema())
        ways = {name: ours(given) for name, given in WAYS.items()} | {"transformers": transformers(engine)}
        if gguf is not None:
            ways["llama.cpp"] = stack.enter_context(llama_cpp(gguf, engine.model.context_length))
        say("encoding the modules", err=True)
        schema.encode()
        with progress_bar() as progress:
            found = measure(rows, schema, ways, progress)
    if as_json:
        print_json(
            {"model": options.name, "arrangement": arrangement, "questions": len(rows.tests), "ways": found}
        )
        return
    say(
        table(
            ["", "accuracy", "ms a question", "questions/s", "÷ transformers"],
            [
                [
                    name,
                    "" if name == "transformers" else f"{of['accuracy']:.2f}",
                    f"{of['ms']:.0f}",
                    f"{of['per_second']:.2f}",
                    f"{found['transformers']['ms'] / of['ms']:.1f}",
                ]
                for name, of in found.items()
            ],
        )
    )
