"""The Benchmark page's questions: how long it takes, measuring alone, stopping, and what is kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.models import model_fit
from app.studio.database import UserDatabase
from app.studio.pages import benchmark, sweep_chart
from app.studio.pages.sweep_history import KEPT, Measurements
from app.studio.sweeps.measuring import Sweeping
from app.studio.sweeps.plan import Sweep
from app.studio.web.jobs import Job
from engine import Engine
from engine.base.errors import PromptCacheError
from engine.model.loading import load
from engine.quantize.memory_fit import Free
from engine.store import Store
from tests.app.studio.asked import Asked

SMALL = {"axis": "cached", "values": ["12", "24"], "modules": 2, "new": 4, "repeats": 1}


@pytest.fixture(scope="module")
def engine(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    store = Store.open(tmp_path_factory.mktemp("benchmark-store"))
    with Engine(load(str(tiny_model)), store) as opened:
        yield opened


@pytest.fixture
def asked(engine: Engine, tmp_path: Path) -> Asked:
    return Asked(tmp_path, engine=engine)


def test_a_sweep_is_measured_kept_and_handed_out(asked: Asked, engine: Engine) -> None:
    before = asked.ask("benchmarks")
    assert before["kept"] == []
    assert before["under_way"] == ""
    assert before["models"][0]["name"] == "loaded"
    assert {one["name"] for one in before["axes"]} == {
        "cached",
        "new",
        "modules",
        "scope",
        "repair",
        "prompts",
    }
    asked.ask("start_sweep", {"key": "k", **SMALL})
    end = asked.ended("k")
    assert end["fault"] == ""
    name, report = end["result"]["name"], end["result"]["report"]
    assert {one["value"] for one in report["results"]} == {12, 24}
    (kept,) = asked.ask("benchmarks")["kept"]
    assert (kept["name"], kept["points"], kept["ended"], kept["axis"]) == (name, 2, "done", "cached")
    assert asked.ask("show_report", {"name": name})["report"] == report
    files = asked.ask("report_files", {"name": name})
    assert json.loads(files["json"]) == report, "as the command writes it"
    assert len(files["csv"].splitlines()) == 1 + len(report["results"])
    assert report["model"]["fingerprint"] == engine.model.fingerprint
    assert engine.store.stats().segments == 0, "measured in a store of its own"
    assert asked.ask("remove_report", {"name": name}) == {"kept": []}
    assert "no longer exists" in asked.ask("show_report", {"name": name})["error"]


def test_how_long_it_takes_is_said_before_and_goes_by_what_was_measured(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.studio.sweeps.measuring._SIDE", 64)
    first = asked.ask("expect_sweep", SMALL)
    longer = asked.ask("expect_sweep", {**SMALL, "repeats": 10})
    assert first["points"] == 2
    assert 0 < first["seconds"] < longer["seconds"]
    assert asked.ask("expect_sweep", {**SMALL, "model": "random:llama2-7b"})["seconds"] > longer["seconds"]
    asked.ask("start_sweep", {"key": "k", **SMALL})
    asked.ended("k")
    assert "last sweep" in asked.ask("expect_sweep", SMALL)["basis"]
    assert "no such model" in asked.ask("expect_sweep", {**SMALL, "model": "random:none"})["error"]
    assert "cannot be split" in asked.ask("expect_sweep", {**SMALL, "values": ["1"]})["error"]
    assert "'far'" in asked.ask("start_sweep", {"key": "x", **SMALL, "values": ["far"]})["error"]
    assert "context window" in asked.ask("start_sweep", {"key": "x", **SMALL, "values": ["99999"]})["error"]


def test_it_is_measured_alone_and_what_was_measured_stays_when_it_is_stopped(
    asked: Asked, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go, measure = threading.Event(), threading.Event(), Sweeping.measure

    def held(self: Sweeping, value: int | str) -> Any:
        if value == 24:
            reached.set()
            assert go.wait(60)
        return measure(self, value)

    monkeypatch.setattr(Sweeping, "measure", held)
    asked.ask("start_sweep", {"key": "k", **SMALL})
    assert reached.wait(60)
    assert asked.ask("benchmarks")["under_way"] == "k"
    for refused in (
        asked.ask("start_sweep", {"key": "other", **SMALL}),
        asked.ask("cache_verify", {"key": "verify"}),
    ):
        assert refused["error"] == benchmark.ALONE
    asked.ask("stop_job", {"key": "k"})
    go.set()
    end = asked.ended("k")
    assert end["fault"] == "Stopped."
    (kept,) = asked.ask("benchmarks")["kept"]
    assert (kept["points"], kept["ended"], kept["name"]) == (1, "stopped", end["result"]["name"])
    with engine.computing.step(5) as came:
        assert came, "the turn to compute was given back"


def test_random_weights_that_do_not_fit_are_not_made(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_fit, "free_memory", lambda _: Free(1 << 30, 1 << 30))
    shape = next(one["name"] for one in asked.ask("benchmarks")["models"] if "llama2-7b" in one["name"])
    error = asked.ask("start_sweep", {"key": "k", **SMALL, "model": shape})["error"]
    assert "was not loaded. It does not fit" in error
    assert asked.ask("benchmarks")["under_way"] == ""


def test_it_does_not_begin_beside_other_work(asked: Asked) -> None:
    go = threading.Event()

    def wait(_: Job) -> Any:
        assert go.wait(60)
        raise PromptCacheError("over")

    asked.parts.jobs.start(Job("r", wait, "run"))
    assert "Other work is running (run)" in asked.ask("start_sweep", {"key": "k", **SMALL})["error"]
    go.set()
    asked.ended("r")


@pytest.fixture
def report(engine: Engine) -> dict[str, Any]:
    sweep = Sweep("cached", (12, 24), modules=2, new=4, repeats=1)
    return Sweeping(engine.model, sweep, lambda *_: None).run()


def test_the_oldest_reports_go(tmp_path: Path, report: dict[str, Any]) -> None:
    kept = Measurements(UserDatabase(tmp_path))
    assert kept.listed() == []
    names = [kept.keep(report) for _ in range(3)]
    assert len(set(names)) == 3, "of one second"
    assert [one["name"] for one in kept.listed()] == names[::-1]
    assert kept.pace(report["model"]["name"]) == pytest.approx(report["units"] / report["seconds"])
    assert kept.pace("another") is None
    for _ in range(KEPT):
        kept.keep(report)
    assert len(kept.listed()) == KEPT
    with pytest.raises(PromptCacheError, match="no longer exists"):
        kept.report("gone")
    last = kept.listed()[-1]["name"]
    assert kept.report(last) == report
    kept.remove(last)
    kept.remove("half \ud83d")
    assert len(kept.listed()) == KEPT - 1


def test_the_chart_has_a_line_to_each_way_with_its_range_and_the_floor(report: dict[str, Any]) -> None:
    figure = sweep_chart.sweep_chart(report)
    lines = {line.name: line for line in figure.data}
    ways = sweep_chart.WAYS
    assert set(lines) == {ways[name][0] for name in ("uncached", "cached", "files", "floor", "loading")}
    cached = lines[ways["cached"][0]]
    assert list(cached.x) == [12, 24]
    medians = [one["median_ms"] for one in report["results"] if one["name"] == "cached"]
    assert list(cached.y) == medians
    assert len(cached.error_y.array) == 2
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
    stages = sweep_chart.sweep_chart(report, "stages")
    total = sum(bar.y[0] for bar in stages.data)
    first = report["results"][0]
    assert total == pytest.approx(sum(first["timeline_ms"].values()), rel=1e-6)
    assert not sweep_chart.sweep_chart(None).data


@pytest.mark.parametrize(("axis", "value"), [("scope", "isolated"), ("repair", "none"), ("prompts", 1)])
def test_other_sweeps_have_charts_of_their_own(engine: Engine, axis: Any, value: Any) -> None:
    sweep = Sweep(axis, (value,), 24, 2, 4, 1)
    figure = sweep_chart.sweep_chart(Sweeping(engine.model, sweep, lambda *_: None).run())
    assert [list(one.x) for one in figure.data] == [[value], [value]]
    assert ("tokens" in figure.layout.yaxis.title.text) == (axis == "prompts")
    assert "first token" in figure.layout.yaxis.title.text or axis == "prompts"


def test_the_page_draws_what_is_kept_and_nothing_else(asked: Asked) -> None:
    assert asked.ask("draw_sweep", {"name": ""})["figure"]["data"] == []
    asked.ask("start_sweep", {"key": "k", **SMALL})
    name = asked.ended("k")["result"]["name"]
    assert len(asked.ask("draw_sweep", {"name": name})["figure"]["data"]) == 5
    assert "no longer exists" in asked.ask("draw_sweep", {"name": "gone"})["error"]
