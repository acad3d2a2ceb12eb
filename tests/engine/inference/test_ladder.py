"""Answers under a promise: which remedy they take, what the check behind them finds, and what it leaves."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.base.errors import SettingsError
from engine.base.events import Answer, Finished, FirstToken, Listener
from engine.engine import Engine
from engine.fidelity import check
from engine.fidelity.check import is_due
from engine.fidelity.reuse_levels import (
    COMPUTED,
    EXACT,
    PRECEDED,
    PREFIXED,
    REPAIRED,
    RUNGS,
    SCAFFOLDED,
    STORED,
    chosen_rung,
)
from engine.inference.run_settings import RunSettings
from engine.pml import PromptError
from engine.store import Store
from engine.store.index.database import FailedIndexError
from engine.store.index.measurements import LAST, MOST_COMBINATIONS
from tests.engine.cache.segments import in_processes
from tests.engine.cases import model_of

SCHEMA = """<schema name="s"><system>You plan.</system><user>Read.
<module name="a">alpha and more of it</module>
<module name="b">{b}</module><module name="c">gamma</module></user></schema>"""
PROMPT = "<prompt><a/><b/><user>Which letters are there?</user></prompt>"
NEVER, ALWAYS = 0.0, 100.0  # promises that nothing but the full pass keeps, and that everything keeps


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    yield opened
    opened.close()


def prepared(engine: Engine, prompt: str = PROMPT, b: str = "beta is about alpha") -> Any:
    return engine.schema(SCHEMA.format(b=b)).prompt(prompt)


def settings(most: float, **more: Any) -> RunSettings:
    return RunSettings(max_new_tokens=6, reuse="auto", max_kl=most, **more)


def checked(engine: Engine, most: float, **given: Any) -> tuple[Answer, Any]:
    """An answer, and what its check says of it."""
    prompt = prepared(engine, **given)
    answer = prompt.answer(settings(most))
    assert answer.reuse is not None
    return answer, prompt.check_answer(answer.token_ids, answer.reuse, settings(most))


def test_the_lowest_rung_whose_measurements_keep_the_promise_is_taken() -> None:
    assert chosen_rung({}, 0.02, RUNGS) == REPAIRED
    assert chosen_rung({STORED: 0.01, REPAIRED: 0.001}, 0.02, RUNGS) == STORED
    assert chosen_rung({STORED: 0.05, REPAIRED: 0.01}, 0.02, RUNGS) == REPAIRED
    assert chosen_rung({STORED: 0.015, REPAIRED: 0.015}, 0.02, RUNGS) == REPAIRED, (
        "too close for what is stored"
    )
    assert chosen_rung({STORED: 0.05, REPAIRED: 0.03}, 0.02, RUNGS) == PRECEDED
    assert chosen_rung({STORED: 0.05}, 0.02, RUNGS) == REPAIRED
    kept = {STORED: 0.05, REPAIRED: 0.01, PRECEDED: 0.001}
    assert chosen_rung(kept, 0.02, RUNGS, {REPAIRED: 60, PRECEDED: 0}.__getitem__) == PRECEDED
    assert chosen_rung(kept, 0.02, RUNGS, {REPAIRED: 60, PRECEDED: math.inf}.__getitem__) == REPAIRED
    assert chosen_rung({0: 1, 1: 1, 2: 1}, 0.02, RUNGS) == SCAFFOLDED
    assert chosen_rung({0: 1, 1: 1, 2: 1, 3: 1}, 0.02, RUNGS) == PREFIXED
    assert chosen_rung({0: 1, 1: 1, 2: 1, 3: 1, 4: 1}, 0.02, RUNGS) == COMPUTED
    assert chosen_rung({}, 0.02, [STORED, SCAFFOLDED, COMPUTED]) == SCAFFOLDED
    assert chosen_rung({STORED: 1}, 0.02, [STORED, COMPUTED]) == COMPUTED


def test_the_first_runs_are_checked_and_then_ever_fewer() -> None:
    assert [run for run in range(1, 100) if is_due(run)] == [1, 2, 3, 8, 16, 32, 64]


def test_it_comes_down_where_what_is_stored_keeps_the_promise(engine: Engine) -> None:
    first, found = checked(engine, ALWAYS)
    assert first.reuse is not None
    assert re.fullmatch(r"Recomputed \d+ of \d+ cached tokens: not measured yet", first.reuse.why)
    assert (first.reuse.rung, first.reuse.kl, first.reuse.checked) == (REPAIRED, None, False)
    assert found.checked
    assert not found.broken
    again = prepared(engine).answer(settings(ALWAYS))
    assert again.reuse is not None
    assert again.reuse.rung == STORED
    assert again.reuse.why.startswith("Reused as stored: mean KL ")
    assert again.reuse.why.endswith(" when last checked, limit 100")
    plain = prepared(engine).answer(max_new_tokens=6)
    assert again.token_ids == plain.token_ids
    assert plain.reuse is None


def test_it_goes_up_where_the_promise_is_broken(engine: Engine) -> None:
    """The check encodes and measures what the next run would take, until something keeps the promise."""
    first, found = checked(engine, 1e-4)
    assert first.reuse is not None
    assert first.reuse.rung == REPAIRED
    assert found.broken
    assert found.why.endswith("exceeds the limit of 0.0001; the next run uses a more exact method")
    known = engine.store.measured.of(first.reuse.combination)
    assert set(known.kl) == {STORED, REPAIRED, PRECEDED}
    assert known.kl[PRECEDED] <= 1e-4 < known.kl[REPAIRED]
    after, found = checked(engine, 1e-4)
    assert after.reuse is not None
    assert (after.reuse.rung, after.reuse.scope) == (PRECEDED, "preceding")
    assert not found.broken
    assert after.tokens["from_cache"] > 0
    assert after.token_ids == prepared(engine).answer(max_new_tokens=6, mode="uncached").token_ids


def test_nothing_is_reused_where_no_remedy_keeps_the_promise(engine: Engine) -> None:
    first, found = checked(engine, NEVER)
    assert found.broken
    assert first.reuse is not None
    assert {STORED, REPAIRED, PRECEDED} <= set(engine.store.measured.of(first.reuse.combination).kl)
    engine.store.measured.note(first.reuse.combination, {PRECEDED: 1, SCAFFOLDED: 1, PREFIXED: 1})
    assert checked(engine, NEVER)[0].reuse.rung == COMPUTED


def test_a_scaffold_of_all_modules_is_read_once_it_is_encoded(engine: Engine) -> None:
    combination = prepared(engine).answer(settings(1e-4)).reuse.combination
    engine.store.measured.count(combination, "s")
    engine.store.measured.note(combination, {STORED: 1, REPAIRED: 1, PRECEDED: 1})
    before, _ = checked(engine, 1e-4)
    after = prepared(engine).answer(settings(1e-4))
    assert before.reuse is not None
    assert after.reuse is not None
    assert (
        before.reuse.why
        == "Computed without reuse: the modules that would stay within the limit are not encoded yet"
    )
    assert (after.reuse.rung, after.reuse.scaffold) == (SCAFFOLDED, ("a", "b"))
    assert after.tokens["from_cache"] > 0
    assert after.token_ids == prepared(engine).answer(max_new_tokens=6, mode="uncached").token_ids
    assert after.reuse.to_json()["taken"] == {"scope": "anchored", "repair": "none", "scaffold": ["a", "b"]}


def test_a_prefix_with_its_arguments_keeps_any_promise(engine: Engine) -> None:
    text = '<module name="a">For <param name="days" len="4"/> days or more</module>'
    schema = engine.schema(f'<schema name="s"><user>{text}</user></schema>')

    def prompt(days: str) -> Any:
        return schema.prompt(f'<prompt><a days="{days}"/><user>Where to?</user></prompt>')

    combination = prompt("3").answer(settings(1e-4)).reuse.combination
    for _ in range(3):
        engine.store.measured.count(combination, "s")
    engine.store.measured.note(combination, {STORED: 1, REPAIRED: 1})
    before = prompt("3").answer(settings(1e-4))
    found = prompt("3").check_answer(before.token_ids, before.reuse, settings(1e-4))
    assert (before.reuse.rung, found.rung) == (COMPUTED, COMPUTED)
    after = prompt("3").answer(settings(1e-4))
    assert (after.reuse.rung, after.tokens["from_cache"] > 0) == (PREFIXED, True)
    assert after.reuse.why.startswith("Everything up to the last module read as one prefix: mean KL ")
    assert after.token_ids == prompt("3").answer(max_new_tokens=6, mode="uncached").token_ids
    assert not prompt("3").check_answer(after.token_ids, after.reuse, settings(1e-4), every=True).checked
    other = prompt("12").answer(settings(1e-4))
    assert other.reuse.rung == COMPUTED, "its prefix is another"


def test_what_a_repair_keeps_is_read_as_a_prefix_from_the_third_run_on(engine: Engine) -> None:
    combination = prepared(engine).answer(settings(1)).reuse.combination
    engine.store.measured.count(combination, "s")  # the first run
    engine.store.measured.note(combination, {STORED: 100, REPAIRED: 0.5})
    answers = [checked(engine, 1)[0] for _ in range(2)]
    assert [one.reuse.rung for one in answers if one.reuse] == [REPAIRED, PREFIXED]
    other = "<prompt><a/>and<b/><user>Which letters are there?</user></prompt>"
    assert prepared(engine, other).answer(settings(1)).reuse.rung == REPAIRED, "its prefix is another"


@pytest.mark.parametrize("rung", [PRECEDED, SCAFFOLDED, PREFIXED])
def test_new_turns_of_a_conversation_do_not_end_reuse(engine: Engine, rung: int) -> None:
    turns = ["<user>Which letters are there?</user>"]

    def asked() -> Answer:
        answer = checked(engine, 1, prompt=f"<prompt><a/><b/>{''.join(turns)}</prompt>")[0]
        turns.extend(("<assistant>Alpha and beta.</assistant>", "<user>And which others?</user>"))
        return answer

    first = asked()
    assert first.reuse is not None
    store, name = engine.store.measured, first.reuse.combination
    store.note(name, {**dict.fromkeys(range(rung), 100.0), rung: 0.0})
    if PREFIXED not in store.of(name).kl:
        store.note(name, {PREFIXED: 100.0})
    answers = [asked() for _ in range(4)]
    assert [one.reuse.rung for one in answers[-3:] if one.reuse] == [rung] * 3
    assert answers[-1].tokens["from_cache"] > answers[-2].tokens["from_cache"] > first.tokens["from_cache"]


def test_without_reuse_it_is_the_uncached_answer_told_as_the_cached_side(engine: Engine) -> None:
    combination = prepared(engine).answer(settings(NEVER)).reuse.combination
    engine.store.measured.count(combination, "s")
    engine.store.measured.note(combination, dict.fromkeys(range(5), 1.0))
    events = list(prepared(engine).stream(settings(NEVER)))
    assert {event.side for event in events} == {"cached"}
    answer = events[-1].answer
    assert answer.reuse.to_json()["taken"] == "uncached"
    assert answer.reuse.why == "Computed without reuse: every method tried had a KL above 0"
    assert answer.tokens["from_cache"] == 0
    assert answer.token_ids == prepared(engine).answer(max_new_tokens=6, mode="uncached").token_ids
    assert prepared(engine).plan(settings(NEVER)).total_tokens == answer.tokens["prompt"]
    assert prepared(engine).passages(settings(NEVER))
    assert prepared(engine).encode(settings(NEVER)).segments == 0
    assert engine.outlook(prepared(engine), settings(NEVER)) is not None
    measured = prepared(engine).fidelity(settings(NEVER))
    assert [one.path for one in measured.modules] == ["", "a", "b"], "what reuse would do"
    other = {"b": "beta is another"}
    repaired, stored = (prepared(engine, **other).fidelity(how) for how in (settings(NEVER), RunSettings()))
    assert repaired.kl_mean < stored.kl_mean, "as an answer would be repaired"
    assert (stored.scope, stored.repair) == ("anchored", "none")
    assert repaired.scope
    assert (repaired.scope, repaired.repair) != (stored.scope, stored.repair), "what was chosen"
    ticket = engine.submit(prepared(engine), settings(NEVER))
    assert ticket.result().token_ids == answer.token_ids
    assert ticket.result().reuse.rung == COMPUTED


def test_an_answer_of_both_sides_is_always_checked(engine: Engine) -> None:
    for _ in range(3):
        checked(engine, ALWAYS)
    fourth, unchecked = checked(engine, ALWAYS)
    assert fourth.reuse is not None
    assert not unchecked.checked
    prompt = prepared(engine)
    assert prompt.check_answer(fourth.token_ids, fourth.reuse, settings(ALWAYS), every=True).checked


def test_a_check_does_not_bring_back_what_was_deleted(engine: Engine) -> None:
    prompt = prepared(engine)
    answer = prompt.answer(settings(ALWAYS))
    engine.memory_tier.clear()
    engine.store.clear()
    found = prompt.check_answer(answer.token_ids, answer.reuse, settings(ALWAYS))
    assert found == answer.reuse
    assert engine.store.stats().segments == 0


def test_what_was_encoded_behind_neighbours_is_checked_where_nothing_else_is_stored(engine: Engine) -> None:
    """As after runs with a scope of their own, or where the cache has evicted the other segments."""
    prompt = prepared(engine)
    prompt.answer(max_new_tokens=6, scope="preceding")
    answer = prompt.answer(settings(ALWAYS))
    assert answer.reuse.rung == PRECEDED
    assert prompt.check_answer(answer.token_ids, answer.reuse, settings(ALWAYS)).checked
    known = engine.store.measured.of(answer.reuse.combination)
    assert set(known.kl) == {PRECEDED}, "a check encodes nothing that the answer did not read"


def test_a_remedy_that_does_not_fit_the_window_is_passed_over(engine: Engine) -> None:
    """Slots take their full length in what is encoded behind neighbours; the prompt itself is short."""
    modules = "".join(f'<module name="{m}">{m} <param name="p" len="1200"/> end</module>' for m in "ab")
    schema = engine.schema(f'<schema name="s"><user>{modules}</user></schema>')
    prompt = schema.prompt('<prompt><a p="x"/><b p="y"/><user>Which?</user></prompt>')
    with pytest.raises(PromptError):
        prompt.answer(max_new_tokens=1, scope="preceding")
    rungs = []
    for _ in range(3):
        answer = prompt.answer(settings(1e-4))
        assert answer.reuse is not None
        rungs.append(answer.reuse.rung)
        prompt.check_answer(answer.token_ids, answer.reuse, settings(1e-4))
    assert set(engine.store.measured.of(answer.reuse.combination).kl) == {STORED, REPAIRED, PREFIXED}
    assert rungs == [REPAIRED, PREFIXED, PREFIXED]
    assert answer.token_ids == prompt.answer(max_new_tokens=6, mode="uncached").token_ids


def test_another_text_order_or_placement_is_another_combination(engine: Engine) -> None:
    def name(**given: Any) -> str:
        more = {key: given.pop(key) for key in ("placement",) if key in given}
        reuse = prepared(engine, **given).answer(settings(ALWAYS, **more)).reuse
        return str(reuse.combination)

    first = name()
    assert first == name(prompt=PROMPT.replace("letters", "numbers")), "new text makes no difference"
    other = "<prompt><b/><a/><user>Which letters are there?</user></prompt>"
    names = [first, name(b="beta, rewritten"), name(prompt=other), name(placement="schema")]
    assert len(set(names)) == len(names)
    checked(engine, ALWAYS)
    assert prepared(engine).answer(settings(ALWAYS)).reuse.rung == STORED
    assert prepared(engine, b="beta, rewritten").answer(settings(ALWAYS)).reuse.rung == REPAIRED


def test_a_prompt_without_modules_and_a_scope_of_ones_own(engine: Engine) -> None:
    schema = engine.schema('<schema name="t"><module name="m">one</module></schema>')
    answer = schema.prompt("<prompt>Nothing</prompt>").answer(settings(NEVER))
    assert answer.reuse.to_json() == {
        "taken": {"scope": "anchored", "repair": "none"},
        "why": EXACT,
        "kl": None,
        "promise": NEVER,
        "checked": False,
    }
    for own in ({"scope": "isolated"}, {"repair": "link:2"}):
        with pytest.raises(SettingsError, match="Leave them out, or set reuse to 'off'"):
            settings(NEVER, **own)
    with pytest.raises(SettingsError, match="max_kl is -1"):
        settings(-1)


def test_a_check_waits_for_quiet_and_tells_what_it_found(engine: Engine) -> None:
    told: list[Any] = []
    engine.check_when_idle()
    events = prepared(engine).stream(settings(ALWAYS), listener=Listener(checked=told.append))
    kinds = [type(event) for event in events]
    assert kinds.index(FirstToken) < kinds.index(Finished)
    assert engine.idle.wait(30)
    assert [one.checked for one in told] == [True]
    assert prepared(engine).answer(settings(ALWAYS)).reuse.rung == STORED


def test_a_check_reads_the_uncached_answer_where_there_is_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []

    def reading(ladder: Any, taken: Any, answer: Any, *, every: bool) -> Any:
        read.append((tuple(answer), every))
        yield from ()
        return taken

    monkeypatch.setattr("engine.prepared.checking", reading)
    engine.check_when_idle()
    events = list(prepared(engine).stream(settings(ALWAYS), mode="both"))
    uncached = next(e.answer for e in events if isinstance(e, Finished) and e.side == "uncached")
    assert engine.idle.wait(30)
    assert read == [(uncached.token_ids, True)]


def test_what_is_asked_meanwhile_interrupts_a_check(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, plain = threading.Event(), check.read

    def slow(model: Any, *given: Any) -> Any:
        inside.set()
        until = time.monotonic() + 30
        while not engine.computing.awaited:  # a long pass looks between its layers
            assert time.monotonic() < until
            time.sleep(0.001)
        return plain(model, *given)

    answer = prepared(engine).answer(settings(ALWAYS))
    monkeypatch.setattr(check, "read", slow)
    engine.check_when_idle()
    prepared(engine).answer(settings(ALWAYS))
    assert inside.wait(30)
    assert prepared(engine).answer(max_new_tokens=6).token_ids
    assert engine.idle.wait(30)
    assert not engine.store.measured.of(answer.reuse.combination).kl, "it is forgotten"


def test_a_check_that_fails_costs_no_answer_and_no_later_check(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("out of luck")

    engine.check_when_idle()
    with monkeypatch.context() as patched:
        patched.setattr(check, "read", broken)
        first = prepared(engine).answer(settings(ALWAYS))
        ticket = engine.submit(prepared(engine), settings(ALWAYS))
        assert ticket.result().text == first.text
        assert engine.idle.wait(30)
    assert "idle work failed" in caplog.text
    prepared(engine).answer(settings(ALWAYS))
    assert engine.idle.wait(30)
    assert engine.store.measured.of(first.reuse.combination).kl


def test_an_index_that_cannot_be_used_costs_no_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:

    def refuse(*_: Any) -> Any:
        raise FailedIndexError("the disk is gone")

    prompt, answer = prepared(engine), prepared(engine).answer(settings(ALWAYS))
    monkeypatch.setattr(type(engine.store.index), "reading_soon", refuse)
    monkeypatch.setattr(type(engine.store.index), "writing", refuse)
    again = prompt.answer(settings(ALWAYS))
    assert again.reuse.rung == REPAIRED
    assert again.text == answer.text


def _measure_in_process(folder: str, number: int) -> None:
    store = Store.open(Path(folder))
    for one in range(20):
        store.measured.count("shared", "s")
        store.measured.note("shared", {STORED: float(number), REPAIRED: float(one)})
    store.close()


def test_two_processes_count_and_measure_together(tmp_path: Path) -> None:
    in_processes(_measure_in_process, *((str(tmp_path), number) for number in range(2)))
    store = Store.open(tmp_path)
    known = store.measured.of("shared")
    store.close()
    assert known.runs == 40
    assert 0 <= known.kl[STORED] <= 1
    assert known.kl[REPAIRED] <= 19


def test_only_the_last_measurements_count_and_the_table_is_bounded(tmp_path: Path) -> None:
    now = [0.0]
    store = Store.open(tmp_path, clock=lambda: now[0])
    store.measured.count("first", "s")
    for one in range(LAST + 5):
        store.measured.note("first", {STORED: 100.0 if one < 5 else 2.0})
    assert store.measured.of("first").kl == {STORED: 2.0}
    with store.index.writing() as connection:
        connection.executemany(
            "insert into combinations (name, schema, runs, used) values (?, 't', 1, ?)",
            [(f"n{one}", one + 1) for one in range(MOST_COMBINATIONS)],
        )
    now[0] = 1e6
    store.measured.count("last", "t")
    assert store.measured.of("first").runs == 0
    assert not store.measured.of("first").kl, "its measurements went with it"
    assert store.measured.of("last").runs == 1
    store.close()


def test_clearing_the_store_forgets_what_was_measured(engine: Engine) -> None:
    answer, _ = checked(engine, ALWAYS)
    name = answer.reuse.combination if answer.reuse else ""
    engine.store.clear("another")
    engine.store.clear(conversation=True)
    assert engine.store.measured.of(name).kl
    engine.store.clear("s")
    assert engine.store.measured.of(name).runs == 0
    checked(engine, ALWAYS)
    engine.store.clear()
    engine.store.measured.note(name, {STORED: 1.0})
    assert not engine.store.measured.of(name).kl, "a check that ends later brings nothing back"
