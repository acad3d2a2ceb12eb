"""Named blocks: read wherever they stand, with their answers right; and salts, which share nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.base.errors import SettingsError
from engine.base.events import Answer
from engine.batch.loop import BatchLoop
from engine.batch.passes import Pass
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.inference.submission import Mark
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import Block, Named
from engine.prompt.recipe import Recipe
from tests.drawing import EVERY, each
from tests.engine.batch.test_conversations import engine_in, said
from tests.engine.batch.test_marks import usage
from tests.engine.cases import apart
from tests.engine.reference import Reference
from tests.engine.tiny import tiny_network

MOVING = ["llama-gqa", "gemma2", "mistral-swa"]
SETTINGS = RunSettings(max_new_tokens=4)
TEXTS = {
    "a": "Alpha and its many friends walk along the river. " * 2,
    "b": "Beta sleeps under the tree",
    "c": "Gamma dreams of what nobody has told yet to anybody. " * 3,
}


def named(name: str, *sees: str) -> Block:
    return Block(TEXTS[name], Named(name, sees))


def modules(order: str, words: str = "So?") -> list[Message]:
    """A system turn of named blocks in some order, and a question."""
    return [Message("system", tuple(map(named, order))), said("user", words)]


def plain(order: str) -> list[Message]:
    return [said("system", *(TEXTS[name] for name in order)), said("user", "So?")]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_in(tmp_path) as opened:
        yield opened


def asked(engine: Engine, messages: list[Message], salt: str = "", **given: Any) -> Answer:
    return engine.submit(engine.conversation(messages, salt=salt), SETTINGS, **given).result()


def recipes(engine: Engine, messages: list[Message], salt: str = "") -> dict[str, Recipe]:
    """What is read of each named block, by its path."""
    slices = engine.conversation(messages, salt=salt).tokenized.planned().slices
    return {one.recipe.path: one.recipe for one in slices if one is not None}


def sized(engine: Engine, names: str) -> int:
    return sum(engine.count_tokens(TEXTS[name]) for name in names)


def test_named_blocks_are_read_in_any_order(engine: Engine) -> None:
    first, second = (asked(engine, modules(order)) for order in ("abc", "cab"))
    assert usage(first)[:2] == (0, sized(engine, "abc"))
    assert usage(second)[:2] == (sized(engine, "abc"), 0)
    assert [use.path for use in second.segments] == ["c", "a", "b"]


def test_with_marks_only_nothing_is_read_from_the_first_moved_block_on(engine: Engine) -> None:
    for order, read in (("abc", 0), ("cab", 0)):
        prompt = engine.conversation(plain(order))
        marks = [Mark(border) for border in prompt.borders()[:3]]
        assert usage(engine.submit(prompt, SETTINGS, marks=marks).result())[0] == read


def test_they_are_read_after_a_restart(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        asked(engine, modules("abc"))
    with engine_in(tmp_path) as engine:
        assert usage(asked(engine, modules("cba")))[0] == sized(engine, "abc")


@pytest.mark.parametrize("chat", [True, False])
def test_a_segment_has_one_name_in_any_order_and_any_conversation(engine: Engine, chat: bool) -> None:
    alone = {name: recipes(engine, modules(name))[name] for name in "abc"}
    for order in ("abc", "cab", "bc"):
        found = recipes(engine, [said("user", "Before."), *modules(order)])
        assert {name: one.key for name, one in found.items()} == {name: alone[name].key for name in order}


def test_answers_are_those_of_the_schema_with_the_same_modules(engine: Engine) -> None:
    blocks = "\n\n".join(f'<module name="{name}">{TEXTS[name].strip()}</module>' for name in "abc")
    schema = engine.schema(f'<schema name="s"><system>{blocks}</system></schema>')
    prompt = schema.prompt("<prompt><c/><a/><user>So?</user></prompt>")
    turns = [
        Message("system", tuple(Block(TEXTS[name].strip(), Named(name)) for name in "ca")),
        said("user", "So?"),
    ]
    conversation = engine.conversation(turns)
    answers = [one.answer(SETTINGS, scope="scaffold") for one in (prompt, conversation)]
    plans = [one.tokenized.planned("scaffold").plan for one in (prompt, conversation)]
    assert plans[0].token_ids == plans[1].token_ids
    assert answers[0].token_ids == answers[1].token_ids
    assert apart(*(one.first_logits for one in answers)) <= 1e-4  # type: ignore[arg-type]


@pytest.mark.parametrize("family", each([*MOVING, "gpt2"], "mistral-swa", "gpt2"))
def test_under_the_scope_scaffold_they_give_the_uncached_answer(tmp_path: Path, family: str) -> None:
    with engine_in(tmp_path, family) as engine:
        for order in ("abc", "cab", "cab"):
            answer = asked(engine, modules(order), scope="scaffold")
            full = engine.conversation(modules(order)).answer(SETTINGS, mode="uncached")
            assert answer.token_ids == full.token_ids
            assert apart(answer.first_logits, full.first_logits) <= 1e-4  # type: ignore[arg-type]


def test_a_model_that_moves_nothing_reads_them_as_text(tmp_path: Path) -> None:
    with engine_in(tmp_path, "gpt2") as engine:
        assert usage(asked(engine, modules("abc")))[:2] == (0, 0)
        answer = asked(engine, modules("acb"))
        assert answer.segments == ()
        prompt = engine.conversation(modules("acb"))
        assert usage(answer)[0] == prompt.borders()[0], "up to what stands elsewhere"
        assert answer.token_ids == prompt.answer(SETTINGS, mode="uncached").token_ids


@st.composite
def conversations(draw: Any) -> list[Message]:
    """Named blocks, some of which see others, between texts in several turns."""
    sees = {
        "a": (),
        "b": draw(st.sampled_from([(), ("a",)])),
        "c": draw(st.sampled_from([(), ("b",), ("b", "a")])),
    }
    every = [Block(TEXTS[name], Named(name, sees[name])) for name in "abc"]
    order = draw(st.permutations(every)) + draw(st.lists(st.sampled_from(every), max_size=1))
    text = st.sampled_from(["", "x", "\n", "Some words of mine. " * 4]).map(Block)
    blocks = [one for block in order for one in (*draw(st.lists(text, max_size=1)), block)]
    cut = draw(st.integers(0, len(blocks)))
    turns = [
        Message("system", tuple(blocks[:cut])),
        Message("user", (*blocks[cut:], *draw(st.lists(text, max_size=2)))),
    ]
    return [*turns, said("assistant", "Yes."), said("user", "So?")] if draw(st.booleans()) else turns


@pytest.mark.parametrize("family", each(MOVING, "gemma2"))
@settings(max_examples=6 if EVERY else 3, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(conversations(), min_size=2, max_size=3), draws=st.data())
def test_drawn_answers_equal_a_dense_reference_and_usage_adds_up(
    family: str, drawn: list[list[Message]], draws: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reference = Reference(tiny_network(family))
    given = RunSettings(
        max_new_tokens=4, scope=draws.draw(st.sampled_from(["anchored", "isolated"]), label="scope")
    )
    with engine_in(tmp_path_factory.mktemp("store"), family) as engine:
        prompts = [engine.conversation(messages) for messages in drawn]
        tickets = []
        for prompt in [*prompts, *prompts]:
            blocks = draws.draw(st.sets(st.sampled_from(prompt.borders()), max_size=2), label="marks")
            tickets.append(engine.submit(prompt, given, marks=[Mark(one) for one in sorted(blocks)]))
        for prompt, ticket in zip([*prompts, *prompts], tickets, strict=True):
            planned = prompt.tokenized.planned(given.scope)
            dense = reference.logits(planned.plan, planned.slices)[-1]
            answer = ticket.result()
            usage(answer)
            assert answer.first_logits is not None
            assert apart(answer.first_logits, dense) <= 1e-4
            assert answer.token_ids[0] == int(torch.argmax(dense))
        for prompt in prompts:
            last = prompt.borders()[-1]
            answer = engine.submit(prompt, given, marks=[Mark(last)]).result()
            read, written, _ = usage(answer)
            assert read >= last
            assert written == 0


def test_marks_stand_beside_named_blocks(tmp_path: Path) -> None:
    turns = [
        Message("system", (Block("First of all. " * 9), named("a"), Block("Then this."), named("b"))),
        said("user", "What is it about? " * 5, "So?"),
    ]
    with engine_in(tmp_path) as engine:
        ends = engine.conversation(turns).borders()
        first = asked(engine, turns, marks=[Mark(ends[4])])
        assert usage(first)[:2] == (0, ends[4])
    with engine_in(tmp_path) as engine:
        assert usage(asked(engine, turns))[:2] == (ends[4], 0)
    for block in range(4):  # one that ends before a named block has that written as well
        with engine_in(tmp_path / str(block)) as engine:
            blocks = sized(engine, "ab" if block < 1 else "b" if block < 3 else "")
            read, written, _ = usage(asked(engine, turns, marks=[Mark(ends[block])]))
            between = ends[block] + blocks - written
            assert read == 0
            assert 0 <= between <= (2 if block in (1, 3) else 0), "what sets a block apart from it is not"
        with engine_in(tmp_path / str(block)) as engine:
            assert usage(asked(engine, turns))[0] == written, "what is told as written is read"


def test_what_is_counted_as_written_before_a_named_block_is_read_after_a_restart(tmp_path: Path) -> None:
    turns = [said("system", "Be brief."), Message("user", (named("a"),)), said("assistant", "Yes.")]
    turns = [*turns, Message("user", (named("b"), Block("So?")))]
    known = 0
    for blocks in ((1,), (1,), (1, 4), (1, 4)):
        with engine_in(tmp_path) as engine:
            prompt = engine.conversation(turns)
            marks = [Mark(prompt.borders(SETTINGS)[block], 300.0) for block in blocks]
            answer = engine.submit(prompt, SETTINGS, marks=marks).result()
            assert answer.tokens["read"] >= known, "what was told as written is read"
            assert answer.marked == marks[-1].position
            known = answer.tokens["read"] + answer.tokens["written"]


def test_what_a_block_sees_is_part_of_its_name(engine: Engine) -> None:
    alone = recipes(engine, modules("ab"))["b"].key
    seeing = [Message("system", (named("a"), named("b", "a"))), said("user", "So?")]
    turned = [Message("system", (named("b", "a"), named("c"), named("a"))), said("user", "So?")]
    found = recipes(engine, seeing)
    assert found["a/b"].key != alone
    assert found["a/b"].key == recipes(engine, turned)["a/b"].key
    assert found["a"].key == recipes(engine, turned)["a"].key == recipes(engine, modules("a"))["a"].key
    seen = [one.recipe.token_ids for one in found["a/b"].context]
    assert seen[-1] == tuple(engine.model.tokenize(TEXTS["a"]))
    assert usage(asked(engine, seeing))[1] == usage(asked(engine, turned))[0] == sized(engine, "ab")


def test_one_name_with_one_text_is_one_module(engine: Engine) -> None:
    turns = [Message("user", (named("a"), named("b"), named("a")))]
    assert list(recipes(engine, turns)) == ["a", "b"]
    first, second = asked(engine, turns), asked(engine, turns)
    assert usage(first)[1] == sized(engine, "aba")
    assert usage(second)[0] >= sized(engine, "aba")
    assert first.token_ids == second.token_ids


def behind(number: int) -> Block:
    """A block that sees the one before it."""
    return Block(f"{number}.", Named(f"n{number}", (f"n{number - 1}",) if number else ()))


def test_a_chain_of_blocks_is_as_long_as_may_be(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        answer = asked(engine, [Message("user", tuple(behind(number) for number in range(65)))])
        assert sum(usage(answer)) == answer.tokens["prompt"]


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ((Block("x", Named("a")), Block("y", Named("a"))), "named 'a' and differ in their texts"),
        ((Block("x", Named("a")), Block("x", Named("a", ("a",)))), "differ in their blocks that they see"),
        ((Block("x", Named("no name")),), "'no name' cannot be the name of a block"),
        ((Block("x", Named("a/b")),), "'a/b' cannot be the name of a block"),
        (
            (Block("x", Named("a", ("b",))),),
            "'a' sees 'b', but no block has that name; there are 'a'",
        ),
        ((Block("x", Named("a", ("b",))), Block("y", Named("b", ("a",)))), "sees itself"),
        ((Block("x", Named("a", "b")),), "it must be Named"),  # type: ignore[arg-type]
        ((Block("x", "a"),), "it must be Named"),  # type: ignore[arg-type]
        ((Block("x", Named("a" * 201)),), "has 201 characters; 200 is the limit"),
        (tuple(behind(number) for number in range(66)), "encoded after 65 others; 64 is the limit"),
    ],
)
@pytest.mark.parametrize("family", ["llama-gqa", "gpt2"])
def test_names_that_do_not_fit_are_refused(tmp_path: Path, family: str, blocks: Any, told: str) -> None:
    with engine_in(tmp_path, family) as engine, pytest.raises(SettingsError, match=told):
        engine.conversation([Message("user", blocks)])


def test_what_the_assistant_says_has_no_name(engine: Engine) -> None:
    turns = [said("user", "Hi"), Message("assistant", (named("a"),)), said("user", "So?")]
    with pytest.raises(SettingsError, match="Block 1 of message 2 has a name, and its role is 'assistant'"):
        engine.conversation(turns)


SCHEMA = '<schema name="s">Read this. <module name="m">Alpha and its friends walk.</module></schema>'


def test_salts_share_nothing(tmp_path: Path) -> None:
    stored: list[set[str]] = []
    for salt in ("", "one", "two"):
        with engine_in(tmp_path) as engine:
            turns = modules("abc", "What is all this about, and who was it? " * 5)
            mark = Mark(engine.conversation(turns).borders()[-1])
            assert usage(asked(engine, turns, salt, marks=[mark]))[0] == 0
            length = usage(asked(engine, turns, salt, marks=[mark]))[0]
            assert length >= mark.position
            prompt = engine.schema(SCHEMA, salt=salt).prompt("<prompt><m/>So?</prompt>")
            first, second = (engine.submit(prompt, SETTINGS).result() for _ in range(2))
            assert usage(first)[0] == 0
            assert {use.reason for use in first.segments} <= {"new", ""}
            assert usage(second)[0] > 0
            for other in {"", "one", "two"} - {salt}:  # in memory
                assert not {one.key for one in recipes(engine, turns, other).values()} & {
                    one.key for one in recipes(engine, turns, salt).values()
                }
            stored.append({one["key"] for one in engine.store.segments()})
    sizes = [len(one) for one in stored]
    assert sizes == [sizes[0], 2 * sizes[0], 3 * sizes[0]]


def test_salts_share_nothing_in_memory(engine: Engine) -> None:
    turns = plain("abc")
    asked(engine, turns)
    assert usage(asked(engine, turns))[0] > 0
    for salt in ("one", "two"):
        assert usage(asked(engine, turns, salt))[0] == 0
        assert usage(asked(engine, turns, salt))[0] > 0


def test_salted_misses_tell_nothing_of_others(engine: Engine) -> None:
    asked(engine, modules("abc"), "one")
    for salt in ("", "two"):
        assert {use.reason for use in asked(engine, modules("abc"), salt).segments} == {"new"}


def test_without_a_salt_names_are_what_they_were(engine: Engine) -> None:
    identity = engine.spec.identity
    assert identity.model == identity.fingerprint
    with pytest.raises(SettingsError, match="salt is 3"):
        engine.conversation(plain("a"), salt=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("parallel", [1, 2])
def test_so_many_are_under_way_at_once(tmp_path: Path, parallel: int) -> None:
    with engine_in(tmp_path, parallel=parallel) as engine:
        assert isinstance(engine.answerer, BatchLoop)
        made: list[Pass] = []
        engine.answerer.watcher = made.append
        tickets = [engine.submit(engine.conversation(plain(one)), SETTINGS) for one in ("a", "b", "c", "ab")]
        answers = [ticket.result() for ticket in tickets]
        assert max(one.answers for one in made) == parallel
        for order, answer in zip(("a", "b", "c", "ab"), answers, strict=True):
            full = engine.conversation(plain(order)).answer(SETTINGS, mode="uncached")
            assert answer.token_ids == full.token_ids


@pytest.mark.parametrize("parallel", [0, -1, 1.5, True, "2"])
def test_a_number_of_prompts_that_is_none_is_refused(tmp_path: Path, parallel: Any) -> None:
    with pytest.raises(SettingsError, match="parallel is"):
        engine_in(tmp_path, parallel=parallel)
