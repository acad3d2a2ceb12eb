"""Trails: where prompts are cut, and what is named alike."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.prompt import trail as trail_module
from engine.prompt.recipe import Identity, segment_key
from engine.prompt.trail import CHUNK, Chunk, Edge, Placed, Trail, names

MOVING = Identity("f", "fp32", relocatable=True)
FIXED = Identity("f", "fp32", relocatable=False)


def named(*edges: Edge, identity: Identity = MOVING) -> list[str]:
    return list(names(identity, "", 0, edges))


def text(start: int, tokens: int, first: int = 0) -> Chunk:
    return Chunk(start, tuple(range(first, first + tokens)))


RUNS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.integers(0, 3 * CHUNK)),
        st.tuples(st.just("gap"), st.integers(0, 3)),
        st.tuples(st.sampled_from("ab"), st.integers(0, 9)),
    ),
    max_size=7,
)


@given(RUNS)
def test_edges_are_the_prompt_but_for_what_is_left_at_its_end(runs: list[tuple[str, int]]) -> None:
    given_runs: list[Edge] = []
    at = 0
    for what, size in runs:
        if what == "text":
            given_runs.append(text(at, size, first=at))
        elif what != "gap":
            given_runs.append(Placed(at, what, 0, size))
        at += size
    trail = Trail.of_runs(given_runs)
    tokens = {run.start + i for run in given_runs for i in range(run.tokens)}
    covered = [edge.start + i for edge in trail.edges for i in range(edge.tokens)]
    assert covered == sorted(set(covered))
    assert set(covered) <= tokens
    last = trail.edges[-1].end if trail.edges else 0
    assert set(covered) == {place for place in tokens if place < last}
    for edge in trail.edges:
        assert edge.tokens > 0
        if isinstance(edge, Chunk):
            assert edge.token_ids == tuple(range(edge.start, edge.end))
            assert edge.tokens <= CHUNK
    for edge, after in pairwise(trail.edges):
        shorter = isinstance(edge, Chunk) and edge.tokens < CHUNK
        assert not shorter or isinstance(after, Placed) or after.start > edge.end
    assert not trail.edges or isinstance(trail.edges[-1], Chunk)
    plain = {run.start + i for run in given_runs if isinstance(run, Chunk) for i in range(run.tokens)}
    assert len([place for place in plain if place >= last]) < CHUNK
    assert trail.end == max((run.end for run in given_runs if run.tokens), default=0)


def test_one_token_and_nothing_have_no_edges() -> None:
    assert Trail.of_runs([Chunk(0, (7,))]) == Trail((), 1)
    assert Trail.of_runs([]) == Trail((), 0)
    assert Trail.of_runs([Placed(0, "a", 3, 3), Chunk(0, ())]) == Trail((), 0)


def test_up_to_a_position_only_what_ends_there_is_left() -> None:
    trail = Trail.of_runs([text(0, 70), Placed(70, "a", 0, 9), text(79, 64)])
    assert [edge.end for edge in trail.edges] == [64, 70, 79, 143]
    assert trail.up_to(143) == trail
    assert trail.up_to(142).edges == trail.edges[:2]
    assert trail.up_to(69).edges == trail.edges[:1]
    assert trail.up_to(0).edges == ()


def test_the_first_chunks_are_named_as_the_segments_that_they_are() -> None:
    """Further on the context has one entry for all that stands before."""
    edges = Trail.of_runs([text(0, 3 * CHUNK)]).edges
    first = segment_key("f", "fp32", edges[0].token_ids)  # type: ignore[union-attr]
    second = segment_key("f", "fp32", edges[1].token_ids, [(first, 0, CHUNK, -CHUNK)])  # type: ignore[union-attr]
    assert named(*edges)[:2] == [first, second]


def test_names_go_on_where_others_ended() -> None:
    edges = Trail.of_runs([text(0, 100), Placed(100, "a", 2, 9), text(107, 130)]).edges
    whole = named(*edges)
    for cut in range(1, len(edges)):
        passed = sum(edge.tokens for edge in edges[:cut])
        assert list(names(MOVING, whole[cut - 1], passed, edges[cut:])) == whole[cut:]


DIFFERENT: list[tuple[Edge, ...]] = [
    (text(0, 64), text(64, 64)),
    (text(0, 64), text(64, 64, first=1)),
    (text(0, 64, first=1), text(64, 64)),
    (text(0, 63), text(63, 65)),
    (text(0, 64), text(65, 64)),
    (text(1, 64), text(65, 64)),
    (text(2, 64), text(66, 64)),
    (text(0, 128),),
    (text(64, 64),),
    (text(0, 64), Placed(64, "a", 0, 9), text(73, 64)),
    (text(0, 64), Placed(64, "a", 0, 9), text(74, 64)),
    (text(0, 64), Placed(65, "a", 0, 9), text(74, 64)),
    (text(0, 64), Placed(64, "a", 1, 10), text(73, 64)),
    (text(0, 64), Placed(64, "a", 0, 8), text(72, 64)),
    (text(0, 64), Placed(64, "b", 0, 9), text(73, 64)),
    (Placed(0, "a", 0, 9), text(9, 64)),
    (Placed(0, "a|0", 0, 9), text(9, 64)),
    (Placed(0, "a", 0, 9), Placed(9, "b", 0, 9), text(18, 64)),
    (Placed(0, "b", 0, 9), Placed(9, "a", 0, 9), text(18, 64)),
    (text(0, 1), Placed(1, "a", 0, 9), text(10, 64)),
    (Chunk(0, (1, 23)), text(2, 64)),
    (Chunk(0, (12, 3)), text(2, 64)),
    (Chunk(0, (0, 0)), text(2, 64)),
    (Chunk(0, (0,)), Chunk(1, (0, *range(64)))),
    (Chunk(0, (2**32, 0)), text(2, 64)),
    (Chunk(0, (0, 2**32)), text(2, 64)),
    (Chunk(0, (-1, 0)), text(2, 64)),
]


@pytest.mark.parametrize("identity", [MOVING, FIXED], ids=["moving", "fixed"])
def test_other_trails_have_other_names(identity: Identity) -> None:
    """Among them such as have the same numbers behind one another, cut at other places."""
    last = [named(*edges, identity=identity)[-1] for edges in DIFFERENT]
    same = [pair for pair in last if last.count(pair) > 1]
    assert same == []


def test_another_model_or_format_has_other_names() -> None:
    edges = Trail.of_runs([text(0, 128)]).edges
    identities = [MOVING, Identity("g", "fp32", True), Identity("f", "bf16", True)]
    assert len({named(*edges, identity=one)[-1] for one in identities}) == 3


def test_a_token_is_hashed_once_however_long_the_trail(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = {"tokens": 0, "entries": 0}

    def counted(*given: object) -> str:
        _, _, token_ids, context, _ = given
        hashed["tokens"] += len(token_ids)  # type: ignore[arg-type]
        hashed["entries"] += len(context)  # type: ignore[arg-type]
        return segment_key(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(trail_module, "segment_key", counted)
    trail = Trail.of_runs(
        [text(0, 100 * CHUNK), Placed(100 * CHUNK, "a", 0, 9), text(100 * CHUNK + 9, CHUNK)]
    )
    named(*trail.edges)
    assert hashed == {"tokens": 101 * CHUNK, "entries": len(trail.edges)}
