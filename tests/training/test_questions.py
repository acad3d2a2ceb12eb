"""The held-out prompts: what their generator writes, and that PML gives back the pieces that were drawn."""

from __future__ import annotations

import json

import pytest

from benchmarks.quality.tasks import suite
from engine.pml import bind, parse_prompt, parse_schema
from training.corpus import draw
from training.evaluate import pieces_of
from training.questions import lines, prompt_of, schema_of
from training.seams import LINE, seamed
from training.worlds.example import question_pieces
from training.worlds.words import HeldOut


@pytest.mark.long
@pytest.mark.parametrize("world", ["documents", "travel", "learning", "code"])
def test_files_are_what_their_generator_writes(world: str) -> None:
    assert suite("demo")[world].read_text(encoding="utf-8") == lines(world)


@pytest.mark.parametrize("seed", range(60))
def test_an_example_as_pml_binds_to_its_own_pieces(seed: int) -> None:
    r = HeldOut(seed)
    example = draw(r, r.randint(0, 3), 1)
    if example.open_user:
        return
    question = example.turns[0].question
    pieces = [piece.text for piece in seamed(example, lambda: LINE)]
    assert pieces_of(schema_of(example), prompt_of(example, question)) == [
        *pieces,
        *question_pieces(example, question),
    ]


def test_arguments_fit_their_slots() -> None:
    for line in suite("demo")["travel"].read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        schema, prompt = parse_schema(record["schema"]).tree, parse_prompt(record["prompt"]).tree
        assert schema is not None
        assert prompt is not None
        assert bind(schema, prompt).ok
