"""The training texts: what is held out, what is answered from where, and what a token may see."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from training.corpus import END, MAX_POSITIONS, WORLDS, Block, Stage, batch, block, draw
from training.seams import seamed
from training.worlds.chat import NOT_STATED, UNSTATED
from training.worlds.documents import Note, documents, hop, notes_of, reverse, unstated
from training.worlds.example import Example, question_pieces
from training.worlds.kinds import KINDS, answered, label, missing
from training.worlds.travel import travel
from training.worlds.words import HeldOut, invented, reserved

DEMO_MODEL = Path(__file__).parents[2] / "assets" / "demo_model"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))


def test_names_of_training_and_evaluation_have_nothing_in_common() -> None:
    trained = {invented(random.Random(seed)) for seed in range(4000)}
    held_out = {invented(HeldOut(seed)) for seed in range(4000)}
    assert not trained & held_out
    assert all(reserved(name) for name in held_out)
    assert not any(reserved(name) for name in trained)
    assert len(held_out) > 3000


@pytest.mark.parametrize("world", WORLDS)
def test_what_a_seed_draws_is_the_same_again(world: str) -> None:
    one, other = (draw(random.Random(7), 2, 3, world) for _ in range(2))
    assert one == other
    assert draw(random.Random(8), 2, 3, world) != one


@pytest.mark.parametrize("seed", range(40))
def test_answers_to_documents_stand_in_them(seed: int) -> None:
    """Numbers and names of an answer are told by the note that the turn says, or nowhere if unstated."""
    example = documents(random.Random(seed), 3, 6)
    notes = [piece.text for piece in example.pieces if piece.kind == "module"]
    for turn in example.turns:
        if turn.place < 0:
            continue
        for number in re.findall(r"\d+", turn.answer):
            assert number in notes[turn.place]
        words = [w for w in re.findall(r"[A-Z][a-z]+", turn.answer)[1:] if w not in turn.question]
        for word in set(words) - {"The"}:
            assert word in notes[turn.place]


def test_a_question_over_two_documents_follows_the_name_that_the_first_one_gives() -> None:
    found = 0
    for seed in range(200):
        r = random.Random(seed)
        notes = notes_of(r, 8, (3, 5))
        turn = hop(r, notes)
        if turn is None:
            continue
        found += 1
        second = notes[turn.place]
        assert not re.search(rf"\b{re.escape(second.name)}\b", turn.question, re.IGNORECASE)
        assert second.name.removeprefix("the ") in turn.answer
        assert any(second.name in n.facts.values() and n.name in turn.question for n in notes)
        assert any(value in turn.answer for value in second.facts.values())
    assert found > 100


def test_a_value_is_asked_back_only_where_one_note_has_it() -> None:
    for seed in range(200):
        r = random.Random(seed)
        notes = notes_of(r, 8, (3, 5))
        turn = reverse(r, notes)
        if turn is not None:
            owner = notes[turn.place]
            value = next(v for v in owner.facts.values() if v in turn.question)
            assert sum(value == v for n in notes for v in n.facts.values()) == 1


def test_what_is_called_unstated_is_stated_by_no_note() -> None:
    notes = [Note("person", "Ada Brand", 0, {"home": "Torl", "pet": "red cat"})]
    turns = [unstated(random.Random(seed), notes) for seed in range(3000)]
    assert len({turn.question for turn in turns}) > 500
    for turn in turns:
        assert not re.search(
            r"[Ww]here does Ada Brand live|town does Ada Brand live|pet does Ada Brand", turn.question
        )
    answers = {turn.answer for turn in turns}
    assert {UNSTATED, f"The job of Ada Brand {NOT_STATED}", f"The mayor of Ada Brand {NOT_STATED}"} <= answers
    assert not {f"The home of Ada Brand {NOT_STATED}", f"The pet of Ada Brand {NOT_STATED}"} & answers


def test_an_answer_says_whether_a_fact_is_stated_only_after_it_has_named_what_is_asked() -> None:
    for kind, (_, attributes) in KINDS.items():
        for key, (_, statements, questions, _) in attributes.items():
            stated, unsaid = answered(kind, key, "N", "V"), missing(kind, key, "N")
            assert unsaid == f"The {label(kind, key)} {'at' if key == 'staff' else 'of'} N {NOT_STATED}"
            assert stated.startswith(unsaid.removesuffix(" not stated in the documents."))
            assert all("{n}" in text and "{v}" in text for text in statements.split("|"))
            assert all("{n}" in text for text in questions.split("|"))


def test_as_many_as_sixteen_documents_and_every_kind_of_question() -> None:
    examples = [documents(random.Random(seed), 3, 4) for seed in range(200)]
    counts = {sum(piece.kind == "module" for piece in example.pieces) for example in examples}
    assert {3, 8, 16} <= counts
    kinds = Counter(turn.topic for example in examples for turn in example.turns)
    assert set(kinds) == {"stated", "unstated", "two documents", "reversed", "comparison", "summary", "list"}
    assert min(kinds.values()) >= 10


def test_a_trip_follows_place_days_and_every_trait() -> None:
    plans = 0
    for seed in range(150):
        example = travel(random.Random(seed), 2, 3)
        traits = {p.path for p in example.pieces} & {"budget", "season", "company"}
        for turn in example.turns:
            if turn.answer.startswith("Here is your plan"):
                plans += 1
                assert f"for {example.argument} in {example.subject}" in turn.answer
                days = [int(d) for d in re.findall(r"Day (\d+):", turn.answer)]
                assert days == list(range(1, len(days) + 1))
                assert {f"For the {t}:" for t in traits} == set(re.findall(r"For the \w+:", turn.answer))
                assert all(text in turn.answer for text in turn.wanted)
    assert plans > 100


def test_masks_are_those_of_cached_modules(tokenizer: Tokenizer) -> None:
    """A module sees its parent, the anonymous text, or neither; new text alone always sees an argument."""
    example = travel(random.Random(11), 1, 2)
    seen = Counter()
    for seed in range(40):
        made = block(example, tokenizer, random.Random(seed), 0.7, 0.0, 2000)
        assert made is not None
        seen[checked_mask(example, made, tokenizer)] += 1
    assert set(seen) == {(True, True, True), (True, True, False), (False, False, False)}


def checked_mask(example: Example, made: Block, tokenizer: Tokenizer) -> tuple[bool, bool, bool]:
    """What the place's module sees: the anonymous text, its parent, its parent's argument."""
    pieces = example.pieces
    texts = (
        next(p.text for p in pieces if p.kind == "module" and p.path == "trip"),
        next(p.text for p in pieces if p.kind == "argument"),
        [p.text for p in pieces if p.path.startswith("trip/")][-1],
    )
    module, argument, place = (segment(made, tokenizer, text) for text in texts)
    last = len(made.sees) - 1
    assert made.sees[last][argument]
    assert not made.sees[last][last - 1]  # another question
    answer = tokenizer.encode(example.turns[0].answer + END, add_special_tokens=False).ids
    assert sum(w == 1.0 for w in made.weights) >= len(answer)
    return made.sees[place][0], made.sees[place][module], made.sees[place][argument]


def segment(made: Block, tokenizer: Tokenizer, text: str) -> int:
    """The first segment that holds just the tokens of a text."""
    wanted = tokenizer.encode(text, add_special_tokens=False).ids
    return [ids_of(made, n) for n in range(len(made.sees))].index(wanted)


def ids_of(made: Block, number: int) -> list[int]:
    """The tokens of a segment."""
    return [i for i, s in zip(made.ids, made.segments, strict=True) if s == number]


def test_pieces_are_tokenised_alone_as_the_engine_does(tokenizer: Tokenizer) -> None:
    """Seams too: no token holds the end of a module's text and the white space behind it."""
    example = documents(random.Random(3), 1, 1)
    alone = []
    for seam in ("\n", "\n\n", " "):
        pieces = seamed(example, lambda seam=seam: seam)  # type: ignore[misc]
        found = [*(p.text for p in pieces), *question_pieces(example, example.turns[0].question)]
        alone.append([1, *(i for t in found for i in tokenizer.encode(t, add_special_tokens=False).ids)])
    drawn = [block(example, tokenizer, random.Random(seed), 0.0, 0.0, 2000) for seed in range(20)]
    begun = [made.ids[: len(ids)] == ids for made in drawn if made is not None for ids in alone]
    assert sum(begun) > 12


def test_a_seam_belongs_to_the_module_before_it_in_the_masks(tokenizer: Tokenizer) -> None:
    """Under `isolated` a module's seam sees that module alone, and no other module sees the seam."""
    r = random.Random(1)
    example = next(e for e in (documents(r, 1, 1) for _ in range(99)) if len({p.path for p in e.pieces}) > 2)
    text = next(p.text for p in example.pieces if p.path)
    isolated = 0
    for seed in range(60):
        made = block(example, tokenizer, random.Random(seed), 1.0, 0.0, 2000)
        assert made is not None
        module = segment(made, tokenizer, text)
        seam, following = module + 1, module + 2
        if made.sees[module][0] or tokenizer.decode(ids_of(made, seam)).strip():
            continue  # anchored, or an example without seams
        isolated += 1
        assert made.sees[seam][module]
        assert not any(made.sees[seam][:module])
        assert not made.sees[following][seam]
        assert made.sees[-1][seam]
    assert isolated > 5


def test_a_gap_never_parts_a_seam_from_what_it_follows(tokenizer: Tokenizer) -> None:
    example = documents(random.Random(3), 2, 1)
    gaps = 0
    for seed in range(40):
        made = block(example, tokenizer, random.Random(seed), 0.0, 1.0, 2000)
        assert made is not None
        breaks = [i for i in range(2, len(made.ids)) if made.positions[i] > made.positions[i - 1] + 1]
        gaps += len(breaks)
        for i in breaks:
            assert tokenizer.decode([made.ids[i]]).strip() != ""
    assert gaps > 40


def test_packed_rows_hold_whole_examples_apart(tokenizer: Tokenizer) -> None:
    drawn = batch(Stage(384, 2, (1, 0, 0, 0), (1, 2), 0.5, 0.5), tokenizer, random.Random(4))
    assert drawn.ids.shape == drawn.positions.shape == drawn.weights.shape == (2, 384)
    assert int(drawn.positions.max()) < MAX_POSITIONS
    for row, spans in enumerate(drawn.examples):
        assert spans[0][0] == 0
        assert spans[-1][1] == 384
        for start, end in spans:
            outside = drawn.mask[row, 0, start:end].clone()
            outside[:, start:end] = False
            assert not outside.any()
    assert drawn.mask[:, 0].diagonal(dim1=1, dim2=2).all()
    assert not torch.triu(drawn.mask[:, 0], 1).any()
