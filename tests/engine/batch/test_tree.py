"""The prefix tree: what is found, what goes first, what is written, and what others may do meanwhile."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.base.segment import Segment
from engine.cache.memory import MemoryTier
from engine.prefix_tree.tree import PrefixTree
from engine.prompt import trail as trail_module
from engine.prompt.recipe import TURN, segment_key
from engine.prompt.trail import CHUNK, Chunk, Placed, Trail
from tests.drawing import EVERY
from tests.engine.batch.trees import (
    CHUNK_BYTES,
    CPU,
    Files,
    computed,
    letters,
    names_of,
    require_right,
    tree_over,
)

PLENTY = 1 << 30


def new_tree(chunks: float = 1000, files: Files | None = None) -> PrefixTree:
    return tree_over(MemoryTier(int(chunks * CHUNK_BYTES), CPU), files or Files())


def insert(tree: PrefixTree, word: str, rest: int = 0) -> int:
    trail = letters(word, rest)
    return tree.insert(trail, computed(trail))


def found(tree: PrefixTree, word: str) -> int:
    """How many tokens are read for a prompt that goes on a little."""
    trail = letters(word, 1)
    with tree.acquire(trail) as lease:
        require_right(lease, trail)
        return lease.tokens


def nodes(tree: PrefixTree) -> int:
    return len([*tree.root.below()]) - 1


def test_what_was_taken_in_is_found_up_to_where_prompts_part() -> None:
    tree = new_tree()
    assert insert(tree, "aab", rest=63) == 3 * CHUNK
    assert found(tree, "aabb") == 3 * CHUNK
    assert found(tree, "aac") == 2 * CHUNK
    assert found(tree, "ba") == 0
    assert tree.bytes == 3 * CHUNK_BYTES, "a node that is split lies where it lay"
    assert insert(tree, "aacc") == 2 * CHUNK
    assert tree.bytes == 5 * CHUNK_BYTES
    assert insert(tree, "aacc") == 0


def test_two_prompts_that_part_within_a_chunk_share_what_is_before_it() -> None:
    tree = new_tree()
    one, other = (Trail.of_runs([Chunk(0, (*range(100), last, *range(100)))]) for last in (7, 8))
    tree.insert(one, computed(one))
    with tree.acquire(other) as lease:
        assert (lease.exact, lease.end) == (CHUNK, 100), "what is cut elsewhere is read up to the difference"
        assert [*lease.chunks().values()] == [CHUNK]
    assert tree.insert(other, computed(other)) == 2 * CHUNK
    for trail in (one, other):
        with tree.acquire(trail) as lease:
            require_right(lease, trail)
            assert lease.end == 3 * CHUNK


@pytest.mark.parametrize("word", ["aa", "Ma", "aMa"])
def test_the_last_token_of_a_prompt_is_always_computed(word: str) -> None:
    tree, trail = new_tree(), letters(word)
    tree.insert(trail, computed(trail))
    with tree.acquire(trail) as lease:
        require_right(lease, trail)
        assert lease.end == trail.end - 1


@pytest.mark.parametrize(
    "trail", [letters(""), letters("", 1), letters("", 63), letters("M"), letters("9"), letters("-")]
)
def test_a_prompt_without_a_chunk_finds_nothing_and_leaves_nothing(trail: Trail) -> None:
    tree = new_tree()
    assert tree.insert(trail, computed(trail)) == 0
    with tree.acquire(trail) as lease:
        assert (lease.placements(), lease.tokens, lease.end) == ((), 0, 0)
    assert (nodes(tree), tree.bytes) == (0, 0)


def test_text_behind_a_segment_is_found_behind_that_segment_there_only() -> None:
    tree = new_tree()
    insert(tree, "aMa3Na")
    assert found(tree, "aMa3Na") == 3 * CHUNK + 3
    assert found(tree, "aNa") == CHUNK
    assert found(tree, "aMb") == CHUNK
    assert found(tree, "aM-a") == CHUNK
    assert found(tree, "a-Ma") == CHUNK
    assert found(tree, "Ma") == 0
    other = Trail.of_runs([letters("a").edges[0], Placed(CHUNK, "M", 1, 6), *letters("aMa").edges[2:]])
    with tree.acquire(other) as lease:
        assert lease.end == CHUNK, "other tokens of the same segment"


def test_what_is_found_takes_no_part_of_what_stands_between() -> None:
    tree = new_tree()
    insert(tree, "aaMbb")
    with tree.acquire(letters("aaMbb", 1)) as lease:
        assert [(one.start, one.tokens) for one in lease.placements()] == [(0, 128), (133, 128)]


def test_what_nobody_read_for_the_longest_time_goes_first_and_never_before_what_follows_it() -> None:
    tree = new_tree(4)
    insert(tree, "aa")
    insert(tree, "bb")
    assert found(tree, "aa") == 2 * CHUNK
    insert(tree, "cc")
    assert [found(tree, word) for word in ("cc", "aa", "bb")] == [2 * CHUNK, 2 * CHUNK, 0]
    insert(tree, "ab")
    assert found(tree, "ab") == 2 * CHUNK
    assert found(tree, "aa") + found(tree, "cc") <= 3 * CHUNK
    assert tree.bytes <= 4 * CHUNK_BYTES


def test_segments_and_nodes_go_in_one_order() -> None:
    tree = new_tree(3)
    states = torch.zeros(1, 1, CHUNK, 1)

    def segment(key: str) -> None:
        tree.tier.add(Segment(key, (1,) * CHUNK, states, states.clone())).release()

    segment("old")
    insert(tree, "a")
    segment("new")
    insert(tree, "b")
    assert ("old" in tree.tier, "new" in tree.tier) == (False, True)
    assert found(tree, "a") == CHUNK
    segment("newest")
    assert "new" not in tree.tier
    assert (found(tree, "a"), found(tree, "b")) == (CHUNK, CHUNK)


def test_the_end_of_a_tensor_that_goes_gives_its_room_back() -> None:
    tree = new_tree(10)
    insert(tree, "aaaaaa")
    assert found(tree, "aa") == 2 * CHUNK
    tree.tier.budget = 3 * CHUNK_BYTES
    tree.tier.drop([])
    assert tree.bytes == 2 * CHUNK_BYTES
    assert found(tree, "aaaaaa") == 2 * CHUNK


def test_what_goes_is_freed_at_once() -> None:
    tree = new_tree(10)
    insert(tree, "ab")
    lease = tree.acquire(letters("ab", 1))
    kept = weakref.ref(lease.placements()[0].segment)
    gc.collect()
    gc.disable()
    try:
        tree.tier.budget = 0
        tree.tier.drop([])
        assert kept() is not None
        lease.release()
        assert (tree.bytes, kept()) == (0, None)
    finally:
        gc.enable()


def test_a_lease_that_the_collector_releases_while_the_tier_is_locked_is_taken_back() -> None:
    tree = new_tree()
    insert(tree, "a")
    lease = tree.acquire(letters("a", 1))
    tree.tier.budget = 0
    with tree.tier.locked():
        lease.release()
        assert tree.bytes == CHUNK_BYTES
    lease.release()
    assert (tree.bytes, nodes(tree)) == (0, 0)


def meanwhile(trail: Trail, work: Callable[[], object]) -> Any:
    """What was computed of a trail, which something happens to while it is copied."""

    class Positions(list[int]):
        def __len__(self) -> int:
            if todo:
                todo.pop()()
            return super().__len__()

    todo = [work]
    whole = computed(trail)
    return replace(whole, positions=Positions(whole.positions))


def test_what_another_has_taken_in_meanwhile_is_not_taken_in_twice() -> None:
    tree, trail = new_tree(), letters("abcc")
    insert(tree, "a")
    assert tree.insert(trail, meanwhile(trail, lambda: insert(tree, "ab"))) == 2 * CHUNK
    assert tree.bytes == 4 * CHUNK_BYTES
    assert found(tree, "abcc") == 4 * CHUNK


def test_what_follows_what_was_forgotten_meanwhile_is_not_taken_in() -> None:
    tree, trail = new_tree(), letters("abcc")
    insert(tree, "a")
    assert tree.insert(trail, meanwhile(trail, tree.tier.clear)) == 0
    assert (tree.bytes, nodes(tree)) == (0, 0)


def test_what_is_split_while_it_is_written_or_continued_is_named_right() -> None:
    tree, files = new_tree(), Files()
    tree = new_tree(files=files)
    insert(tree, "abab")
    trail = letters("ababcc")
    tree.insert(trail, meanwhile(trail, lambda: found(tree, "ab")))
    assert tree.mark(trail) == 6 * CHUNK
    assert found(tree, "aba") == 3 * CHUNK
    assert tree.write("s", "anchored") == 6
    assert set(files.held) == set(names_of(trail.edges))


def test_what_was_read_twice_is_written_and_what_was_read_once_is_not() -> None:
    files = Files()
    tree = new_tree(files=files)
    insert(tree, "aab")
    assert found(tree, "aab") == 3 * CHUNK
    assert tree.write("s", "anchored") == 0
    assert found(tree, "aa") == 2 * CHUNK
    assert tree.write("s", "anchored", often=False) == 0, "nobody has asked for it"
    assert tree.write("s", "anchored") == 2
    assert set(files.held) == set(names_of(letters("aab").edges)[:2])
    assert {(one.path, one.schema, one.scope) for one in files.origins} == {(TURN, "s", "anchored")}
    for _ in range(3):
        assert found(tree, "aa") == 2 * CHUNK
    assert tree.write("s", "anchored") == 0, "it is there"


def test_of_what_was_read_often_only_one_trail_may_be_asked_for() -> None:
    files = Files()
    tree = new_tree(files=files)
    for word in ("aab", "aac"):
        insert(tree, word)
    for word in ("aab", "aac") * 2:
        assert found(tree, word) == 3 * CHUNK
    assert tree.write("s", "anchored", along=letters("ab")) == 1
    assert tree.write("s", "anchored", along=letters("aab")) == 2
    assert set(files.held) == set(names_of(letters("aab").edges))
    assert tree.write("s", "anchored", along=letters("aac")) == 1
    assert tree.write("s", "anchored") == 0


def test_what_is_marked_is_written_with_all_before_it_and_found_by_another_process() -> None:
    files = Files()
    tree = new_tree(files=files)
    insert(tree, "aaM3Nbb")
    trail = letters("aaM3Nbb")
    assert tree.mark(trail.up_to(2 * CHUNK + 13 + CHUNK)) == 2 * CHUNK + 13 + CHUNK
    assert tree.write("s", "anchored", often=False) == 4
    other = new_tree(files=files)
    assert found(other, "aaM3Nbb") == 3 * CHUNK + 3
    assert other.bytes == 3 * CHUNK_BYTES + 3 * 8
    assert insert(other, "aaM3Nbb") == CHUNK
    del files.held[names_of(trail.edges)[1]]
    assert found(new_tree(files=files), "aaM3Nbb") == CHUNK


def test_nothing_is_written_where_the_store_takes_nothing() -> None:
    files = Files()
    tree = new_tree(files=files)
    insert(tree, "a")
    tree.mark(letters("a"))
    files.settings.budget = 0
    assert tree.write("s", "anchored") == 0
    files.settings.budget, files.read_only = 1, "no right"
    assert tree.write("s", "anchored") == 0
    files.read_only = ""
    assert tree.write("s", "anchored") == 1


def test_a_conversation_hashes_each_token_no_more_than_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to look for it on the disk, once to take it in; and what is known already never again."""
    hashed = {"tokens": 0, "entries": 0}

    def counted(*given: Any) -> str:
        hashed["tokens"] += len(given[2])
        hashed["entries"] += len(given[3])
        return segment_key(*given)

    tree, turns = new_tree(), 20
    prepared = [letters("ab" * turn) for turn in range(1, turns + 1)]
    made = [computed(trail) for trail in prepared]
    monkeypatch.setattr(trail_module, "segment_key", counted)
    for trail, one in zip(prepared, made, strict=True):
        lease = tree.acquire(trail)
        tree.insert(trail, one)
        lease.release()
    assert hashed["tokens"] <= 2 * turns * 2 * CHUNK
    assert hashed["entries"] <= 2 * turns * 2


def test_many_threads_leave_nothing_held() -> None:
    tree = new_tree(6, Files())
    faults: list[BaseException] = []

    def use(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for step in range(150 if EVERY else 40):
                trail = letters(draw.choice(["aab", "aabb", "abMa", "aaMb", "b3Na"]), draw.randrange(2))
                with tree.acquire(trail) as lease:
                    require_right(lease, trail)
                    tree.insert(trail, computed(trail, lease.end))
                    require_right(lease, trail)
                if step % 40 == seed:
                    tree.tier.drop(["M", names_of(letters("aa").edges)[1]])
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert tree.tier.bytes <= 6 * CHUNK_BYTES
    assert all(node.readers == 0 for node in tree.root.below())
    tree.tier.clear()
    assert (tree.bytes, tree.tier.bytes, nodes(tree)) == (0, 0, 0)
