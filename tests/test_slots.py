"""Slots of other software: which rows go together, what is shared, and which tokens come. No times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.peers import llamacpp, llamacpp_slots
from benchmarks.peers.llamacpp_slots import MOST_SLOTS, SlottedWays
from benchmarks.peers.network import own_network
from benchmarks.peers.peer import Shape
from benchmarks.peers.slots import HELD, Begun, Row, Slots
from benchmarks.turns import timed
from engine.base.errors import PromptCacheError
from tests.engine.tiny import save_tiny


class Counting(Slots):
    """Computes nothing; writes down what it was asked, and keeps what each slot holds."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.cells: dict[int, dict[int, int]] = {}
        self.passes: list[list[Row]] = []
        self.shared: list[tuple[int, int, int]] = []

    def release(self, slot: int) -> None:
        assert slot != HELD
        self.cells.pop(slot, None)

    def share(self, source: int, slot: int, tokens: int) -> None:
        assert slot not in self.cells
        self.cells[slot] = {at: self.cells[source][at] for at in range(tokens)}
        self.shared.append((source, slot, tokens))

    def compute(self, rows: Sequence[Row]) -> list[int]:
        assert 0 < len(rows) <= self.most
        self.passes.append(list(rows))
        for row in rows:
            own = self.cells.setdefault(row.slot, {})
            assert row.position not in own, "computed twice"
            own[row.position] = row.token
        for row in rows:
            assert sorted(self.cells[row.slot])[: row.position + 1] == [*range(row.position + 1)]
        return [1000 + row.position for row in rows if row.wanted]


HELD_TOKENS = [*range(40)]
PROMPTS = [
    [*HELD_TOKENS, 91, 92, 93],
    [*HELD_TOKENS, 94],
    [*range(200, 230), 95],
    [*range(200, 230), 96, 97],
]


def test_a_pass_takes_who_decodes_and_as_many_new_rows_as_fit() -> None:
    slots = Counting(16)
    slots.hold(HELD_TOKENS)
    assert [len(rows) for rows in slots.passes] == [16, 16, 8]
    assert {row.slot for rows in slots.passes for row in rows} == {HELD}
    slots.passes.clear()
    placed = slots.placed(PROMPTS)
    assert [one.begun for one in placed] == [Begun(0, 40), Begun(0, 40), Begun(0, 0), Begun(3, 30)]
    assert slots.answered(placed, 4) > 0
    assert slots.shared == [(0, 1, 40), (0, 2, 40), (3, 4, 30)]
    assert [one.answer for one in placed] == [
        [1042, 1043, 1044, 1045],
        [1040, 1041, 1042, 1043],
        [1030, 1031, 1032, 1033],
        [1031, 1032, 1033, 1034],
    ]
    assert [[row.slot for row in rows] for rows in slots.passes] == [
        [1, 1, 1, 2, *[3] * 12],
        [1, 2, *[3] * 14],
        [1, 2, *[3] * 5],
        [1, 2, 3, 4, 4],
        [3, 4],
        [3, 4],
        [4],
    ]
    assert all(one.first_ms > 0 for one in placed)
    for rows in slots.passes:
        for row in rows:
            tokens = [*placed[row.slot - 1].prompt, *placed[row.slot - 1].answer]
            assert row.token == tokens[row.position]


def test_a_prompt_that_is_there_whole_computes_its_last_token() -> None:
    slots = Counting(8)
    slots.hold(HELD_TOKENS)
    (one,) = slots.placed([HELD_TOKENS])
    slots.passes.clear()
    slots.answered([one], 1)
    assert [[(row.position, row.wanted) for row in rows] for rows in slots.passes] == [[(39, True)]]


def test_the_faster_side_is_timed_from_empty_slots() -> None:
    sides = {False: Counting(16), True: Counting(16)}
    for side in sides.values():
        side.hold(HELD_TOKENS)
    found = SlottedWays(sides, {"batch": PROMPTS[:2], "batch_reordered": PROMPTS}, 3)
    assert found.settings() == {}
    names = ["llama.cpp:batch", "llama.cpp:batch_reordered"]
    samples = timed(found.ways(), 2, 0, lambda _: None)
    assert list(samples) == names
    assert sorted(found.settings()) == names
    assert set(found.settings().values()) <= set(llamacpp.ATTENTION.values())
    assert [one.answer for one in found.answers("batch")] == [[1042, 1043, 1044], [1040, 1041, 1042]]
    assert len(found.answers("batch_reordered")) == 4


def test_more_prompts_than_sequences_are_refused() -> None:
    shape = Shape("", "fp32", 4, 1, 1, 0, 1, 2)
    kinds = {"batch": [[1, 2]] * (MOST_SLOTS + 1)}
    with pytest.raises(PromptCacheError, match="at most 255"), llamacpp_slots.opened(shape, [1], kinds):
        pass


@pytest.mark.skipif(bool(llamacpp.missing()), reason=llamacpp.missing() or "llama.cpp is here")
@pytest.mark.parametrize("family", ["llama", "llama-gqa"])
def test_llama_cpp_answers_in_slots_what_the_network_answers_alone(tmp_path: Path, family: str) -> None:
    folder = save_tiny(tmp_path, family)
    shape = Shape(str(folder), "fp32", 40, 4, 3, 0, 1, 8)
    kinds = {"batch": PROMPTS[:2], "batch_reordered": PROMPTS}
    network = own_network(shape)
    with llamacpp_slots.opened(shape, HELD_TOKENS, kinds, "F32") as found:
        samples = timed(found.ways(), 1, 0, lambda _: None)
        assert all(values for values in samples.values())
        for kind, prompts in kinds.items():
            for one, prompt in zip(found.answers(kind), prompts, strict=True):
                assert_greedy(network, [*prompt], one.answer)


def assert_greedy(network: Any, prompt: list[int], answer: list[int]) -> None:
    """Each token is the likeliest one, or as likely to within what flash attention in fp16 rounds."""
    with torch.inference_mode():
        logits = network(torch.tensor([prompt + answer]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    assert len(answer) == 8
    chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    assert (logits.max(1).values - chosen <= 2e-2).all()
