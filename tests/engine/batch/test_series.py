"""Many prompts at once: in their order or as they end, each with its own faults, taken as there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Answer, BothAnswers, Engine, PromptCacheError, SettingsError
from engine.base.errors import CancelledError, ClosedError
from engine.base.events import Side
from engine.batch.series import answered, answered_apart
from engine.batch.ticket import Reply, Ticket
from engine.inference.run_settings import RunSettings
from engine.prepared import PreparedPrompt
from engine.prompt.window import TooLongError
from engine.store import Store
from tests.engine.batch.test_tickets import LONG, SCHEMA, idle, lasting, until
from tests.engine.cases import model_of

__all__ = ["lasting"]  # a fixture

TEXTS = ("So?", "And then?", "Why not?")


@pytest.fixture(params=[False, True], ids=["together", "one by one"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path / "store"), deterministic=request.param) as opened:
        yield opened


def prompts(engine: Engine) -> list[PreparedPrompt]:
    schema = engine.schema(SCHEMA)
    return [schema.prompt(f'<prompt schema="s"><a/><user>{text}</user></prompt>') for text in TEXTS]


@pytest.mark.parametrize("as_they_end", [False, True])
def test_each_gets_the_answer_it_gets_alone(engine: Engine, as_they_end: bool) -> None:
    given = prompts(engine)
    found = dict(engine.answer_all(given, max_new_tokens=4, as_they_end=as_they_end))
    assert list(found) == [0, 1, 2]
    for number, prompt in enumerate(given):
        answer = found[number]
        assert isinstance(answer, Answer)
        assert answer.token_ids == prompt.answer(max_new_tokens=4).token_ids


def test_both_sides_and_what_lies_between(engine: Engine) -> None:
    for _, both in engine.answer_all(prompts(engine), mode="both", max_new_tokens=3):
        assert isinstance(both, BothAnswers)
        report = both.to_json()
        assert report["cached"]["tokens"]["from_cache"] > 0 == report["uncached"]["tokens"]["from_cache"]
        assert {"ttft_speedup", "first_token_agrees", "kl_first_token", "same_text"} <= set(report)


def test_a_fault_comes_in_its_turn_and_the_others_go_on(engine: Engine) -> None:
    first, second, _ = prompts(engine)
    unfit = engine.schema(SCHEMA).prompt(f"<prompt><a/><user>{'So? ' * 60_000}</user></prompt>")
    missing = PromptCacheError("there is no such row")
    found = dict(engine.answer_all([first, unfit, missing, second], max_new_tokens=1))
    assert [type(found[number]) for number in range(4)] == [Answer, TooLongError, PromptCacheError, Answer]
    assert found[2] is missing


def test_settings_are_refused_before_anything_is_taken(engine: Engine) -> None:
    with pytest.raises(SettingsError, match="temperature"):
        engine.answer_all(iter(prompts(engine)), temperature=-1)
    with pytest.raises(SettingsError, match="mode"):
        engine.answer_all([], mode="fast")  # type: ignore[arg-type]
    assert list(engine.answer_all([])) == []


def test_prompts_are_taken_as_there_is_room(engine: Engine) -> None:
    taken: list[int] = []

    def many() -> Iterator[PreparedPrompt]:
        prompt = prompts(engine)[0]
        for number in range(1000):
            taken.append(number)
            yield prompt

    rows = engine.answer_all(many(), max_new_tokens=1)
    next(rows)
    next(rows)
    assert len(taken) <= 2 + engine.answerer.appetite
    rows.close()
    until(idle)


def test_closing_the_generator_stops_what_is_under_way(engine: Engine) -> None:
    first, second, third = prompts(engine)
    engine.answer_all([first]).close()  # before it began
    engine.answerer.appetite = 3
    rows = engine.answer_all([PromptCacheError("at once"), second, third, first], max_new_tokens=LONG)
    assert isinstance(next(rows)[1], PromptCacheError)
    rows.close()
    until(idle)
    assert first.answer(max_new_tokens=1).token_ids


def test_a_closed_engine_ends_each_in_words(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path / "store"))
    given = prompts(engine)
    engine.close()
    assert {type(found) for _, found in engine.answer_all(given)} == {ClosedError}


@pytest.mark.parametrize(("as_they_end", "wanted"), [(True, [1, 0, 2]), (False, [0, 1, 2])])
def test_what_ends_first_is_given_first_where_that_is_wanted(as_they_end: bool, wanted: list[int]) -> None:
    replies = [Reply("cached", lambda _: None) for _ in range(3)]

    def submit(number: int) -> list[Ticket]:
        if number == 2:
            for which in (1, 0, 2):
                replies[which].end(PromptCacheError(str(which)))
        return [Ticket(replies[number])]

    rows = answered(range(3), submit, ahead=3, as_they_end=as_they_end)
    assert [(number, str(found)) for number, found in rows] == [(one, str(one)) for one in wanted]


def test_at_the_end_of_the_generator_all_tickets_are_cancelled() -> None:
    dropped: list[Reply] = []
    replies = [Reply("cached", dropped.append) for _ in range(3)]
    rows = answered(
        [0, PromptCacheError("x"), 2], lambda number: [Ticket(replies[number])], ahead=3, as_they_end=True
    )
    assert next(rows)[0] == 1
    rows.close()
    assert dropped == [replies[0], replies[2]]
    replies[0].end(CancelledError("gone"))
    replies[0].end(ValueError("late"))
    assert isinstance(replies[0].outcome, CancelledError)


def test_apart_one_side_is_answered_after_the_other_and_each_begins_in_turn(engine: Engine) -> None:
    begun: list[Side] = []
    under_way: list[Ticket] = []

    def submit(prompt: PreparedPrompt, side: Side) -> Ticket:
        assert all(ticket.done for ticket in under_way), "another side is still being answered"
        begun.append(side)
        under_way.append(engine.submit(prompt, mode=side, max_new_tokens=3))
        return under_way[-1]

    first, second, third = prompts(engine)
    given: list[PreparedPrompt | Exception] = [first, PromptCacheError("in between"), second, third]
    found = dict(answered_apart(given, submit, [("cached", "uncached"), ("uncached", "cached")]))
    assert list(found) == [0, 1, 2, 3]
    assert str(found.pop(1)) == "in between"
    # By its number a prompt begins with the one side or the other; the second is the one that failed.
    assert begun == ["cached", "uncached", "cached", "uncached", "uncached", "cached"]
    same = dict(engine.answer_all(given, mode="both", apart=True, max_new_tokens=3))
    alone = dict(engine.answer_all(given, apart=True, max_new_tokens=3))
    for number, prompt in ((0, first), (2, second), (3, third)):
        both, one, cached = found[number], same[number], alone[number]
        assert isinstance(both, BothAnswers)
        assert isinstance(one, BothAnswers)
        assert isinstance(cached, Answer)
        assert both.cached.token_ids == one.cached.token_ids == cached.token_ids
        assert cached.token_ids == prompt.answer(max_new_tokens=3).token_ids
        uncached = prompt.answer(mode="uncached", max_new_tokens=3)
        assert both.uncached.token_ids == one.uncached.token_ids == uncached.token_ids


@pytest.mark.usefixtures("lasting")
@pytest.mark.parametrize("apart", [False, True])
def test_a_series_that_nobody_wants_any_more_ends_in_the_midst_of_an_answer(
    engine: Engine, apart: bool
) -> None:
    first, second, third = prompts(engine)
    got: list[int] = []
    asked: list[int] = []

    def stopped() -> bool:
        asked.extend(got[:1])
        return len(asked) > 3

    short, long = RunSettings(max_new_tokens=1), RunSettings(max_new_tokens=LONG)
    given = [(first, short), (second, long), (third, short)]
    for number, outcome in engine.answer_all(given, apart=apart, stopped=stopped, as_they_end=True):
        assert isinstance(outcome, Answer)
        got.append(number)
    assert 1 not in got, "the long one was cancelled, and its cancelling is no outcome"
    if apart:
        assert got == [0], "what comes after it is not begun"
    until(idle)
    assert isinstance(dict(engine.answer_all([first], max_new_tokens=1))[0], Answer), "others go on"
