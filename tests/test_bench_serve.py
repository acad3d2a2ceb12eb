"""`pml bench serve`: what is asked of whom, what of it counts, and what is told of it. No times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.command import main
from benchmarks import serve
from benchmarks.raw_reader import RawReader, events_of, read
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from tests.engine.tiny import save_tiny

SMALL = {"cached": 100, "new": 10, "tokens": 6, "repeats": 2}
ENGINES = (serve.CONVERSATION, serve.RAW)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def report(folder: str) -> dict[str, Any]:
    return serve.run(folder, **SMALL)


def test_a_report_has_every_endpoint_beside_the_engine(report: dict[str, Any]) -> None:
    paths = [one.path for one in serve.ENDPOINTS]
    assert [one["name"] for one in report["results"]] == [*ENGINES, *paths]
    assert [one["name"] for one in report["beyond"]] == paths
    for one in report["results"]:
        assert [len(one[name]["samples_ms"]) for name in ("first_ms", "token_ms")] == [2, 2]
        assert min(one["first_ms"]["samples_ms"]) > 0
    for one in report["results"][:2]:
        assert one["read"] > one["prompt"] / 2, "what is asked again is read"


def test_all_have_one_text_which_the_engine_has_too(report: dict[str, Any]) -> None:
    assert [one["same_text"] for one in report["beyond"]] == [True] * 4


def test_goals_are_judged_by_what_was_measured(report: dict[str, Any]) -> None:
    one = {"name": "/x", "same_text": True, "first_ms": {"median": 3.0}, "first_share": {"median": 0.051}}
    found = serve.judged([{**one, "token_ms": {"median": -0.1}}])
    assert [goal["met"] for goal in found] == [True, False, True]
    found = serve.judged([{**one, "token_ms": {"median": 0.1}, "same_text": False}])
    assert [goal["met"] for goal in found] == [False] * 3
    assert len(report["goals"]) == len(serve.GOALS) * len(serve.ENDPOINTS)
    for goal in report["goals"]:
        assert goal["met"] == (goal["value"] <= goal["most"])


def test_an_event_is_there_when_its_last_byte_is() -> None:
    head = "HTTP/1.1 200 OK\r\n\r\n"
    one, other = 'event: a\ndata: {"n": 1}\n\n', 'data: {"n": "é"}\n\ndata: [DONE]\n\n: still here\n\n'
    chunks = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (one[:5], one[5:], _bytes(other), ""))
    whole = head + chunks
    for cut in range(len(head), len(whole)):
        times = [ms for ms, _ in events_of([(1.0, whole[:cut]), (2.0, whole[cut:])])]
        first = len(head) + chunks.index("1}\n\n") + len("1}\n\n\r\n")
        assert times == [1.0 if cut >= first else 2.0, 1.0 if cut >= len(whole) - 5 else 2.0]
    assert [event["n"] for _, event in events_of([(1.0, whole)])] == [1, "é"]


def _bytes(text: str) -> str:
    """The bytes of a text, one character each, as a reader passes them on."""
    return text.encode().decode("latin-1")


def test_what_the_server_refuses_is_told(folder: str) -> None:
    with Engine.open(folder) as engine, serve.serving(engine, 4) as port:
        asked = {"model": "another", "messages": [{"role": "user", "content": "x"}], "stream": True}
        found = read(port, "/v1/chat/completions", asked)
        assert isinstance(found, str)
        assert json.loads(found)["error"]["code"] == "model_not_found"
        with RawReader(port) as reader, pytest.raises(PromptCacheError, match="no model 'another'"):
            reader.ask("/v1/chat/completions", asked)


def test_an_answer_of_which_no_text_is_seen_is_a_fault_in_words(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.Asked, "straight", lambda _, way: [(1.0, way)])
    with pytest.raises(PromptCacheError, match="came in 1 texts and needs 2; raise --tokens"):
        serve.run(folder, **SMALL)


@pytest.mark.parametrize("changed", [{"cached": 0}, {"new": 0}, {"tokens": 1}, {"repeats": 0}])
def test_numbers_that_cannot_be_run_are_refused_before_a_model_is_looked_for(changed: dict[str, int]) -> None:
    with pytest.raises(PromptCacheError, match="at least"):
        serve.run("none", **{**SMALL, **changed})


def test_what_does_not_fit_is_a_fault_in_words(folder: str) -> None:
    with pytest.raises(PromptCacheError, match="do not fit the model's 2048"):
        serve.run(folder, **{**SMALL, "cached": 2000})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]) -> dict[str, Any]:
    """What the command asks of the measurement, which gives the report of before."""
    asked: dict[str, Any] = {}

    def run(model: str, **given: Any) -> dict[str, Any]:
        asked.update(model=model, **given)
        return report

    monkeypatch.setattr(serve, "run", run)
    return asked


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    def pml(*words: str) -> SimpleNamespace:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        return SimpleNamespace(status=left.value.code, **capsys.readouterr()._asdict())

    return pml


def test_the_command_shows_times_goals_and_the_machine(
    measured: dict[str, Any], report: dict[str, Any], call: Callable[..., SimpleNamespace]
) -> None:
    done = call("bench", "serve", "--cached", "64", "--repeats", "3", "--model", "demo")
    assert done.status == 0, done.err
    assert (measured["model"], measured["cached"], measured["repeats"]) == ("demo", 64, 3)
    for words in ("BEYOND THE ENGINE", "/v1/responses", "AT MOST", "tokens read from memory", "processor "):
        assert words in done.out
    met = sum(goal["met"] for goal in report["goals"])
    assert (done.out.count("  met"), done.out.count("  missed")) == (met, len(report["goals"]) - met)


def test_the_command_prints_json(
    measured: dict[str, Any], report: dict[str, Any], call: Callable[..., SimpleNamespace], tmp_path: Path
) -> None:
    done = call("bench", "serve", "--json", "--model", str(tmp_path))
    assert measured["model"] == str(tmp_path)
    assert json.loads(done.out) == report
