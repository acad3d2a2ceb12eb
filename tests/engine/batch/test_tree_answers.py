"""Answers over nodes of the prefix tree: the same as without, and less to compute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.batch.tree import Computed, PrefixTree
from engine.cache.fetched import Request
from engine.cache.segment_cache import wanted
from engine.cache.store import Store
from engine.engine import Engine
from engine.inference.computing import returned
from engine.inference.params import RunSettings
from engine.inference.prefill import prefill
from engine.inference.sequence import Sequence
from engine.prompt.trail import CHUNK, Trail
from engine.stopwatch import Stopwatch
from tests.engine.cases import apart, model_of, prompt_of, schema_of

FAMILIES = ["llama-gqa", "gemma2", "gpt-oss", "smollm3", "opt", "falcon", "bloom"]
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 3
SCHEMA = f"""<schema name="s"><system>You plan. {LONG}</system><user>Read.
<module name="b">beta with <param name="p" len="90"/> in it</module>
<module name="a">alpha and more of it</module></user><assistant>Done.</assistant>
</schema>"""
PROMPT = f"""<prompt><b p="what somebody says"/><a/><user>{LONG} Well?</user></prompt>"""
NEXT = f"""<prompt><b p="what somebody says"/><a/><user>{LONG} Well?</user><assistant>{{answer}}</assistant>
<user>And then?</user></prompt>"""
SETTINGS = RunSettings(max_new_tokens=70, temperature=0.0, speculate="off", hold_conversation=False)


@pytest.fixture(params=FAMILIES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of(request.param), Store.open(tmp_path))
    yield opened
    opened.close()


class Run:
    """One prompt answered over a tree, as a scheduler does it."""

    def __init__(
        self,
        engine: Engine,
        tree: PrefixTree | None,
        prompt: str,
        scope: Any = "anchored",
        schema: str = SCHEMA,
    ) -> None:
        prepared = engine.schema(schema_of(schema)).prompt(prompt_of(prompt))
        planned = prepared.tokenized.planned(scope, turns_held=False)
        steps = engine.segment_cache.segments(wanted(planned.slices), Request("s", scope), Stopwatch())
        with returned(steps) as fetched:
            placements = fetched.place(planned.slices)
            new = prefill(engine.model, planned.plan, planned.slices, placements, "none")
            self.wanted = len(new.token_ids)
            lease = None
            if tree is not None:
                lease = tree.acquire(Trail.of_plan(planned.plan, planned.slices))
                new = lease.without(new)
            self.computed = len(new.token_ids)
            self.sequence = Sequence(engine.model, new, SETTINGS)
            while self.sequence.ending is None:
                self.sequence.step()
            if tree is not None and lease is not None:
                answer = self.sequence.token_ids[: self.sequence.answered]
                trail = Trail.of_plan(planned.plan, planned.slices, answer)
                self.inserted = tree.insert(trail, Computed(*self.sequence.computed()))
                lease.release()

    @property
    def first_logits(self) -> torch.Tensor:
        assert self.sequence.first_logits is not None
        return self.sequence.first_logits


def test_an_answer_over_nodes_is_the_answer_without(engine: Engine) -> None:
    alone, tree = Run(engine, None, PROMPT), PrefixTree(engine.segment_cache)
    for computed in (alone.computed, None):
        run = Run(engine, tree, PROMPT)
        assert run.sequence.token_ids == alone.sequence.token_ids
        assert apart(run.first_logits, alone.first_logits) <= 1e-4
        if computed is None:
            assert 0 < run.computed <= CHUNK
        else:
            assert run.computed == computed
            assert run.inserted >= computed - 2 * CHUNK
