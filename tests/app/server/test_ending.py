"""How `pml serve` ends, as a process: signals, answers under way, statuses, and the store after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.engine.tiny import save_tiny

ROOT = Path(__file__).parents[3]
AT_ONCE = 15
"""Seconds that no wait for an answer, a grace or a model would keep to; what it takes is less than one."""
SLOW = """
import signal, sys, time
from app.cli import main
from app.cli.base.options import ModelOptions
from engine.batch.loop import BatchLoop
from engine.inference.sampler import Sampler

signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may have it ignored
pass_seconds, load_seconds, *words = sys.argv[1:]
step, opened = BatchLoop._step, ModelOptions.open
BatchLoop._step = lambda loop: (time.sleep(float(pass_seconds)), step(loop))[1]
ModelOptions.open = lambda options, **more: (time.sleep(float(load_seconds)), opened(options, **more))[1]
choose = Sampler.choose
Sampler.choose = lambda self, logits: (choose(self, logits), 65)[-1]  # no answer ends by itself
main(["serve", *words])
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


class Process:
    """`pml serve`, started.

    Attributes:
        process: it.
        url: its address.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("Loading"), first
        self.url = first.split("; ")[1].split("/health")[0]

    def ready(self) -> Process:
        """Waits until it answers."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("Serving")
        return self

    def end(self, number: int, seconds: float) -> tuple[int, str]:
        """Sends a signal; returns the status, and what it says."""
        self.process.send_signal(number)
        _, told = self.process.communicate(timeout=seconds)
        return self.process.returncode, told.strip()


@contextmanager
def serving(
    model: Path | str, cache: Path, *words: str, step: float = 0, load: float = 0
) -> Iterator[Process]:
    """Starts it, and ends it where it has not ended."""
    command = [
        sys.executable,
        "-u",
        "-c",
        SLOW,
        str(step),
        str(load),
        str(model),
        "--port",
        "0",
        "--alias",
        "tiny",
    ]
    with subprocess.Popen(
        [*command, "--cache-dir", str(cache), *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


def read(url: str, number: int, told: dict[int, Any], tokens: int) -> None:
    """Reads a stream to its end, and notes its lines, or what broke it off."""
    path = "/v1/messages" if number % 2 else "/v1/chat/completions"
    asked = {"model": "tiny", "stream": True, "max_tokens": tokens, "temperature": 0}
    try:
        turns = [{"role": "user", "content": f"Hello {number}"}]
        with httpx.stream("POST", url + path, json={**asked, "messages": turns}, timeout=60) as stream:
            told[number] = []
            for line in stream.iter_lines():
                told[number].append(line)
    except Exception as error:
        told[number] = error


def streaming(url: str, tokens: int) -> tuple[list[threading.Thread], dict[int, Any]]:
    """Eight streams that have begun."""
    told: dict[int, Any] = {}
    threads = [threading.Thread(target=read, args=(url, number, told, tokens)) for number in range(8)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 30
    while len([one for one in told.values() if len(one) > 2]) < 8:
        assert all(thread.is_alive() for thread in threads), told
        assert time.monotonic() < until, told
        time.sleep(0.02)
    return threads, told


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def events(lines: Any) -> list[Any]:
    """The events of a stream; each is whole."""
    assert isinstance(lines, list), lines
    assert lines[-1] == "", "the last event is ended by its empty line"
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def verified(cache: Path) -> str:
    """What `pml cache verify` says of the store."""
    found = subprocess.run(
        [sys.executable, "-m", "app", "cache", "verify", "--cache-dir", str(cache)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_a_signal_ends_eight_streams_with_whole_events(model: Path, tmp_path: Path) -> None:
    with serving(model, tmp_path, "--grace", "1", step=0.02) as server:
        server.ready()
        threads, told = streaming(server.url, 1900)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        health = httpx.get(f"{server.url}/health")
        assert (health.status_code, health.json()) == (503, {"status": "draining"})
        with (
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as one,
            pytest.raises(openai.InternalServerError) as refused,
        ):
            one.models.list()
        assert (refused.value.status_code, refused.value.code) == (503, "draining")
        with (
            anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as other,
            pytest.raises(anthropic.OverloadedError) as overloaded,
        ):
            other.messages.create(model="tiny", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
        assert overloaded.value.status_code == 529
        assert server.process.wait(10) == 128 + signal.SIGTERM
        assert time.monotonic() - started < AT_ONCE, "the answers would take 38 s"
        joined(threads)
        for number, lines in told.items():
            last = events(lines)[-1]
            if number % 2:
                assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")
                assert last["request_id"].startswith("req_")
            else:
                assert last["error"]["code"] == "draining"
        assert server.process.stderr is not None
        assert server.process.stderr.read().strip() == "pml: stopped by SIGTERM"
    verified(tmp_path)


def test_answers_that_end_within_the_grace_are_whole(model: Path, tmp_path: Path) -> None:
    with serving(model, tmp_path, "--grace", "30", step=0.02) as server:
        server.ready()
        threads, told = streaming(server.url, 40)
        assert server.end(signal.SIGTERM, 20)[0] == 143
        joined(threads)
        for number, lines in told.items():
            last = events(lines)[-1]
            assert last["type"] == "message_stop" if number % 2 else last == "[DONE]"


def test_a_second_signal_ends_at_once(model: Path, tmp_path: Path) -> None:
    with serving(model, tmp_path, "--grace", "60", step=0.02) as server:
        server.ready()
        threads, told = streaming(server.url, 1900)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.7)
        assert server.process.poll() is None, "the first one lets answers end"
        started = time.monotonic()
        assert server.end(signal.SIGINT, 10) == (130, "pml: interrupted")
        assert time.monotonic() - started < AT_ONCE, "the grace is a minute"
        joined(threads)
        assert all("error" in events(lines)[-1] for lines in told.values())


def test_a_model_that_loads_is_not_waited_for(model: Path, tmp_path: Path) -> None:
    with serving(model, tmp_path, load=60) as server:
        health = httpx.get(f"{server.url}/health")
        assert (health.status_code, health.json()) == (503, {"status": "loading"})
        with (
            anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client,
            pytest.raises(anthropic.OverloadedError),
        ):
            client.models.list()
        started = time.monotonic()
        status, told = server.end(signal.SIGTERM, 10)
        assert status == 143
        assert told == "pml: stopped by SIGTERM, while the model was loading"
        assert time.monotonic() - started < AT_ONCE, "loading takes a minute"


def test_a_model_that_cannot_be_loaded_ends_it_with_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}", encoding="utf-8")
    with serving(broken, tmp_path / "cache") as server:
        _, told = server.process.communicate(timeout=30)
        assert server.process.returncode == 1
        assert told.startswith("pml: ")
        assert "broken" in told
        assert "Traceback" not in told
