"""Sweeps: what is measured at each point, what stopping keeps, and what is refused. No times."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.studio.sweeps.measuring import Sweeping, pace, pace_of_shape, total, width
from app.studio.sweeps.plan import (
    AXES,
    COLUMNS,
    DEFAULTS,
    MOST_POINTS,
    Axis,
    Sweep,
    Value,
    as_csv,
    parsed_values,
)
from engine.base.choices import SCOPES
from engine.base.errors import PromptCacheError
from engine.checkpoint.synthetic import shapes
from engine.model.loading import load
from engine.model.model import Model
from tests.engine.tiny import save_tiny

SMALL = {"cached": 24, "modules": 3, "new": 6, "repeats": 1}
FULL = ["uncached", "cached", "files", "floor"]
POINTS: dict[Axis, tuple[Value, ...]] = {
    "cached": (12, 24),
    "new": (4, 8),
    "modules": (1, 3),
    "scope": ("isolated", "scaffold"),
    "repair": ("none", "link:2"),
    "prompts": (1, 2),
}


class StopHereError(Exception):
    pass


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(str(save_tiny(tmp_path_factory.mktemp("model"))))


def nothing(done: float, of: float, what: str) -> None:
    pass


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_is_measured_at_each_point(model: Model, axis: Axis) -> None:
    told: list[tuple[float, float]] = []
    ends = model.end_tokens
    sweep = Sweep(axis, POINTS[axis], **SMALL)
    measured = Sweeping(model, sweep, lambda done, of, _: told.append((done, of)))
    report = measured.run()
    ways = {"scope": FULL[:2], "repair": FULL[:2], "prompts": ["one_by_one", "together"]}.get(axis, FULL)
    assert [(one["value"], one["name"]) for one in report["results"]] == [
        (value, way) for value in POINTS[axis] for way in ways
    ]
    assert report["ended"] == "done"
    assert all(len(one["samples_ms"]) == 1 and one["median_ms"] > 0 for one in report["results"])
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {of for _, of in told} == {total(width(model), sweep)}
    assert report["units"] == pytest.approx(told[-1][1]), "the points' shares make the whole"
    assert json.loads(json.dumps(report)) == report
    assert {"processor", "cores", "torch"} <= set(report["machine"])
    assert report["model"]["fingerprint"] == model.fingerprint
    assert (model.end_tokens, type(model)) == (ends, Model), "the model is as before"


def test_points_have_the_tokens_they_say_and_the_stages_of_a_sample(model: Model) -> None:
    report = Sweeping(model, Sweep("cached", (12, 48), **{**SMALL, "repeats": 3}), nothing).run()
    found = {(one["value"], one["name"]): one for one in report["results"]}
    for value in (12, 48):
        cached, uncached = found[value, "cached"], found[value, "uncached"]
        assert cached["tokens"]["from_cache"] >= value
        assert cached["tokens"]["encoded"] == 0, "what is timed was stored before"
        assert uncached["tokens"]["from_cache"] == 0
        assert sum(cached["timeline_ms"].values()) == pytest.approx(cached["median_ms"], rel=0.05)
        assert cached["encode_ms"] > 0
        assert cached["kl_first_token"] >= 0
    assert found[48, "cached"]["tokens"]["from_cache"] > found[12, "cached"]["tokens"]["from_cache"] + 30


def test_a_scope_that_sees_all_answers_as_without_a_cache_and_a_narrow_one_does_not(model: Model) -> None:
    report = Sweeping(model, Sweep("scope", (), **SMALL), nothing).run()
    away = {one["value"]: one["kl_first_token"] for one in report["results"] if one["name"] == "cached"}
    assert set(away) == set(SCOPES)
    assert away["scaffold"] < 1e-6 < away["isolated"]


def test_what_is_measured_stays_when_it_is_stopped_and_no_turn_is_kept(model: Model) -> None:
    turns = 0

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        nonlocal turns
        turns += 1
        try:
            yield
        finally:
            turns -= 1

    def stop(_: float, __: float, what: str) -> None:
        if what == "measuring cached 24":
            raise StopHereError

    measured = Sweeping(model, Sweep("cached", (12, 24), **SMALL), stop, turn)
    with pytest.raises(StopHereError):
        measured.run()
    assert turns == 0
    assert {one["value"] for one in measured.report["results"]} == {12}
    assert measured.report["ended"] == "stopped"
    assert measured.report["seconds"] > 0


def test_a_table_has_a_row_to_each_way_at_each_point(model: Model) -> None:
    report = Sweeping(model, Sweep("repair", ("none",), **SMALL), nothing).run()
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert [(row["value"], row["way"]) for row in rows] == [("none", "uncached"), ("none", "cached")]
    assert set(rows[0]) == set(COLUMNS)
    assert float(rows[0]["median_ms"]) == pytest.approx(report["results"][0]["median_ms"], abs=0.001)
    assert rows[1]["prefill_ms"]


def test_a_longer_sweep_is_said_to_take_longer(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert total(width(model), Sweep("cached", (12, 48))) > total(width(model), Sweep("cached", (12, 24)))
    assert total(width(model), Sweep("cached", repeats=4)) > 1.5 * total(
        width(model), Sweep("cached", repeats=2)
    )
    assert pace(model) > 0
    known, ticks = shapes(), itertools.count()
    monkeypatch.setattr("app.studio.sweeps.measuring._SIDE", 64)
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr("app.studio.sweeps.measuring.time", clock)
    assert pace_of_shape(known["llama2-7b"]) < pace_of_shape(known["llama-100m"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"axis": "length"}, "There is no axis 'length'"),
        ({"axis": "cached", "values": ("far",)}, "a whole number"),
        ({"axis": "scope", "values": (3,)}, "a name"),
        ({"axis": "scope", "values": ("wide",)}, "not 'wide'"),
        ({"axis": "modules", "values": (600,)}, "cannot be split over 600"),
        ({"axis": "cached", "values": (0,)}, "at least 1"),
        ({"axis": "prompts", "values": (0,)}, "at least 1"),
        ({"axis": "new", "repeats": 0}, "Repeats are 0"),
        ({"axis": "cached", "values": tuple(range(8, 9 + MOST_POINTS))}, "at most"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PromptCacheError, match=words):
        Sweep(**given)


def test_values_are_read_as_they_are_written() -> None:
    assert parsed_values("cached", ["12", "24"]) == (12, 24)
    assert parsed_values("repair", ["link:8"]) == ("link:8",)
    for wrong in ("-1", "1.5", "²", ""):
        with pytest.raises(PromptCacheError, match="whole number"):
            parsed_values("new", [wrong])
    assert Sweep("new", (8, 8, 4)).values == (8, 4)
    assert Sweep("new").values == DEFAULTS["new"]


def test_what_does_not_fit_the_window_is_refused_before_anything_is_computed(model: Model) -> None:
    with pytest.raises(PromptCacheError, match="do not fit the model's context window"):
        Sweeping(model, Sweep("cached", (model.context_length,)), nothing)
