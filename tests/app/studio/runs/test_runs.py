"""Runs as the page sees them, with an engine that only plays events and with one that computes."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.studio.history.runner import NOT_STORED, RunRequest, Runs
from app.studio.runs.run_frame import Mode, ModelOfRun
from app.studio.runs.run_state import Run
from app.studio.runs.settings import PageSettings
from app.studio.web.jobs import Jobs
from engine import (
    Answer,
    Compared,
    Comparison,
    Delta,
    Engine,
    Finished,
    FirstToken,
    PromptEncoding,
    RunSettings,
    Working,
)
from engine.base.errors import CancelledError, PromptCacheError
from engine.base.events import Listener, Waiting
from engine.model.model import Model
from engine.pml import parse_schema
from tests.app.studio.followed import follow

MODEL: ModelOfRun = {"name": "m", "fingerprint": "f", "device": "cpu", "dtype": "fp32", "weights": "plain"}
SCHEMA = '<schema name="s"><module name="m">one two</module></schema>'
PROMPT = '<prompt schema="s"><m/>Go on.</prompt>'
TTFT = {"cached": [30.0, 10.0, 12.0], "uncached": [200.0, 240.0, 220.0]}


class PlayedEngine:
    """Plays the events of a prompt, and stands for its engine, model and schema.

    `gate` holds it before the second half of the first side; `warnings` are those of every answer, `encoded`
    are the tokens of the one segment that is missing, and `cold` are the turns in which it is missing again.
    """

    def __init__(
        self,
        gate: threading.Event | None = None,
        fault: Exception | None = None,
        warnings: tuple[str, ...] = (),
        encoded: int = 0,
        budget: int = 1,
        cold: tuple[int, ...] = (),
    ) -> None:
        self._warnings, self._encoded, self._cold = warnings, encoded, cold
        self.model = SimpleNamespace(**MODEL)
        self.tree = parse_schema(SCHEMA).tree
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

    def encoding(
        self, _settings: RunSettings, listener: Listener
    ) -> Generator[Working, None, PromptEncoding]:
        self.listener = listener
        if not self._encoded:
            return PromptEncoding((), 0, 0, 0.0, 1, 500.0)
        yield Working("cached", "encoding m", 0, 1)
        return PromptEncoding(("m",), 1, self._encoded, 400.0, 1, 100.0)

    def stream(
        self, settings: RunSettings, *, mode: str, listener: Listener, order: Any, check: bool
    ) -> Iterator[Any]:
        assert check == (not self.orders or settings.max_new_tokens > 1), "repeats are for the clock"
        order = order if mode == "both" else (mode,)
        self.listener = listener
        turn = len(self.orders)
        self.orders.append(tuple(order))
        self.budgets.append(settings.max_new_tokens)
        try:
            for side in order:
                yield from self._side(side, turn)
            if len(order) == 2:
                yield Compared(Comparison(8.0, True, 0.25, False))
        finally:
            self.closed.set()

    def _side(self, side: Any, turn: int) -> Iterator[Any]:
        if self._fault is not None:
            raise self._fault
        ttft = TTFT[side][turn]
        tokens = {"prompt": 10, "from_cache": 8, "computed": 2, "encoded": 0}
        timeline = {"parse": 1.0, "prefill": ttft - 1.0}
        if side == "cached" and turn in self._cold:
            timeline["encode"] = 1000.0
        yield FirstToken(side, sum(timeline.values()), timeline, tokens)
        yield Delta(side, "one ")
        if self._gate is not None:
            assert self._gate.wait(10)
        yield Delta(side, f"two {side}")
        text = f"one two {side}"
        made = {**tokens, "generated": 3}
        yield Finished(side, Answer(text, (1, 2, 3), ttft, 4.0, timeline, made, (), "eos", self._warnings))


def request(
    engine: PlayedEngine, repeats: int = 1, key: str = "k", mode: Mode = "both", **settings: Any
) -> RunRequest:
    given = PageSettings(max_new_tokens=64, repeats=repeats, **settings)
    return RunRequest(key, engine, engine, PROMPT, given, mode, ("s", "p"))  # type: ignore[arg-type]


def last(runs: Runs, wanted: RunRequest) -> Any:
    """The run as its last state shows it."""
    *_, state = follow(runs.start(wanted))
    assert (state["over"], state["fault"]) == (True, "")
    return state["result"]


def test_a_run_without_a_page_is_not_stopped_by_the_user() -> None:
    class Endless(PlayedEngine):
        def encoding(
            self, _settings: RunSettings, listener: Listener
        ) -> Generator[Working, None, PromptEncoding]:
            yield Working("cached", "encoding m", 0, 2)
            while not listener.stopped():
                pass
            raise CancelledError("stopped")

    job = Runs(Jobs()).start(request(Endless()))
    states = follow(job)
    next(states)
    states.close()
    *_, state = follow(job)
    assert state["result"] is not None
    assert state["result"]["state"] == "stopped"
    assert state["result"]["message"] == "Stopped: the page was closed or reloaded."


def test_both_sides_run_to_the_end() -> None:
    run = last(Runs(Jobs()), request(PlayedEngine()))
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
    runs = Runs(Jobs())
    last(runs, request(engine, key="a"))
    last(runs, request(engine, key="b"))
    assert engine.orders == [("cached", "uncached"), ("uncached", "cached")]
    assert [run.number for run in runs.history] == [1, 2]


def test_repeats_show_the_median_sample_with_its_own_timeline() -> None:
    engine = PlayedEngine()
    run = last(Runs(Jobs()), request(engine, repeats=3))
    assert engine.budgets == [64, 1, 1]
    forth = ("cached", "uncached")
    assert engine.orders == [forth, forth[::-1], forth], (
        "neither side is always the one that warms up the other"
    )
    assert run["sides"]["cached"]["samples_ms"] == [30.0, 10.0, 12.0]
    assert run["sides"]["cached"]["ttft_ms"] == 12.0
    assert run["sides"]["cached"]["timeline_ms"]["prefill"] == 11.0
    assert run["comparison"]["ttft_speedup"] == pytest.approx(220 / 12)
    assert run["comparison"]["least_speedup"] == pytest.approx(200 / 30)
    assert run["comparison"]["most_speedup"] == pytest.approx(240 / 10)
    assert run["sides"]["cached"]["text"] == "one two cached"


def test_a_run_is_timed_again_on_request_and_its_texts_stay() -> None:
    engine, runs = PlayedEngine(), Runs(Jobs())
    asked = request(engine, repeats=1)
    first = last(runs, asked)
    assert (first["timings"], "least_speedup" in first["comparison"]) == (1, False)
    run = list(follow(runs.time_again(replace(asked, key="again"), 1)))[-1]["result"]
    assert run is not None
    assert (run["state"], run["timings"], engine.budgets) == ("done", 3, [64, 1, 1])
    assert run["sides"]["cached"]["samples_ms"] == [30.0, 10.0, 12.0]
    assert run["sides"]["cached"]["text"] == first["sides"]["cached"]["text"]
    other = replace(asked, texts=("s", "another"))
    for wanted, number in ((other, 1), (asked, 2)):
        with pytest.raises(PromptCacheError, match="Only the last run"):
            runs.time_again(wanted, number)


def test_what_is_missing_is_encoded_first_and_is_in_no_time_of_a_side() -> None:
    engine = PlayedEngine(encoded=8)
    states = list(follow(Runs(Jobs()).start(request(engine, repeats=3))))
    run = states[-1]["result"]
    assert run is not None
    assert run["encoding"]["state"] == "done"
    assert (run["encoding"]["modules"], run["encoding"]["tokens"]) == (["m"], 8)
    assert run["question"] == "Go on."
    assert (run["encoding"]["ms"], run["encoding"]["others_ms"]) == (400.0, 100.0)
    assert run["sides"]["cached"]["ttft_ms"] == 12.0
    saved = 220 - 12
    assert run["payback"]["first_ms"] == 512.0
    assert run["payback"]["runs"] == 3
    assert 500 + 3 * 12 < 3 * 220
    assert 500 + 2 * 12 >= 2 * 220, f"each run saves {saved}"


def test_a_sample_with_encoding_in_it_is_none_beside_others() -> None:
    engine = PlayedEngine(cold=(0,))
    side = last(Runs(Jobs()), request(engine, repeats=3))["sides"]["cached"]
    assert side["samples_ms"] == [10.0, 12.0]
    assert side["cold_ms"] == [1030.0]
    assert side["ttft_ms"] == 10.0
    assert "encode" not in side["timeline_ms"]


def test_a_run_that_can_keep_nothing_shows_what_each_run_takes_and_no_payback() -> None:
    engine = PlayedEngine(cold=(0, 1, 2))
    run = last(Runs(Jobs()), request(engine, repeats=3))
    assert run["sides"]["cached"]["ttft_ms"] == 1012.0
    assert run["sides"]["cached"]["samples_ms"] == []
    assert run["payback"] is None
    assert "least_speedup" not in run["comparison"]


@pytest.mark.parametrize("mode", ["cached", "uncached"])
def test_one_side_runs_alone(mode: Any) -> None:
    engine = PlayedEngine(encoded=8)
    run = last(Runs(Jobs()), request(engine, repeats=2, mode=mode))
    other = "uncached" if mode == "cached" else "cached"
    assert (run["mode"], run["state"], run["order"]) == (mode, "done", [mode])
    assert engine.orders == [(mode,), (mode,)]
    assert len(run["sides"][mode]["samples_ms"]) == 2
    assert run["sides"][other]["state"] == "not run"
    assert run["encoding"]["state"] == ("done" if mode == "cached" else "not run")
    assert run["comparison"] == {}


def test_a_run_says_what_it_belongs_to() -> None:
    engine = PlayedEngine()
    runs = Runs(Jobs())

    def belongs(**settings: Any) -> Any:
        return last(runs, request(engine, **settings))["of"]

    plain = belongs()
    assert (plain["schema"], plain["prompt"]) == ("s", "p")
    assert belongs(repeats=2, sync=True) == plain
    assert belongs(seed=7, top_k=5) == plain, "at temperature 0 nothing is drawn"
    assert belongs(temperature=1.0)["settings"] not in (
        plain["settings"],
        belongs(temperature=1.0, seed=7)["settings"],
    )
    assert belongs(scope="isolated")["settings"] != plain["settings"]
    engine.model.dtype = "bf16"
    assert belongs()["model"] != plain["model"]


def test_a_frame_is_clean_json() -> None:
    engine = PlayedEngine(encoded=8)
    run = last(Runs(Jobs()), request(engine, stop=("END",)))
    sent = json.loads(json.dumps(run, allow_nan=False))
    assert {**sent, "difference": None} == {**run, "difference": None}
    assert run["format"] == 1
    assert run["settings"]["stop"] == ["END"]
    assert run["model"] == MODEL


def test_stopping_half_way_keeps_what_came() -> None:
    gate, jobs = threading.Event(), Jobs()
    engine = PlayedEngine(gate)
    runs = Runs(jobs)
    frame: Any = None
    for state in follow(runs.start(request(engine))):
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

    states = follow(Runs(jobs).start(request(Long())))
    next(states)
    assert begun.wait(10)
    jobs.stop("k")
    *_, end = states
    assert end["result"]["state"] == "stopped"
    assert told[0] == "cached", "in the middle of its step"


def test_a_run_that_is_stopped_before_its_turn_computes_nothing() -> None:
    engine, jobs = PlayedEngine(), Jobs()
    jobs.stop("k")
    assert last(Runs(jobs), request(engine))["state"] == "stopped"
    assert engine.orders == []


def test_a_run_that_is_stopped_while_it_encodes_runs_no_side() -> None:
    jobs = Jobs()

    class Long(PlayedEngine):
        def encoding(
            self, _settings: RunSettings, listener: Listener
        ) -> Generator[Working, None, PromptEncoding]:
            yield Working("cached", "encoding m", 0, 2)
            jobs.stop("k")
            while not listener.stopped():
                pass
            raise CancelledError("stopped")

    run = last(Runs(jobs), request(engine := Long()))
    assert (run["state"], run["encoding"]["state"]) == ("stopped", "stopped")
    assert (run["encoding"]["done"], run["encoding"]["total"]) == (0, 2)
    assert engine.orders == []
    assert run["number"] == 0


def test_leaving_the_page_stops_the_run() -> None:
    gate = threading.Event()
    engine = PlayedEngine(gate)
    states = follow(Runs(Jobs()).start(request(engine)))
    while next(states)["result"]["sides"]["cached"]["text"] != "one ":
        pass
    states.close()
    gate.set()
    assert engine.closed.wait(10)


def test_what_the_answers_are_complete_without_is_said_once() -> None:
    engine = PlayedEngine(warnings=("The disk is full.",))
    assert last(Runs(Jobs()), request(engine))["warnings"] == ["The disk is full."]


@pytest.mark.parametrize(("encoded", "budget", "said"), [(8, 0, [NOT_STORED]), (8, 1, []), (0, 0, [])])
def test_what_was_computed_is_not_called_kept_under_a_budget_of_nothing(
    encoded: int, budget: int, said: list[str]
) -> None:
    engine = PlayedEngine(encoded=encoded, budget=budget)
    assert last(Runs(Jobs()), request(engine))["warnings"] == said


def test_a_fault_of_the_users_is_said_as_it_is() -> None:
    engine = PlayedEngine(fault=PromptCacheError("The prompt is too long. Pick fewer."))
    run = last(Runs(Jobs()), request(engine))
    assert (run["state"], run["message"]) == ("failed", "The prompt is too long. Pick fewer.")
    assert run["number"] == 0


def test_any_other_fault_is_logged_and_said(caplog: pytest.LogCaptureFixture) -> None:
    engine = PlayedEngine(fault=RuntimeError("boom"))
    run = last(Runs(Jobs()), request(engine))
    assert run["state"] == "failed"
    assert "boom" in run["message"]
    assert "A run failed" in caplog.text


WORDS = '<schema name="s"><module name="m">alpha beta gamma</module></schema>'


@pytest.fixture
def engine(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(Model, "end_tokens", frozenset())
    with Engine.open(tiny_model, device="cpu", cache_dir=tmp_path / "cache") as engine:
        yield engine


def asked(engine: Engine, key: str, tokens: int) -> RunRequest:
    settings = PageSettings(max_new_tokens=tokens, temperature=2.0)
    return RunRequest(key, engine, engine.schema(WORDS), PROMPT, settings)


def test_a_run_says_that_it_waits_for_a_step_of_another(engine: Engine) -> None:
    engine.computing.patience = 0.01
    with engine.computing.step():
        states = follow(Runs(Jobs()).start(asked(engine, "k", 4)))
        while not (found := next(states)["result"])["encoding"]["waits"]:
            pass
        assert found["encoding"]["state"] == "working"
        assert [side["state"] for side in found["sides"].values()] == ["waiting", "waiting"]
    *_, end = states
    assert end["result"]["state"] == "done"
    assert not end["result"]["encoding"]["waits"]
    assert not any(side["waits"] for side in end["result"]["sides"].values())


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
    states = follow(Runs(Jobs()).start(request(engine)))

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


def test_two_runs_share_the_machine_and_each_has_its_own_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two tabs do: a short run is over while a long one that was begun before goes on."""
    runs, conclude, ended = Runs(Jobs()), Run.conclude, list[Run]()

    def concluding(run: Run) -> None:
        ended.append(run)
        conclude(run)

    monkeypatch.setattr(Run, "conclude", concluding)
    requests = [asked(engine, "long", 120), asked(engine, "short", 3)]
    with engine.computing.step():
        jobs = [runs.start(one) for one in requests]
    found = []
    for job, wanted in zip(jobs, requests, strict=True):
        *_, state = follow(job)
        found.append(state["result"])
        assert found[-1]["state"] == "done"
        prompt = wanted.schema.prompt(PROMPT)
        for side in ("cached", "uncached"):
            answer = prompt.answer(wanted.settings, mode=side)
            assert found[-1]["sides"][side]["text"] == answer.text
            assert found[-1]["sides"][side]["tokens"]["generated"] == wanted.settings.max_new_tokens
    assert {run["number"] for run in found} == {1, 2}
    assert [run.settings.max_new_tokens for run in ended] == [3, 120], "the short one ends first"
    assert [run.number for run in runs.history] == [1, 2]
    assert found[0]["order"] != found[1]["order"], "neither side is always first"
