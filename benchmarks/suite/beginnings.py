"""T8 and T14: the first run of a prompt, and the start of a program."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import sample_schemas
from benchmarks.answers import sources
from benchmarks.first import FirstRuns
from benchmarks.suite.first_token import named
from benchmarks.suite.sampling import Group, Say
from benchmarks.suite.scale import Scale
from benchmarks.turns import Way
from engine.base.errors import PromptCacheError
from engine.model.loading import load

SAMPLES = Path(sample_schemas.__file__).parent
SCHEMA, PROMPT = SAMPLES / "travel.pml", SAMPLES / "travel.prompt.1.pml"
_PATIENCE_SECONDS = 120.0


def first_runs(scale: Scale, say: Say) -> list[Group]:
    """T8: a prompt of which nothing is stored, by no cache at all: the travel sample, and the large model."""
    texts = (SCHEMA.read_text(encoding="utf-8"), PROMPT.read_text(encoding="utf-8"))
    model = load("demo")
    travel = Group("travel sample", {"model": "demo", "dtype": model.dtype})
    travel.measure(FirstRuns(model, *texts).ways(), scale, say)
    size = scale.large
    say(f"loading {size.model}")
    loaded = load(size.model, dtype=size.dtype)
    large = named(size, loaded)
    runs = FirstRuns(loaded, *sources(loaded, size.cached, size.modules, size.new, 0))
    ways = [way for way in runs.ways() if way.name in ("uncached", "first_written")]
    large.measure(ways, scale, say)
    return [travel, large]


def starts(scale: Scale, say: Say) -> list[Group]:
    """T14: from the shell to the first token of a stored prompt, to the studio's page; a check."""
    group = Group("from the shell", {"model": "demo", "prompt": PROMPT.name})
    with tempfile.TemporaryDirectory(prefix="pml-suite-") as name:
        place = Path(name)
        _pml(place, "encode", str(SCHEMA))
        _run(place, "--server", "never")  # what the schema does not say is stored too
        ways = [
            Way("pml run", lambda: _run(place, "--server", "never")),
            Way("pml check", lambda: _pml(place, "check", str(SCHEMA))),
        ]
        if scale.with_studio:
            ways.append(Way("studio to its page", lambda: _studio_ms(place)))
        group.measure(ways, scale, say, rounds=scale.starts)
        if not scale.with_studio:
            return [group]
        served = Group("with a studio running", dict(group.params))
        with _studio(place) as url:
            way = Way("pml run", lambda: _run(place, "--server", url))
            served.measure([way], scale, say, rounds=scale.starts)
        return [group, served]


def _environment(place: Path) -> dict[str, str]:
    own = {
        "PML_CACHE_DIR": str(place / "cache"),
        "XDG_DATA_HOME": str(place),
        "GRADIO_ANALYTICS_ENABLED": "0",
    }
    return {**os.environ, **own}


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "app", *words]


def _pml(place: Path, *words: str) -> float:
    """Milliseconds that a command took from its start to its end."""
    started = time.perf_counter()
    done = subprocess.run(_command(*words), env=_environment(place), capture_output=True, check=False)
    taken = (time.perf_counter() - started) * 1000
    if done.returncode:
        raise PromptCacheError(f"pml {' '.join(words)}: {done.stderr.decode(errors='replace').strip()}")
    return taken


def _run(place: Path, *words: str) -> float:
    """Milliseconds from the start of `pml run` to the words that its first token is there."""
    command = _command("run", str(PROMPT), "--schema", str(SCHEMA), "--mode", "cached", *words)
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=_environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        taken = (time.perf_counter() - started) * 1000
        _, fault = process.communicate()
    if b"first token" not in first:
        raise PromptCacheError(f"pml run said {first!r}: {fault.decode(errors='replace').strip()}")
    return taken


def _studio_ms(place: Path) -> float:
    started = time.perf_counter()
    with _studio(place):
        return (time.perf_counter() - started) * 1000


@contextlib.contextmanager
def _studio(place: Path) -> Iterator[str]:
    """The address of a studio, from when its page is there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        _command("studio", "--no-browser", "--port", str(port)),
        env=_environment(place),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        url = f"http://127.0.0.1:{port}/"
        _await_page(process, url)
        yield url
    finally:
        process.terminate()
        process.communicate()


def _await_page(process: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as page:
            page.read()
            return
        time.sleep(0.02)
    process.kill()
    said = process.communicate()[1].decode(errors="replace").strip()
    raise PromptCacheError(f"the studio did not show its page: {said}")
