"""Who reads what: every token of every placement by its row, once, at its place, and shared if it can be."""

from __future__ import annotations

import random

import torch

from engine.attention.readers import Readers
from engine.attention.spans import Span
from engine.base.segment import Placement, Segment

DEVICE = torch.device("cpu")


def segment(tokens: int) -> Segment:
    return Segment("s", tuple(range(tokens)), torch.zeros(2, 3, tokens, 4), torch.zeros(2, 3, tokens, 4))


def test_what_several_read_is_cut_at_their_borders() -> None:
    whole = segment(100)
    readers = Readers(
        [
            [Placement(whole, 0, 100, 0)],
            [Placement(whole, 0, 40, 7), Placement(whole, 45, 100, 60)],
            [Placement(whole, 20, 100, 3)],
        ]
    )
    found = {(one.lo, one.hi): (one.rows, one.shifts) for one in readers.slices}
    assert found == {
        (0, 20): ((0, 1), [0, 7]),
        (20, 40): ((0, 1, 2), [0, 7, -17]),
        (40, 45): ((0, 2), [0, -17]),
        (45, 100): ((0, 1, 2), [0, 15, -17]),
    }
    assert [len(readers.alone(row, 0)) for row in range(3)] == [0, 0, 0]


def test_one_row_reads_a_segment_in_two_places_by_two_slices() -> None:
    whole = segment(50)
    readers = Readers(
        [[Placement(whole, 0, 50, 0), Placement(whole, 0, 50, 50)], [Placement(whole, 0, 50, 9)]]
    )
    assert sorted((one.rows, one.shifts) for one in readers.slices) == [((0,), [50]), ((0, 1), [0, 9])]
    assert [one.start for one in readers.alone(0, 0)] == [50]


def test_pieces_that_go_on_where_the_last_ended_are_one() -> None:
    whole = segment(90)
    cut = [Placement(whole, 0, 30, 4), Placement(whole, 30, 64, 34, (40,)), Placement(whole, 64, 90, 69)]
    readers = Readers([cut, [Placement(whole, 0, 64, 0)]])
    assert [(one.lo, one.hi, one.rows, one.hidden) for one in readers.slices] == [
        (0, 64, (0, 1), ((40,), ())),
        (64, 90, (0,), ((),)),
    ]
    assert readers.alone(0, 0) == cut[2:]
    assert readers.alone(0, 34) == [cut[0], cut[2]]


def test_a_window_leaves_a_slice_behind_token_by_token() -> None:
    whole = segment(10)
    (piece,) = Readers([[Placement(whole, 0, 10, 0)], [Placement(whole, 0, 10, 5, (9,))]]).slices
    everything = piece.seen([20, 20], None, DEVICE)
    assert everything is not None
    assert (everything.first, everything.end) == (0, 10)
    assert everything.hidden.mask is not None
    assert everything.hidden.mask.sum(1).tolist() == [0, 1]
    some = piece.seen([12, 14], 6, DEVICE)
    assert some is not None
    assert (some.first, some.end) == (4, 10)
    assert some.hidden.mask is not None
    assert [(~row).nonzero().flatten().tolist() for row in some.hidden.mask] == [[3, 4, 5], [0, 1, 2, 3, 4]]
    assert piece.seen([30, 30], 6, DEVICE) is None
    assert piece.seen([15, 19], 6, DEVICE) is None, "all that the window left is hidden"
    plain = piece.seen([9, 30], 30, DEVICE)
    assert plain is not None
    (other,) = Readers([[Placement(whole, 2, 9, 0)], [Placement(whole, 2, 9, 5)]]).slices
    sight = other.seen([20, 20], None, DEVICE)
    assert sight is not None
    assert (sight.first, sight.end, sight.hidden.mask) == (2, 9, None)


def test_tokens_that_the_same_readers_see_are_one_run() -> None:
    whole = segment(10)
    (piece,) = Readers([[Placement(whole, 0, 10, 0)], [Placement(whole, 0, 10, 5, (4, 9))]]).slices
    assert piece.runs(piece.borders([20, 20], None)) == [
        Span((0, 1), 0, 4),
        Span((0,), 4, 5),
        Span((0, 1), 5, 9),
        Span((0,), 9, 10),
    ]
    assert piece.runs(piece.borders([12, 14], 6)) == [Span((1,), 5, 7), Span((0, 1), 7, 9), Span((0,), 9, 10)]
    assert piece.runs(piece.borders([15, 19], 6)) == []


def test_drawn_placements_are_read_token_by_token() -> None:
    draw = random.Random(3)
    for _ in range(60):
        sources = [segment(40), segment(30)]
        placements, at = [], []
        for _ in range(draw.randrange(1, 6)):
            own, place = [], draw.randrange(3)
            for _ in range(draw.randrange(4)):
                one = draw.choice(sources)
                lo = draw.randrange(one.tokens - 1)
                hi = draw.randrange(lo + 1, one.tokens + 1)
                hidden = (draw.randrange(lo, hi),) if draw.random() < 0.3 else ()
                own.append(Placement(one, lo, hi, place, hidden))
                place += hi - lo + draw.randrange(3)
            placements.append(own)
            at.append(draw.randrange(place + 2))
        window = draw.choice([None, 7])
        assert seen(placements, at, window) == wanted(placements, at, window)
        assert by_runs(placements, at, window) == wanted(placements, at, window)


def token(one: Segment, local: int) -> int:
    return one.keys[:, :, local].data_ptr()


def wanted(
    placements: list[list[Placement]], at: list[int], window: int | None
) -> list[tuple[int, int, int]]:
    """Which row sees which token of memory at which position."""
    return sorted(
        (row, token(one.segment, local), local + one.shift)
        for row, own in enumerate(placements)
        for one in own
        for local in range(one.lo, one.hi)
        if local not in one.hidden
        and local + one.shift <= at[row]
        and (window is None or at[row] - local - one.shift < window)
    )


def by_runs(
    placements: list[list[Placement]], at: list[int], window: int | None
) -> list[tuple[int, int, int]]:
    return sorted(
        (piece.rows[reader], token(piece.segment, piece.lo + place), place + piece.starts[reader])
        for piece in Readers(placements).slices
        for run in piece.runs(piece.borders(at, window))
        for reader in run.queries
        for place in range(run.first, run.end)
    )


def seen(placements: list[list[Placement]], at: list[int], window: int | None) -> list[tuple[int, int, int]]:
    found = []
    for piece in Readers(placements).slices:
        sight = piece.seen(at, window, DEVICE)
        if sight is None:
            continue
        for number, (row, shift) in enumerate(zip(piece.rows, piece.shifts, strict=True)):
            mask = sight.hidden.mask
            hidden = mask[number if len(mask) > 1 else 0].tolist() if mask is not None else ()
            for place, local in enumerate(range(sight.first, sight.end)):
                if not (hidden and hidden[place]):
                    found.append((row, token(piece.segment, local), local + shift))
    return sorted(found)
