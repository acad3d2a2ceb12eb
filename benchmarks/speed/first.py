"""First runs with an empty store, and starts of a process.

- `uncached`: every token is computed, and nothing is stored.
- `first`: missing segments are encoded, and written after the answer.
- `first_sync`: they are on disk before the first token.
- `first_written`: like `first`, until they are on disk.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import sample_schemas
from app.cli.base.options import ModelOptions
from app.studio.sweeps.drawn import sources
from app.studio.sweeps.turns import Way
from benchmarks.base.case import Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from engine.base.errors import PromptCacheError
from engine.base.events import Side
from engine.engine import Engine
from engine.files.text_files import read_text_file
from engine.store import Store

SAMPLES = Path(sample_schemas.__file__).parent
TRAVEL = (SAMPLES / "travel.pml", SAMPLES / "travel.prompt.1.pml")
_PATIENCE_SECONDS = 120.0


@case
def runs(
    group: Group, say: Say, size: Size, documents: Sequence[Path] = (), names: Sequence[str] = ()
) -> Sides:
    """One prompt, each time with an empty store."""
    model = size.loaded(say)
    texts = [read_text_file(path) for path in documents]
    schema, prompt = texts or sources(model, size.cached, size.modules, size.new, size.seed)
    group.params = size.params(model)

    def ask(side: Side, *, sync: bool = False, written: bool = False) -> float:
        with (
            tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
            Engine(model, Store.open(Path(folder))) as engine,
        ):
            prepared = engine.schema(schema)
            started = time.perf_counter()
            answer = prepared.prompt(prompt).answer(mode=side, max_new_tokens=1, sync=sync)
            engine.store.finish_writing()
            taken = (time.perf_counter() - started) * 1000
            group.values |= {"tokens": answer.tokens["prompt"]}
            if side == "cached":
                group.values["segments"] = engine.store.stats().segments
        return taken if written else answer.ttft_ms

    ways = [
        Way("uncached", lambda: ask("uncached")),
        Way("first", lambda: ask("cached")),
        Way("first_sync", lambda: ask("cached", sync=True)),
        Way("first_written", lambda: ask("cached", written=True)),
    ]
    yield [way for way in ways if not names or way.name in names]


@command(cached=1024, modules=8, new=32, repeats=5, seed=0)
def first(options: ModelOptions, cached: int, modules: int, new: int, repeats: int, seed: int) -> Report:
    """Time to first token with an empty store, against no cache at all.

    `first` writes after the answer, `first_sync` before its first token, and `first_written` ends when
    everything is written.
    """
    return report_of(
        [runs("", size_of(options, cached, modules, new, seed))], pace_of(repeats, seed), narrate
    )


@case
def starts(group: Group, say: Say, *, studio: bool = True) -> Sides:
    """From the shell: `pml run` to its first token, `pml check`, and `pml studio` to its page."""
    group.params = {"model": "demo", "prompt": TRAVEL[1].name}
    with _prepared(say) as place:
        ways = [
            Way("pml run", lambda: _run(place, "--server", "never")),
            Way("pml check", lambda: _pml(place, "check", str(TRAVEL[0]))),
        ]
        if studio:
            ways.append(Way("studio to its page", lambda: _studio_ms(place)))
        yield ways


@case
def served(group: Group, say: Say) -> Sides:
    """`pml run` to its first token, with a studio running."""
    group.params = {"model": "demo", "prompt": TRAVEL[1].name}
    with _prepared(say) as place, _studio(place) as url:
        yield [Way("pml run", lambda: _run(place, "--server", url))]


@contextlib.contextmanager
def _prepared(say: Say) -> Iterator[Path]:
    """A folder with a store that has all segments."""
    say("storing the travel sample")
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as name:
        place = Path(name)
        _pml(place, "encode", str(TRAVEL[0]), "--model", "demo")
        _run(place, "--server", "never")  # stores the text outside the schema too
        yield place


def _environment(place: Path) -> dict[str, str]:
    own = {"PML_CACHE_DIR": str(place / "cache"), "XDG_DATA_HOME": str(place)}
    return {**os.environ, **own, "GRADIO_ANALYTICS_ENABLED": "0"}


def _pml(place: Path, *words: str) -> float:
    """Milliseconds of a command."""
    command = [sys.executable, "-m", "app", *words]
    started = time.perf_counter()
    done = subprocess.run(command, env=_environment(place), capture_output=True, check=False)
    taken = (time.perf_counter() - started) * 1000
    if done.returncode:
        raise PromptCacheError(f"pml {' '.join(words)}: {done.stderr.decode(errors='replace').strip()}")
    return taken


def _run(place: Path, *words: str) -> float:
    """Milliseconds from the start of `pml run` to its first token."""
    given = ("--schema", str(TRAVEL[0]), "--mode", "cached", "--model", "demo")
    command = [sys.executable, "-m", "app", "run", str(TRAVEL[1]), *given, *words]
    started = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=_environment(place), stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = (time.perf_counter() - started) * 1000
        _, error = process.communicate()
    if b"first token" not in line:
        raise PromptCacheError(f"pml run printed {line!r}: {error.decode(errors='replace').strip()}")
    return taken


def _studio_ms(place: Path) -> float:
    started = time.perf_counter()
    with _studio(place):
        return (time.perf_counter() - started) * 1000


@contextlib.contextmanager
def _studio(place: Path) -> Iterator[str]:
    """The address of a studio, once its page is there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "app", "studio", "--no-browser", "--port", str(port), "--model", "demo"]
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, env=_environment(place), stdout=quiet, stderr=pipe) as process:
        try:
            url, until = f"http://127.0.0.1:{port}/", time.monotonic() + _PATIENCE_SECONDS
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as page:
                    page.read()
                    break
                if time.monotonic() > until or process.poll() is not None:
                    raise PromptCacheError("the studio did not show its page.")
                time.sleep(0.02)
            yield url
        finally:
            process.terminate()
            process.communicate()
