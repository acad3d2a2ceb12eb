"""Recipes → segments: from memory, from the store, or encoded; each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.base.events import Working
from engine.base.stopwatch import Stopwatch
from engine.base.tiers import Outcome, Reason, Tier
from engine.cache import encoding
from engine.cache.fetched import Fetched, Request
from engine.cache.segment_cache import SegmentCache
from engine.engine import Engine
from engine.inference.step_lock import returned
from engine.pml import parse_schema
from engine.prompt.recipe import TURN, Recipe
from engine.store import Store
from tests.engine.cases import Case, held_in_memory, model_of, prompt_of, schema_of

SCHEMA = """<schema name="s">Read. <module name="a">alpha beta</module>
<module name="b">gamma</module></schema>"""
WHOLE = ["", "a", "b"]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path / "store"))


@pytest.fixture
def cache(engine: Engine) -> SegmentCache:
    return engine.segment_cache


@pytest.fixture
def recipes(engine: Engine) -> Sequence[Recipe]:
    """Of the text that stands before, and of both modules, which see it."""
    found = engine.schema(schema_of(SCHEMA)).tokenized.recipes("anchored").of_schema(1000)
    assert [recipe.path for recipe in found] == WHOLE
    return found


def fetch(cache: SegmentCache, recipes: Sequence[Recipe], **options: Any) -> Fetched:
    return returned(cache.segments(recipes, Request("s", "anchored", **options), Stopwatch()))


def found(fetched: Fetched) -> list[tuple[str, Tier, str]]:
    return [(use.path, use.tier, use.reason) for use in fetched.uses]


def test_each_is_looked_for_in_memory_then_on_disk_and_then_encoded(
    engine: Engine, cache: SegmentCache, recipes: Sequence[Recipe]
) -> None:
    tier = cache.tiers(recipes)
    assert {tier(recipe) for recipe in recipes} == {Tier.NONE}
    with fetch(cache, recipes) as fetched:
        assert found(fetched) == [(path, Tier.NONE, Reason.NEW) for path in WHOLE]
        assert sorted(fetched.encoded) == sorted(recipe.key for recipe in recipes)
    with fetch(cache, recipes) as fetched:
        assert found(fetched) == [(path, Tier.MEMORY, "") for path in WHOLE]
    engine.memory_tier.drop([recipes[1].key])
    tier = cache.tiers(recipes)
    assert [tier(recipe) for recipe in recipes] == [Tier.MEMORY, Tier.DISK, Tier.MEMORY]
    with fetch(cache, recipes) as fetched:
        assert [use.tier for use in fetched.uses] == [Tier.MEMORY, Tier.DISK, Tier.MEMORY]
        assert {use.outcome for use in fetched.uses} == {Outcome.HIT}
        assert fetched.encoded == {}


def test_one_that_is_asked_for_twice_counts_once(cache: SegmentCache, recipes: Sequence[Recipe]) -> None:
    with fetch(cache, [*recipes, *recipes]) as fetched:
        assert len(fetched.uses) == len(fetched.served) == 3


def test_what_stands_before_is_encoded_first_where_it_is_missing(
    cache: SegmentCache, recipes: Sequence[Recipe]
) -> None:
    with fetch(cache, recipes[1:2]) as fetched:
        assert [use.path for use in fetched.uses] == ["a"], "only what was asked for is counted"
        assert set(fetched.encoded) == {recipes[0].key, recipes[1].key}
    assert cache.store.contains(recipe.key for recipe in recipes) == {recipes[0].key, recipes[1].key}


def test_a_trial_leaves_nothing_in_memory_or_on_disk(
    engine: Engine, cache: SegmentCache, recipes: Sequence[Recipe]
) -> None:
    with fetch(cache, recipes, trial=True) as fetched:
        assert set(fetched.handles) == {recipe.key for recipe in recipes}
        assert {use.reason for use in fetched.uses} == {Reason.NEW}
        assert engine.memory_tier.bytes == 0
    assert cache.store.stats().segments == 0


def test_what_is_needed_in_passing_only_is_never_looked_for_nor_kept(
    engine: Engine, cache: SegmentCache, recipes: Sequence[Recipe]
) -> None:
    passing = replace(recipes[0], kept=False)
    for _ in range(2):
        with fetch(cache, [passing]) as fetched:
            assert found(fetched) == [("", Tier.NONE, Reason.NEW)]
        assert (engine.memory_tier.bytes, cache.store.stats().segments) == (0, 0)


@pytest.mark.parametrize("stored", [False, True])
def test_earlier_turns_are_held_in_memory_and_stored_only_where_asked(
    engine: Engine, cache: SegmentCache, recipes: Sequence[Recipe], stored: bool
) -> None:
    turn = replace(recipes[0], turn=True, path=TURN)
    with fetch(cache, [turn], store_turns=stored) as fetched:
        assert found(fetched) == [(TURN, Tier.NONE, Reason.NEW if stored else Reason.NOT_KEPT)]
    assert turn.key in engine.memory_tier
    assert cache.store.stats().segments == int(stored)


def test_without_holding_each_is_let_go_as_soon_as_nothing_sees_it(
    tmp_path: Path, recipes: Sequence[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "PASS_TEXTS", 1)
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path / "other"), memory=0)
    steps = engine.segment_cache.segments(recipes, Request("s", "anchored", hold=False), Stopwatch())
    held = []
    for _ in range(len(recipes)):
        assert isinstance(next(steps), Working)
        held.append(sorted(engine.memory_tier.keys()))
    first = recipes[0].key
    assert held == [[], [first], [first]], "the text before is held until the last module has seen it"
    fetched = returned(steps)
    assert engine.memory_tier.keys() == set()
    fetched.release()
    assert engine.store.contains(recipe.key for recipe in recipes) == {recipe.key for recipe in recipes}


def test_a_store_that_can_take_nothing_costs_one_warning_and_no_segment(
    cache: SegmentCache, recipes: Sequence[Recipe]
) -> None:
    cache.store.set_budget(1)
    with fetch(cache, recipes) as fetched:
        assert set(fetched.handles) == {recipe.key for recipe in recipes}
        cache.store.finish_writing()
        (warning,) = fetched.warnings()
        assert "no room left" in warning
    assert cache.store.stats().segments == 0


def test_tokens_under_a_key_that_is_anothers_are_never_read(
    engine: Engine, cache: SegmentCache, recipes: Sequence[Recipe]
) -> None:
    """Two texts cannot have one key; if a store or a memory said so it would be damaged."""
    fetch(cache, recipes[:1]).release()
    other = replace(recipes[0], token_ids=tuple(reversed(recipes[0].token_ids)))
    with fetch(cache, [other]) as fetched:
        assert fetched.handles[other.key].segment.token_ids == other.token_ids
        assert found(fetched) == [("", Tier.NONE, Reason.DAMAGED)]
    assert engine.store.stats().corrupt == 1


def test_a_budget_for_recipes_has_room_for_them_and_little_more(
    cache: SegmentCache, recipes: Sequence[Recipe]
) -> None:
    wanted = cache.budget_for(recipes)
    cache.store.set_budget(wanted)
    with fetch(cache, recipes) as fetched:
        cache.store.finish_writing()
        assert fetched.warnings() == ()
    stats = cache.store.stats()
    assert stats.segments == 3
    assert stats.bytes <= wanted <= stats.bytes + 3 * (4096 + 16 * 20)


def test_only_files_of_what_is_not_in_memory_are_read_ahead(
    engine: Engine, cache: SegmentCache, recipes: Sequence[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(cache, recipes).release()
    engine.memory_tier.drop([recipes[2].key])
    asked: list[str] = []
    monkeypatch.setattr(engine.store, "expect_soon", asked.extend)
    cache.expect_soon(recipes)
    assert asked == [recipes[2].key]


@pytest.mark.parametrize("after", range(3))
def test_whoever_stops_while_segments_are_encoded_leaves_what_is_done(
    tmp_path: Path, recipes: Sequence[Recipe], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "PASS_TEXTS", 1)
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path / "other"), memory=0)
    steps = engine.segment_cache.segments(recipes, Request("s", "anchored"), Stopwatch())
    for _ in range(after + 1):
        next(steps)
    steps.close()
    assert engine.memory_tier.bytes == 0
    engine.store.finish_writing()
    assert engine.store.holds.keys() == set()
    assert engine.store.contains(recipe.key for recipe in recipes) == {r.key for r in recipes[:after]}
    assert engine.store.verify().clean


SPOKEN = "<prompt><a/><user>Hi.</user><assistant>Yes?</assistant><user>And?</user></prompt>"


def test_earlier_turns_in_memory_are_stored_as_soon_as_that_is_asked(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(SPOKEN)
    prompt.answer(max_new_tokens=1)
    before = engine.store.stats().segments
    prompt.answer(max_new_tokens=1, store_conversation=True)
    stored = engine.store.stats().segments
    assert stored > before
    other = Engine(engine.model, Store.open(engine.store.folder))
    again = other.schema(SCHEMA).prompt(SPOKEN).answer(max_new_tokens=1, store_conversation=True)
    assert {use.tier for use in again.segments} == {Tier.DISK}


@pytest.mark.parametrize("how", ["encode", "answer"])
def test_what_is_in_memory_is_written_again_where_another_process_has_removed_it(
    engine: Engine, how: str
) -> None:
    schema = engine.schema(SCHEMA)
    schema.encode()
    other = Store.open(engine.store.folder)
    other.remove([row["key"] for row in other.segments()])
    if how == "encode":
        report = schema.encode()
        assert (report.encoded, report.reused, report.kept, report.warnings) == (0, 3, 3, ())
    else:
        schema.prompt("<prompt><a/><b/> go</prompt>").answer(max_new_tokens=1)
    assert engine.store.stats().segments == 3
    assert list((engine.store.folder / "locks").iterdir()) == []


def test_an_answer_does_not_write_again_what_a_budget_has_no_room_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = engine.schema(SCHEMA).prompt("<prompt><a/><b/> go</prompt>")
    engine.store.set_budget(1)
    assert prompt.answer(max_new_tokens=1, sync=True).warnings
    tried: list[object] = []
    monkeypatch.setattr(engine.store, "save", lambda *args, **_: tried.append(args))
    assert prompt.answer(max_new_tokens=1).warnings == ()
    engine.store.finish_writing()
    assert tried == []


@pytest.mark.parametrize("sync", [True, False])
def test_what_another_answer_has_just_made_is_not_encoded_again(
    cache: SegmentCache, recipes: Sequence[Recipe], sync: bool
) -> None:
    """Whether it is written by then, or not yet."""
    steps = cache.segments(recipes, Request("s", "anchored"), Stopwatch())
    assert next(steps).what.startswith("encoding")
    with fetch(cache, recipes, sync=sync) as other, returned(steps) as fetched:
        assert sorted(other.encoded) == sorted(recipe.key for recipe in recipes)
        assert fetched.encoded == {}
        assert {use.reason for use in fetched.uses} == {Reason.ELSEWHERE}
        for key, handle in other.handles.items():
            assert fetched.handles[key].segment is handle.segment


def test_two_schemas_with_the_same_included_rules_share_their_segments(
    engine: Engine, tmp_path: Path
) -> None:
    rules = '<schema name="rules"><module name="brief">Be brief and kind to all.</module></schema>'
    (tmp_path / "rules.pml").write_text(rules)

    def run(name: str, prompt: str) -> set[str]:
        source = f'<schema name="{name}"><include src="rules.pml"/><module name="{name}">x</module></schema>'
        Case(engine, parse_schema(source, base=tmp_path).tree, prompt_of(prompt))
        return set(held_in_memory(engine))

    before = run("one", "<prompt><brief/> so?</prompt>")
    assert before
    assert run("other", "<prompt><brief/> then?</prompt>") == before, "nothing was encoded"
