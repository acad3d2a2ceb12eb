"""How `pml serve` ends: signals, answers under way, statuses, and the store after it."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import openai
import pytest

from app.cli.base.options import ModelOptions
from engine.inference.sampler import Sampler
from tests.app.server.raw import eventually
from tests.engine.tiny import save_tiny

Pml = Callable[..., SimpleNamespace]
Play = Callable[[str], Any]
Serve = Callable[..., SimpleNamespace]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def harmless() -> Iterator[None]:
    """A signal that arrives before or after the server does not end the tests."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def serve(run_pml: Pml, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Runs `pml serve` here, and a client's play with its URL on a thread once a line begins as `after`."""
    lines: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr("app.cli.commands.serve.say", lambda text, **_: lines.put(text))
    monkeypatch.setattr("app.server.serving._ECHO_SECONDS", 0.0)

    def call(play: Play, *words: str, after: str = "Serving") -> SimpleNamespace:
        def played() -> None:
            try:
                url = lines.get(timeout=60).split("; ")[1].split("/health")[0]
                if after == "Serving":
                    assert lines.get(timeout=60).startswith("Serving")
                play(url)
            finally:
                send(signal.SIGTERM)
                send(signal.SIGTERM)

        with ThreadPoolExecutor(1) as pool:
            client = pool.submit(played)
            found = run_pml("serve", model, "--port", "0", "--cache-dir", tmp_path, "--alias", "tiny", *words)
            client.result(60)
        return SimpleNamespace(status=found.status, err=found.err.strip(), lines=[*lines.queue])

    return call


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens take time, and no answer ends by itself."""
    choose = Sampler.choose

    def slowly(sampler: Sampler, logits: Any) -> int:
        time.sleep(0.003)
        choose(sampler, logits)
        return 65

    monkeypatch.setattr(Sampler, "choose", slowly)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def read(url: str, number: int, told: dict[int, Any], tokens: int) -> None:
    """Reads a stream to its end and saves its lines, or its error."""
    path = "/v1/messages" if number % 2 else "/v1/chat/completions"
    asked = {"model": "tiny", "stream": True, "max_tokens": tokens, "temperature": 0}
    try:
        turns = [{"role": "user", "content": f"Hello {number}"}]
        with httpx.stream("POST", url + path, json={**asked, "messages": turns}, timeout=60) as stream:
            for line in stream.iter_lines():
                told[number].append(line)
    except Exception as error:
        told[number] = error


def streaming(url: str, tokens: int) -> tuple[list[threading.Thread], dict[int, Any]]:
    """Eight streams that have begun."""
    told: dict[int, Any] = {number: [] for number in range(8)}
    threads = [threading.Thread(target=read, args=(url, number, told, tokens)) for number in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: sum(len(one) > 2 for one in told.values()) == 8, "every stream begins", 60)
    return threads, told


def ends(threads: list[threading.Thread], told: dict[int, Any]) -> list[Any]:
    """The last event of each stream. Each event of each stream is whole."""
    found = []
    for number, thread in enumerate(threads):
        thread.join(60)
        lines = told[number]
        assert isinstance(lines, list), lines
        assert lines[-1] == "", "an empty line ends the last event"
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        found.append([one if one == "[DONE]" else json.loads(one) for one in data][-1])
    return found


def require_broken_off(found: list[Any]) -> None:
    for number, last in enumerate(found):
        if number % 2:
            assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")
            assert last["request_id"].startswith("req_")
        else:
            assert last["error"]["code"] == "draining"


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "pml: interrupted"), (signal.SIGTERM, 143, "pml: stopped by SIGTERM")],
)
def test_the_first_signal_refuses_requests_and_the_second_ends_streams(
    number: int, status: int, said: str, serve: Serve, run_pml: Pml, tmp_path: Path
) -> None:
    def play(url: str) -> None:
        threads, told = streaming(url, 1900)
        send(number)
        eventually(lambda: httpx.get(f"{url}/health").json() == {"status": "draining"}, "it drains")
        assert httpx.get(f"{url}/health").status_code == 503
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as one:
            with pytest.raises(openai.InternalServerError) as refused:
                one.models.list()
            assert (refused.value.status_code, refused.value.code) == (503, "draining")
        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as other:
            with pytest.raises(anthropic.OverloadedError) as overloaded:
                other.models.list()
            assert overloaded.value.status_code == 529
        lines = sum(map(len, told.values()))
        eventually(lambda: sum(map(len, told.values())) > lines, "the streams go on")
        send(number)
        require_broken_off(ends(threads, told))

    started = time.monotonic()
    found = serve(play, "--grace", "300")
    assert (found.status, found.err) == (status, said)
    assert time.monotonic() - started < 200, "it does not wait for the grace"
    assert run_pml("cache", "verify", "--cache-dir", tmp_path).status == 0


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("grace", "tokens"), [("0.2", 1900), ("60", 20)])
def test_answers_have_the_grace_to_end(grace: str, tokens: int, serve: Serve) -> None:
    def play(url: str) -> None:
        threads, told = streaming(url, tokens)
        send(signal.SIGTERM)
        found = ends(threads, told)
        if tokens > 20:
            require_broken_off(found)
        else:
            assert all(last == "[DONE]" for last in found[::2])
            assert all(last["type"] == "message_stop" for last in found[1::2])

    assert serve(play, "--grace", grace).status == 143


def test_a_signal_does_not_wait_for_a_model_that_loads(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()
    monkeypatch.setattr(ModelOptions, "open", lambda *_, **__: hold.wait(60))
    monkeypatch.setattr("app.server.serving._LOADING_SECONDS", 0.05)
    monkeypatch.setattr("app.cli.commands.serve.os._exit", sys.exit)  # the thread that loads has to end

    def play(url: str) -> None:
        health = httpx.get(f"{url}/health")
        assert (health.status_code, health.json()) == (503, {"status": "loading"})
        with (
            anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
            pytest.raises(anthropic.OverloadedError),
        ):
            client.models.list()

    found = serve(play, after="Loading")
    hold.set()
    assert found.status == 143
    assert found.lines == ["pml: stopped by SIGTERM, while the model was loading"]


def test_a_model_that_cannot_be_loaded_ends_it_with_a_sentence(run_pml: Pml, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    found = run_pml("serve", tmp_path, "--port", "0", "--cache-dir", tmp_path / "cache")
    assert found.status == 1
    assert found.err.startswith("pml: ")
    assert tmp_path.name in found.err
    assert "Traceback" not in found.err
