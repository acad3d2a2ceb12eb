"""Answers over nodes of the prefix tree: the same as without, and less to compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import wanted
from engine.engine import Engine
from engine.inference.generation import Sequence as Answering
from engine.inference.prefill import Prefill, prefill, whole
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import returned
from engine.model.model import Model
from engine.pml.xml.escaping import escaped_text
from engine.prefix_tree.tree import FEWEST_ALIKE, Computed, PrefixTree
from engine.prompt.trail import CHUNK, Chunk, Trail
from engine.store import Store
from tests.drawing import EVERY, each
from tests.engine.cases import apart, model_of, prompt_of, schema_of
from tests.engine.tiny import tiny_model

FAMILIES = each(
    ["llama-gqa", "gemma2", "gpt-oss", "smollm3", "opt", "falcon", "bloom"], "gemma2", "opt", "bloom"
)
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 3
SCHEMA = f"""<schema name="s"><system>You plan. {LONG}</system><user>Read.
<module name="b">beta with <param name="p" len="90"/> in it</module>
<module name="a">alpha and more of it</module></user><assistant>Done.</assistant>
</schema>"""
PROMPT = f"""<prompt><b p="what somebody says"/><a/><user>{LONG} Well?</user></prompt>"""
SETTINGS = RunSettings(max_new_tokens=70, temperature=0.0, speculate="off", hold_conversation=False)
SHORT = replace(SETTINGS, max_new_tokens=8)  # if no later prompt reads the answer's states
CUTS = ((200, 0), (127, 60), (128, 60), (65, 0), (150, 60), (200, 40), (128, 0), (1, 70))


@pytest.fixture(params=FAMILIES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """One without a tree of its own, of which there can be one at a time."""
    opened = Engine(model_of(request.param), Store.open(tmp_path), deterministic=True)
    yield opened
    opened.close()


@dataclass
class Run:
    """An answer, and what it took.

    Attributes:
        sequence: the answer, ended.
        inserted: how many tokens the tree has taken in of it.
    """

    sequence: Answering
    inserted: int = 0

    @property
    def computed(self) -> int:
        return len(self.sequence.prefill.token_ids)

    @property
    def token_ids(self) -> list[int]:
        return self.sequence.token_ids

    @property
    def first_logits(self) -> torch.Tensor:
        assert self.sequence.first_logits is not None
        return self.sequence.first_logits

    def same_as(self, other: Run) -> None:
        assert self.token_ids == other.token_ids
        assert apart(self.first_logits, other.first_logits) <= 1e-4


def answered(model: Model, new: Prefill, settings: RunSettings = SETTINGS) -> Run:
    sequence = Answering(model, new, settings)
    while sequence.ending is None:
        sequence.step()
    return Run(sequence)


def run(
    engine: Engine,
    tree: PrefixTree | None,
    prompt: str = PROMPT,
    scope: Any = "anchored",
    schema: str = SCHEMA,
) -> Run:
    """One prompt answered over a tree, as a scheduler does it; without a scope every token is computed."""
    prepared = engine.schema(schema_of(schema)).prompt(prompt_of(prompt))
    planned = prepared.tokenized.planned(scope, turns_held=False)
    if scope is None:
        assert tree is None
        return answered(engine.model, whole(planned.plan))
    steps = engine.segment_cache.segments(wanted(planned.slices), Request("s", scope), Stopwatch())
    with returned(steps) as fetched:
        new = prefill(engine.model, planned.plan, planned.slices, fetched.place(planned.slices), "none")
        if tree is None:
            return answered(engine.model, new)
        with tree.acquire(Trail.of_plan(planned.plan, planned.slices)) as lease:
            made = answered(engine.model, lease.without(new))
            answer = made.token_ids[: made.sequence.answered]
            trail = Trail.of_plan(planned.plan, planned.slices, answer)
            made.inserted = tree.insert(trail, Computed(*made.sequence.computed()))
    return made


def run_tokens(
    model: Model, tree: PrefixTree | None, tokens: Sequence[int], settings: RunSettings = SETTINGS
) -> Run:
    """A prompt of plain tokens."""
    new = Prefill((), tokens, range(len(tokens)), tokens, len(tokens))
    if tree is None:
        return answered(model, new, settings)
    with tree.acquire(Trail.of_runs([Chunk(0, tuple(tokens))])) as lease:
        made = answered(model, lease.without(new), settings)
        answer = made.token_ids[: made.sequence.answered]
        trail = Trail.of_runs([Chunk(0, (*tokens, *answer))])
        made.inserted = tree.insert(trail, Computed(*made.sequence.computed()))
    return made


def drawn(seed: int, tokens: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(3, 250, (tokens,), generator=generator).tolist()
    return found


def test_an_answer_over_nodes_is_the_answer_without(engine: Engine) -> None:
    alone, tree = run(engine, None), PrefixTree(engine.segment_cache)
    first = run(engine, tree)
    assert (first.computed, first.token_ids) == (alone.computed, alone.token_ids)
    assert first.inserted > alone.computed
    again = run(engine, tree)
    again.same_as(alone)
    assert 0 < again.computed <= CHUNK
    assert again.sequence.counts["from_cache"] == again.sequence.counts["prompt"] - again.computed


def test_plain_prompts_read_the_uncached_answers_states_wherever_they_part(engine: Engine) -> None:
    """Also within a chunk, at its end, and if one prompt is the beginning of another."""
    tree, model = PrefixTree(engine.segment_cache), engine.model
    base = drawn(1, 200)
    run_tokens(model, tree, base)
    for cut, more in CUTS if EVERY else CUTS[:4]:
        tokens = base[:cut] + drawn(cut, more)
        found = run_tokens(model, tree, tokens, SHORT)
        found.same_as(run_tokens(model, None, tokens, SHORT))
        whole = cut // CHUNK * CHUNK
        read = cut if cut - whole >= FEWEST_ALIKE and cut < 200 // CHUNK * CHUNK else whole
        assert found.computed == max(1, len(tokens) - read)


def test_a_conversation_in_pml_finds_its_last_turn(tmp_path: Path) -> None:
    """The text of an answer is tokenized again, and comes out as the tokens that it was."""
    schema = """<schema name="s"><system>You plan trips.</system></schema>"""
    asked = f"<user>{LONG} What should I see in Rome?</user>"
    with Engine.open("demo", device="cpu", dtype="fp32", cache_dir=tmp_path, deterministic=True) as engine:
        tree = PrefixTree(engine.segment_cache)
        first = run(engine, tree, f"<prompt>{asked}</prompt>", schema=schema)
        answer = escaped_text(first.sequence.text)
        turns = f"<prompt>{asked}<assistant>{answer}</assistant><user>Why?</user></prompt>"
        second = run(engine, tree, turns, schema=schema)
        second.same_as(run(engine, None, turns, schema=schema))
        spoken = first.sequence.prefill.end + first.sequence.answered
        assert second.computed <= second.sequence.prefill.end - (spoken - 1) // CHUNK * CHUNK


@pytest.mark.parametrize("speculate", ["on", "off"])
def test_what_is_taken_in_of_an_answer_with_guesses_is_what_it_says(tmp_path: Path, speculate: Any) -> None:
    """A guess that was wrong has been in the tail too."""
    settings = RunSettings(max_new_tokens=150, temperature=0.0, speculate=speculate)
    with Engine(model_of("llama-gqa"), Store.open(tmp_path), deterministic=True) as engine:
        tree, model = PrefixTree(engine.segment_cache), engine.model
        tokens = drawn(3, 40) * 3
        made = answered(model, Prefill((), tokens, range(120), tokens, 120), settings)
        assert speculate == "off" or made.sequence.guessed["drafted"] > made.sequence.guessed["accepted"]
        assert made.sequence.answered >= len(made.token_ids) - 1
        trail = Trail.of_runs([Chunk(0, (*tokens, *made.token_ids[: made.sequence.answered]))])
        assert tree.insert(trail, Computed(*made.sequence.computed())) > 120
        longer = [*tokens, *made.token_ids]
        found = run_tokens(model, tree, longer)
        assert found.computed <= CHUNK
        found.same_as(run_tokens(model, None, longer))


def test_another_models_chunks_are_not_found(tmp_path: Path) -> None:
    tokens = drawn(4, 200)
    for seed in (0, 1):
        with Engine(tiny_model("llama-gqa", seed=seed), Store.open(tmp_path), deterministic=True) as engine:
            tree = PrefixTree(engine.segment_cache)
            assert run_tokens(engine.model, tree, tokens).computed == 200
            tree.mark(Trail.of_runs([Chunk(0, tuple(tokens))]))
            assert tree.write("s", "anchored", often=False) == 3


def test_a_damaged_chunk_is_computed_again(tmp_path: Path) -> None:
    tokens = drawn(5, 200)
    with Engine(model_of("llama-gqa"), Store.open(tmp_path), deterministic=True) as engine:
        tree = PrefixTree(engine.segment_cache)
        first = run_tokens(engine.model, tree, tokens)
        tree.mark(Trail.of_runs([Chunk(0, tuple(tokens))]))
        tree.write("s", "anchored")
        names = [node.names[1] for node in tree.root.below() if len(node.names) > 1]
    (file,) = (tmp_path / "files").glob(f"{names[0]}*")
    file.chmod(0o600)
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    with Engine(model_of("llama-gqa"), Store.open(tmp_path), deterministic=True) as engine:
        tree = PrefixTree(engine.segment_cache)
        found = run_tokens(engine.model, tree, tokens)
        found.same_as(first)
        assert found.computed == 200 - CHUNK
        assert engine.store.stats().corrupt == 1
