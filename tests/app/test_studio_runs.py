"""Runs as the page sees them, with an engine that only plays events and with one that computes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.studio.chart import ttft_chart
from app.studio.jobs import Jobs
from app.studio.opening import Opening
from app.studio.runs import NOT_STORED, Clock, Run, RunRequest, Runs, apply, word_difference
from app.studio.settings import PageSettings
from engine import Answer, Compared, Comparison, Delta, Engine, Finished, FirstToken, RunSettings, Working
from engine.errors import PromptCacheError
from engine.events import Listener, Waiting
from engine.model.model import Model

PROMPT = '<prompt schema="s"><m/>Go on.</prompt>'
TTFT = {"cached": [30.0, 10.0, 12.0], "uncached": [200.0, 240.0, 220.0]}


class PlayedEngine:
    """Plays the events of a prompt, and stands for its engine and schema.

    `gate` holds it before the second half of the first side; `warnings` are those of every answer, and
    `encoded` are its tokens that the run computed segments of.
    """

    def __init__(
        self,
        gate: threading.Event | None = None,
        fault: Exception | None = None,
        warnings: tuple[str, ...] = (),
        encoded: int = 0,
        budget: int = 1,
    ) -> None:
        self._warnings, self._encoded = warnings, encoded
        self.store = SimpleNamespace(settings=SimpleNamespace(budget=budget))
        self.orders: list[tuple[str, ...]] = []
        self.budgets: list[int] = []
        self.closed = threading.Event()
        self._gate, self._fault = gate, fault

    name = "s"

    def placement(self, wanted: str) -> str:
        return wanted

    def prompt(self, text: str) -> PlayedEngine:
        assert text == PROMPT
        return self

    def stream(self, settings: RunSettings, *, mode: str, order: Any, listener: Listener) -> Iterator[Any]:
        assert mode == "both"
        self.listener = listener
        turn = len(self.orders)
        self.orders.append(tuple(order))
        self.budgets.append(settings.max_new_tokens)
        try:
            for side in order:
                yield from self._side(side, turn)
            yield Compared(Comparison(8.0, True, 0.25, False))
        finally:
            self.closed.set()

    def _side(self, side: Any, turn: int) -> Iterator[Any]:
        if side == "cached" and turn == 0:
            yield Working(side, "encoding m", 0, 1)
        if self._fault is not None:
            raise self._fault
        ttft = TTFT[side][turn]
        tokens = {"prompt": 10, "from_cache": 8, "computed": 2, "encoded": self._encoded}
        yield FirstToken(side, ttft, {"parse": 1.0, "prefill": ttft - 1.0}, tokens)
        yield Delta(side, "one ")
        if self._gate is not None:
            assert self._gate.wait(10)
        yield Delta(side, f"two {side}")
        text = f"one two {side}"
        timeline = {"parse": 1.0, "prefill": ttft - 1.0}
        made = {**tokens, "generated": 3}
        yield Finished(side, Answer(text, (1, 2, 3), ttft, 4.0, timeline, made, (), "eos", self._warnings))


def request(engine: PlayedEngine, repeats: int = 1, key: str = "k") -> RunRequest:
    settings = PageSettings(max_new_tokens=64, repeats=repeats)
    return RunRequest(key, engine, PROMPT, settings)  # type: ignore[arg-type]


def runs_of(engine: PlayedEngine, jobs: Jobs | None = None) -> Runs:
    return runs_over(cast(Engine, engine), jobs)


def runs_over(engine: Engine, jobs: Jobs | None = None) -> Runs:
    return Runs(Opening(engine), jobs or Jobs())


def last(runs: Runs, wanted: RunRequest) -> Any:
    """The run as its last state shows it."""
    *_, state = runs.start(wanted).states()
    assert (state["over"], state["fault"]) == (True, "")
    return state["result"]


def test_both_sides_run_to_the_end() -> None:
    run = last(runs_of(engine := PlayedEngine()), request(engine))
    assert run["state"] == "done"
    assert run["number"] == 1
    cached, uncached = run["sides"]["cached"], run["sides"]["uncached"]
    assert (cached["text"], uncached["text"]) == ("one two cached", "one two uncached")
    assert (cached["ttft_ms"], uncached["ttft_ms"]) == (30.0, 200.0)
    assert cached["tokens"]["from_cache"] == 8
    assert cached["tokens_per_second"] == 250.0
    assert run["comparison"]["ttft_speedup"] == pytest.approx(200 / 30)
    assert run["comparison"]["kl_first_token"] == 0.25
    assert run["difference"]["differing"] == 1


def test_the_order_alternates_from_run_to_run() -> None:
    engine = PlayedEngine()
    runs = runs_of(engine)
    last(runs, request(engine, key="a"))
    last(runs, request(engine, key="b"))
    assert engine.orders == [("cached", "uncached"), ("uncached", "cached")]
    assert [run.number for run in runs.history] == [1, 2]


def test_repeats_show_the_median_sample_with_its_own_timeline() -> None:
    engine = PlayedEngine()
    run = last(runs_of(engine), request(engine, repeats=3))
    assert engine.budgets == [64, 1, 1]
    forth = ("cached", "uncached")
    assert engine.orders == [forth, forth[::-1], forth], (
        "neither side is always the one that warms up the other"
    )
    assert run["sides"]["cached"]["samples_ms"] == [30.0, 10.0, 12.0]
    assert run["sides"]["cached"]["ttft_ms"] == 12.0
    assert run["sides"]["cached"]["timeline_ms"]["prefill"] == 11.0
    assert run["comparison"]["ttft_speedup"] == pytest.approx(220 / 12)
    assert run["sides"]["cached"]["text"] == "one two cached"


def test_stopping_half_way_keeps_what_came() -> None:
    gate, jobs = threading.Event(), Jobs()
    engine = PlayedEngine(gate)
    runs = runs_of(engine, jobs)
    frame: Any = None
    for state in runs.start(request(engine)).states():
        frame = state["result"]
        if frame["sides"]["cached"]["text"] == "one " and not gate.is_set():
            jobs.stop("k")
            gate.set()
    assert frame["state"] == "stopped"
    assert frame["sides"]["cached"]["text"].startswith("one ")
    assert frame["sides"]["uncached"]["state"] == "not run"
    assert engine.closed.is_set()
    found = runs.find(1)
    assert found is not None
    assert found.frame() == frame


def test_stopping_reaches_into_a_step() -> None:
    jobs, begun, told = Jobs(), threading.Event(), list[str]()

    class Long(PlayedEngine):
        def _side(self, side: Any, number: int) -> Iterator[Any]:
            yield Working(side, "encoding m", 0, 1)
            begun.set()
            for _ in range(500):
                if self.listener.stopped():
                    told.append(side)
                    return
                threading.Event().wait(0.01)
            yield from super()._side(side, number)

    states = runs_of(engine := Long(), jobs).start(request(engine)).states()
    next(states)
    assert begun.wait(10)
    jobs.stop("k")
    *_, end = states
    assert end["result"]["state"] == "stopped"
    assert told[0] == "cached", "in the middle of its step"


def test_a_run_that_is_stopped_before_its_turn_computes_nothing() -> None:
    engine, jobs = PlayedEngine(), Jobs()
    jobs.stop("k")
    assert last(runs_of(engine, jobs), request(engine))["state"] == "stopped"
    assert engine.orders == []


def test_leaving_the_page_stops_the_run() -> None:
    gate = threading.Event()
    engine = PlayedEngine(gate)
    states = runs_of(engine).start(request(engine)).states()
    while next(states)["result"]["sides"]["cached"]["text"] != "one ":
        pass
    states.close()  # type: ignore[attr-defined]
    gate.set()
    assert engine.closed.wait(10)


def test_what_the_answers_are_complete_without_is_said_once() -> None:
    engine = PlayedEngine(warnings=("The disk is full.",))
    assert last(runs_of(engine), request(engine))["warnings"] == ["The disk is full."]


@pytest.mark.parametrize(("encoded", "budget", "said"), [(8, 0, [NOT_STORED]), (8, 1, []), (0, 0, [])])
def test_what_was_computed_is_not_called_kept_under_a_budget_of_nothing(
    encoded: int, budget: int, said: list[str]
) -> None:
    engine = PlayedEngine(encoded=encoded, budget=budget)
    assert last(runs_of(engine), request(engine))["warnings"] == said


def test_a_fault_of_the_users_is_said_as_it_is() -> None:
    engine = PlayedEngine(fault=PromptCacheError("The prompt is too long. Pick fewer."))
    run = last(runs_of(engine), request(engine))
    assert (run["state"], run["message"]) == ("failed", "The prompt is too long. Pick fewer.")
    assert run["number"] == 0


def test_any_other_fault_is_logged_and_said(caplog: pytest.LogCaptureFixture) -> None:
    engine = PlayedEngine(fault=RuntimeError("boom"))
    run = last(runs_of(engine), request(engine))
    assert run["state"] == "failed"
    assert "boom" in run["message"]
    assert "A run failed" in caplog.text


def test_the_rate_of_a_run_that_shares_the_machine_is_of_its_own_steps() -> None:
    run, clock = Run("s", PageSettings(), ("cached", "uncached")), Clock()
    for number in range(5):  # every tenth of a second a token, and each time as long for another run
        waited = 100.0 * number
        apply(run, Delta("cached", "word ", waited), 7.0 + 0.2 * number, clock)
    assert run.sides["cached"].tokens_per_second == pytest.approx(10)


WORDS = '<schema name="s"><module name="m">alpha beta gamma</module></schema>'


@pytest.fixture
def engine(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(Model, "end_tokens", frozenset())
    with Engine.open(tiny_model, device="cpu", cache_dir=tmp_path / "cache") as engine:
        yield engine


def asked(engine: Engine, key: str, tokens: int) -> RunRequest:
    settings = PageSettings(max_new_tokens=tokens, temperature=2.0)
    return RunRequest(key, engine.schema(WORDS), PROMPT, settings)


def test_a_run_says_that_it_waits_for_a_step_of_another(engine: Engine) -> None:
    engine.computing.patience = 0.01
    with engine.computing.step():
        states = runs_over(engine).start(asked(engine, "k", 4)).states()
        while not (sides := next(states)["result"]["sides"])["cached"]["waits"]:
            pass
        assert (sides["cached"]["state"], sides["cached"]["working"]) == ("working", "")
        assert (sides["uncached"]["state"], sides["uncached"]["waits"]) == ("waiting", False)
    *_, end = states
    assert end["result"]["state"] == "done"
    assert not any(side["waits"] for side in end["result"]["sides"].values())
    assert end["result"]["sides"]["cached"]["waited_ms"] >= 10


def test_a_run_whose_turn_has_come_waits_no_longer_though_nothing_has_come_of_it_yet() -> None:
    turn, gate = threading.Event(), threading.Event()

    class Held(PlayedEngine):
        def _side(self, side: Any, number: int) -> Iterator[Any]:
            yield Waiting(side, "waiting", 0, 1)
            assert turn.wait(10)
            self.listener.turn(side)
            assert gate.wait(10)
            yield from super()._side(side, number)

    engine = Held()
    states = runs_of(engine).start(request(engine)).states()

    def until(*, waits: bool) -> Any:
        while (sides := next(states)["result"]["sides"])["cached"]["waits"] is not waits:
            pass
        return sides

    until(waits=True)
    turn.set()
    assert [side["state"] for side in until(waits=False).values()] == ["working", "waiting"]
    gate.set()
    *_, end = states
    assert end["result"]["state"] == "done"


def test_the_side_that_runs_next_is_no_longer_said_to_wait_its_turn() -> None:
    run = Run("s", PageSettings(), ("uncached", "cached"))
    run.begin()
    assert [run.sides[side].state for side in run.order] == ["working", "waiting"]
    answer = Answer("a", (1,), 1.0, 0.0, {}, {}, (), "eos", waited_ms=2400.0)
    apply(run, Finished("uncached", answer), 0.0, Clock())
    assert [run.sides[side].state for side in run.order] == ["done", "working"]
    assert run.frame()["sides"]["uncached"]["waited_ms"] == 2400.0


def test_two_runs_share_the_machine_and_each_has_its_own_answer(engine: Engine) -> None:
    """As two tabs do: a short run is over while a long one that was begun before goes on."""
    runs = runs_over(engine)
    requests = [asked(engine, "long", 200), asked(engine, "short", 3)]
    with engine.computing.step():
        long, short = jobs = [runs.start(one) for one in requests]
    assert list(short.states())[-1]["over"]
    assert not long.over
    found = []
    for job, wanted in zip(jobs, requests, strict=True):
        *_, state = job.states()
        found.append(state["result"])
        assert found[-1]["state"] == "done"
        prompt = wanted.schema.prompt(PROMPT)
        for side in ("cached", "uncached"):
            answer = prompt.answer(wanted.settings, mode=side)
            assert found[-1]["sides"][side]["text"] == answer.text
            assert found[-1]["sides"][side]["tokens"]["generated"] == wanted.settings.max_new_tokens
    assert {run["number"] for run in found} == {1, 2}
    assert [run.number for run in runs.history] == [1, 2]
    assert found[0]["order"] != found[1]["order"], "neither side is always first"


@pytest.mark.parametrize(
    ("left", "right", "differing"),
    [
        ("", "", 0),
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b", "a b c d", 2),
        ("  a\nb", "a b", 0),
        ("", "a", 1),
    ],
)
def test_word_difference_loses_no_letter(left: str, right: str, differing: int) -> None:
    difference = word_difference(left, right)
    assert "".join(text for text, _ in difference["cached"]) == left
    assert "".join(text for text, _ in difference["uncached"]) == right
    assert difference["differing"] == differing


def test_the_chart_has_one_bar_per_side_and_run_in_the_timelines_parts() -> None:
    engine = PlayedEngine()
    runs = runs_of(engine)
    last(runs, request(engine))
    figure = ttft_chart(runs.history).to_dict()
    bars = {trace["name"]: trace for trace in figure["data"] if trace["type"] == "bar"}
    assert set(bars) == {"parse", "prefill"}
    assert list(bars["prefill"]["y"]) == [29.0, 199.0]
    assert [list(level) for level in bars["prefill"]["x"]] == [["Run 1", "Run 1"], ["cached", "uncached"]]
    assert list(bars["prefill"]["customdata"]) == [1, 1]
    assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"


def test_the_chart_without_runs_says_what_to_do() -> None:
    figure = ttft_chart(()).to_dict()
    assert "Run the prompt" in figure["layout"]["annotations"][0]["text"]
