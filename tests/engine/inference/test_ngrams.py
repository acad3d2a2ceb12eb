"""Guesses of what comes next, from what came next before."""

from __future__ import annotations

import random

from engine.inference import ngrams
from engine.inference.ngrams import COMPARED, LENGTHS, PLACES, Ngrams


def test_what_followed_the_latest_tokens_before_follows_again() -> None:
    text = Ngrams([1, 2, 3, 4, 5, 9, 2, 3])
    assert text.draft(3) == [4, 5, 9]
    text.add(4)
    assert text.draft(2) == [5, 9]
    text.add(7)
    assert text.draft(2) == []


def test_the_longest_run_decides_and_among_equals_the_latest() -> None:
    assert Ngrams([1, 2, 3, 4, 50, 9, 3, 4, 60, 1, 2, 3, 4]).draft(1) == [50]
    assert Ngrams([8, 3, 4, 50, 9, 3, 4, 60, 1, 3, 4]).draft(1) == [60]
    assert Ngrams([9, 3, 4, 50, 8, 3, 4, 60, 9, 3, 4]).draft(1) == [50]


def test_a_text_that_repeats_itself_goes_on_with_its_own_guess() -> None:
    assert Ngrams([5, 1, 2, 1, 2]).draft(7) == [1, 2, 1, 2, 1, 2, 1]
    assert Ngrams([4, 4, 4]).draft(3) == [4, 4, 4]


def test_one_token_alone_is_no_reason_to_guess() -> None:
    for tokens in ([], [1], [1, 1], [1, 2, 1], [1, 2, 3, 1]):
        assert Ngrams(tokens).draft(4) == []


def test_a_guess_is_that_of_a_search_through_the_whole_text() -> None:
    draw = random.Random(0)
    for _ in range(300):
        tokens = [draw.randrange(4) for _ in range(draw.randrange(2, 40))]
        text = Ngrams(tokens)
        found = text.draft(1)
        ends = range(2, len(tokens))
        same = {
            end: next((i for i in range(end) if tokens[end - 1 - i] != tokens[-1 - i]), end) for end in ends
        }
        longest = max((same[end] for end in ends), default=0)
        assert bool(found) == (longest >= min(LENGTHS))
        places = {n: [end for end in ends if same[end] >= n][-PLACES:] for n in LENGTHS}
        seen = next((ends for n in LENGTHS if (ends := places[n])), [])
        if found:
            best = max(seen, key=lambda end: (min(same[end], COMPARED), end))
            assert found == [tokens[best]]


def test_memory_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(ngrams, "MOST_TOKENS", 10)
    text = Ngrams([1, 2, 3, *range(10, 25)])
    for token in (1, 2, 30, 31, 10, 11):
        text.add(token)
    assert text.draft(2) == []
