"""Time of a token after cached tokens: of plain and packed weights, with guesses, and of whole answers."""

from __future__ import annotations

import copy
import statistics
import tempfile
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from app.cli.base.options import ModelOptions
from app.studio.sweeps.drawn import drawn_tokens, spans
from app.studio.sweeps.turns import Way
from benchmarks.base.case import SAME_TEXT, Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from benchmarks.peers import beside
from benchmarks.speed.first import SAMPLES
from benchmarks.speed.ttft import encoded
from engine.base.choices import Speculate
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill
from engine.inference.run_settings import SamplingParams
from engine.kv_cache.protocol import KVCache, Rowwise
from engine.model.loading import load
from engine.model.model import Model
from engine.model.network import Network
from engine.prepared import PreparedPrompt

NEW = 4  # tokens after the cached ones
STEPS = 16
QUOTING = "documents"  # answers to this sample quote their documents
_ABOVE = 64.0  # of the top score, in standard deviations: rounding changes nothing
_LONGER = 32  # tokens beyond an answer, so that no limit shortens the guesses
_GUESSES: dict[str, Speculate] = {"step with guesses": "auto", "step without guesses": "off"}


class Decoding:
    """Answers over random tokens in modules of equal length."""

    def __init__(self, model: Model, size: Size, steps: int) -> None:
        tokens = drawn_tokens(int(model.config.vocab_size), size.cached + NEW, size.seed)
        placements = encoded(model, tokens, spans(size.cached, size.modules))
        after = range(size.cached, size.cached + NEW)
        self._model, self._steps = model, steps
        self._prefill = Prefill(placements, tokens[size.cached :], after, tokens, size.cached + NEW)

    def time(self) -> float:
        """Milliseconds of the median step, without the first two."""
        return statistics.median(self._answered(self._steps + 2)[1:])

    def mean(self, tokens: int) -> float:
        """Milliseconds of a token: the mean of all but the first."""
        return statistics.fmean(self._answered(tokens))

    def _answered(self, tokens: int) -> list[float]:
        params = SamplingParams(max_new_tokens=tokens, speculate="off")
        return _endless(Sequence(self._model, self._prefill, params), tokens).step_ms


def _endless(sequence: Sequence, tokens: int) -> Sequence:
    """Steps to this number of tokens, whatever ends an answer of random weights."""
    while len(sequence.token_ids) < tokens:
        sequence.ending = None
        sequence.step()
    return sequence


@case
def layouts(group: Group, say: Say, size: Size, weights: Any, quantize: Any) -> Sides:
    """A step with plain, packed and rounded weights; each is a model of its own."""
    device = dict(size.loading).get("device", "auto")
    dtype = "bf16" if quantize != "none" and size.dtype == "auto" else size.dtype
    sides = ("plain", "packed") if weights == "auto" else (weights,)
    asked: dict[str, dict[str, Any]] = {f"step_{side}": {"weights": side} for side in sides}
    if quantize != "none":
        asked[f"step_{quantize}"] = {"quantize": quantize}
    ways = []
    for name, how in asked.items():
        say(f"loading {size.model} for {name}")
        model = load(size.model, device=device, dtype=dtype, **how)
        if size.cached + NEW + STEPS + 2 >= model.context_length:
            raise PromptCacheError(f"--cached {size.cached} does not fit {model.context_length} tokens.")
        group.params = {**size.params(model), "weights": "of each row"}
        ways.append(Way(name, Decoding(model, size, STEPS).time))
    yield ways


@case
def step(group: Group, say: Say, size: Size, answered: int) -> Sides:
    """A token and a median step, with other programs."""
    model = size.open(group, say, answered + STEPS)
    decoding = Decoding(model, size, STEPS)
    ours = [Way("token", partial(decoding.mean, answered)), Way("step", decoding.time)]
    with beside(group, size, ("decode",), say) as others:
        yield [*ours, *others]


class _Replaying(Network):
    """A network with a given token on top at each position."""

    def __init__(self, network: Network, start: int, answer: Items[int]) -> None:
        super().__init__(network.module, network.setup)
        self._start, self._answer = start, answer

    def forward(
        self,
        token_ids: Items[int],
        positions: Items[int],
        kv: KVCache,
        keep: int | Tensor = 1,
        *,
        rowwise: Rowwise | None = None,
    ) -> Tensor:
        logits = super().forward(token_ids, positions, kv, keep, rowwise=rowwise).clone()
        rows = range(len(positions))[-keep:] if isinstance(keep, int) else keep.tolist()
        for row, place in zip(logits, (positions[index] for index in rows), strict=True):
            at = place - self._start + 1
            if at < len(self._answer):  # an idle row may follow the last token
                row[self._answer[at]] = row.max() + _ABOVE * row.float().std().to(row.dtype)
        return logits


class Replay:
    """A given answer to a prompt. A network of any size computes the passes.

    Random weights quote nothing, and the passes of the bundled model are very short. So a large network
    computes the passes, and the tokens are those of the bundled model: guesses are right as often.
    """

    def __init__(self, model: Model, tokenizer: object, prompt: Items[int], answer: Items[int]) -> None:
        if max(*prompt, *answer) >= int(model.config.vocab_size):
            raise PromptCacheError(f"{model.name} has no token {max(*prompt, *answer)}.")
        cached, after = len(prompt) - 1, len(prompt)
        placements = encoded(model, prompt, spans(cached, min(8, cached)))
        self._model = copy.copy(model)
        self._model.network = _Replaying(model.network, after, answer)
        self._model.tokenizer = tokenizer
        self._prefill = Prefill(placements, prompt[cached:], range(cached, after), prompt, after)
        self._answer = list(answer)

    def ask(self, speculate: Speculate) -> tuple[float, int, int, object]:
        """Milliseconds, tokens after the first, passes, and the answer."""
        params = SamplingParams(max_new_tokens=len(self._answer) + _LONGER, speculate=speculate)
        found = _endless(Sequence(self._model, self._prefill, params), len(self._answer))
        return sum(found.step_ms), len(found.step_ms), found.passes, found.token_ids


@case
def quoting(
    group: Group, say: Say, size: Size | None, prompts: int | None, quoted: int, *, peers: bool = False
) -> Sides:
    """Answers that quote their documents, with guesses and without."""
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        Engine.open("demo", cache_dir=Path(folder)) as engine,
    ):
        schema = engine.schema(SAMPLES / f"{QUOTING}.pml")
        paths = sorted(SAMPLES.glob(f"{QUOTING}.prompt.*.pml"))[:prompts]
        asked = [schema.prompt(path) for path in paths]
        shape, sides = _sides(size, engine.model, asked, quoted, say)
        group.params = shape.params(shape.loaded(say, 0) if size else engine.model)
        found: dict[Speculate, list[tuple[float, int, int, object]]] = {}

        def pace(speculate: Speculate) -> float:
            """Milliseconds of a token, over all answers."""
            found[speculate] = [side(speculate) for side in sides]
            return sum(one[0] for one in found[speculate]) / sum(one[1] for one in found[speculate])

        ways = [Way(name, partial(pace, speculate)) for name, speculate in _GUESSES.items()]
        with beside(group, replace(shape, peers=peers), ("decode",), say) as others:
            yield [*ways, *others]
        passes = {name: sum(one[2] for one in found[how]) for name, how in _GUESSES.items()}
        group.values |= {f"passes, {name}": count for name, count in passes.items()}
        guessed, plain = ([one[3] for one in found[how]] for how in _GUESSES.values())
        group.values[SAME_TEXT] = "yes" if guessed == plain else "no"


Ask = Callable[[Speculate], tuple[float, int, int, object]]


def _sides(
    size: Size | None, small: Model, prompts: Items[PreparedPrompt], quoted: int, say: Say
) -> tuple[Size, list[Ask]]:
    """The size for other programs, and a function for each prompt that answers it."""
    given = [list(prompt.tokenized.planned(None).plan.token_ids) for prompt in prompts]
    if size is None:
        mean = sum(map(len, given)) // len(given)
        return Size("", "demo", small.dtype, mean - 1, 1, 1), [partial(_own, one, quoted) for one in prompts]
    longest = max(size.cached, *(len(tokens) - 1 for tokens in given))
    shape = replace(size, cached=longest, new=1)
    model, sides = shape.loaded(say, quoted + _LONGER), list[Ask]()
    for number, (prompt, tokens) in enumerate(zip(prompts, given, strict=True)):
        answer = prompt.answer(mode="uncached", max_new_tokens=quoted, speculate="off").token_ids
        before = drawn_tokens(int(small.config.vocab_size), longest + 1 - len(tokens), number)
        say(f"encoding prompt {number + 1} of {len(prompts)}")
        sides.append(Replay(model, small.tokenizer, [*before, *tokens], answer).ask)
    return shape, sides


def _own(prompt: PreparedPrompt, quoted: int, speculate: Speculate) -> tuple[float, int, int, object]:
    """The answer of the bundled model."""
    answer = prompt.answer(max_new_tokens=quoted, speculate=speculate)
    count = answer.tokens["generated"] - 1
    return answer.tpot_ms * count, count, answer.passes, answer.text


@command(cached=512, modules=8, repeats=5, seed=0)
def decode(options: ModelOptions, cached: int, modules: int, repeats: int, seed: int) -> Report:
    """Time of a token after cached tokens, with plain and with packed weights in turns.

    A sample is the median of 16 steps. Each side has a model in memory, unless --weights names one.
    --quantize adds a side with rounded weights; then all sides compute in bf16, unless --dtype is given.
    The second table has answers of the bundled model that quote their documents, with guesses and without.
    """
    size = size_of(options, cached, modules, NEW, seed)
    cases = [
        layouts("", size, options.weights, options.quantize),
        quoting("bundled model, quoting", None, 2, 64),
    ]
    return report_of(cases, pace_of(repeats, seed), narrate)
