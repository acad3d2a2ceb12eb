"""The white space of the training texts: none at the ends of a text, and seams where the engine reads one."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from training.corpus import WORLDS, draw
from training.seams import LINE, seam_owner, seam_texts, seamed
from training.worlds.example import Example, question_pieces

DRAWS = [(world, seed) for world in WORLDS for seed in range(30)]


def drawn(world: str, seed: int) -> Example:
    return draw(random.Random(seed), seed % 4, 2, world)


@pytest.mark.parametrize(("world", "seed"), DRAWS)
def test_no_text_begins_or_ends_with_white_space_but_at_an_argument(world: str, seed: int) -> None:
    pieces = drawn(world, seed).pieces
    for index, piece in enumerate(pieces):
        if piece.border:
            continue
        before, after = pieces[index - 1], pieces[index + 1] if index + 1 < len(pieces) else None
        if before.kind != "argument":
            assert piece.text == piece.text.lstrip()
        if after is None or after.kind != "argument":
            assert piece.text == piece.text.rstrip()
        assert piece.text


def test_the_words_at_an_argument_stand_as_they_are_written() -> None:
    ends, starts = set(), set()
    for seed in range(200):
        pieces = drawn("travel", seed).pieces
        for index, piece in enumerate(pieces):
            if piece.kind == "argument":
                ends.add(pieces[index - 1].text[-1])
                starts.add(pieces[index + 1].text[0])
    assert ends == {" "}
    assert starts == {" ", ",", "."}


@pytest.mark.parametrize(("world", "seed"), DRAWS)
def test_a_seam_stands_between_texts_of_a_turn_and_nowhere_else(world: str, seed: int) -> None:
    """Wherever the path changes within a turn; not at the turn's ends, nor at an argument."""
    example = drawn(world, seed)
    pieces = seamed(example, lambda: LINE)
    assert [p for p in pieces if not p.seam] == example.pieces
    for index, piece in enumerate(pieces):
        if piece.seam:
            assert piece.text == LINE
            assert not pieces[index - 1].border
            assert piece.path == "" or f"{pieces[index - 1].path}/".startswith(f"{piece.path}/")
            if index + 1 < len(pieces):
                assert not pieces[index + 1].border
                assert pieces[index + 1].path != pieces[index - 1].path
        elif index and not (pieces[index - 1].seam or pieces[index - 1].border or piece.border):
            assert pieces[index - 1].path == piece.path
    assert pieces[-1].seam == example.open_user
    assert question_pieces(example, "Who?")[0] == ("Who?" if example.open_user else "<|im_start|>user\n")


def test_a_seam_belongs_to_the_outermost_module_that_ends_else_to_the_text_before() -> None:
    owners = {
        ("", "a"): "",
        ("a", "b"): "a",
        ("a", ""): "a",
        ("a", "a/b"): "a",
        ("a/b", "a"): "a/b",
        ("a/b", "a/c"): "a/b",
        ("a/b/c", "a/d"): "a/b",
        ("a/b/c", "d"): "a",
        ("a/b/c", ""): "a",
        ("ab", "a"): "ab",
        ("a", "ab"): "a",
    }
    assert {pair: seam_owner(*pair) for pair in owners} == owners


def test_seams_are_mostly_line_breaks_and_mostly_alike_within_an_example() -> None:
    kinds, alike, examples = Counter[str](), 0, 0
    for seed in range(1200):
        example = draw(random.Random(seed), 2, 1)
        text = seam_texts(random.Random(seed), example)
        found = [text() for _ in range(8)]
        if example.world == "code":
            assert set(found) <= {"\n", "\n\n"}
        kinds.update(found)
        alike += len(set(found)) == 1
        examples += 1
    shares = {kind: count / sum(kinds.values()) for kind, count in kinds.items()}
    assert 0.7 < shares["\n"] < 0.8
    assert 0.05 < shares[" "] < 0.15
    assert 0.08 < shares["\n\n"] < 0.2
    assert 0.01 < shares[""] < 0.05
    assert 0.85 < alike / examples < 0.98
