"""Whether the store keeps its word: killed writers, damaged files, many processes; and what it costs.

- `kills`: a process that writes and prunes is killed at a random instant; index and files must agree after
  it, and nothing wrong may be served.
- `damages`: stored files are changed at random (bits, length, swapped with others); each must be noticed.
- `processes`: four processes write, read and prune one store.
- `full disk`: a real one fills up while encoding, before opening and before pruning; the answer must come.
- `trace`: what the policy `cost` computes again by what `lru` does, on a drawn trace.
- `verify`: seconds per gigabyte, and bytes in files by the bytes of keys and values.
- `compression`: what fewer bits save, and what they change.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import full_disk
from benchmarks.machine import machine
from benchmarks.tasks import Task, own_questions, read_tasks
from engine.engine import Engine
from engine.events import Answer, Finished
from engine.generate import compare
from engine.loading import load
from engine.model import Model
from engine.pml import Text
from engine.segment import Segment
from engine.settings import RunSettings
from engine.store import Origin, Served, Store
from engine.store.codec import SCHEMES, Scheme
from engine.store.eviction import POLICIES

DOCUMENTS = 8  # in each prompt that compression is measured over; 60 questions have so many
_ORIGIN = Origin("benchmark", "m", "isolated", "benchmark", "benchmark")
_KINDS = 16
Progress = Callable[[int, int, str], None]


def run(
    model: str,
    *,
    kills: int = 200,
    damages: int = 1000,
    seconds: int = 60,
    questions: int = 40,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs every trial.

    Args:
        model: name of the model that compression is measured on.
        kills: how many processes are killed.
        damages: how many files are damaged.
        seconds: that the processes share a store.
        questions: that compression is measured over.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        progress: called with (done, total, what).

    Returns:
        `results` (name, and figures by their names) and `machine`.
    """
    say = progress or (lambda *_: None)
    loaded = load(model, device=device, dtype=dtype)
    results = []
    with _quiet(), tempfile.TemporaryDirectory(prefix="pml-store-") as folder:
        place = Path(folder)
        say(0, 5, "killing writers")
        results.append({"name": "kills", **_kills(place / "kills", kills)})
        say(1, 5, "damaging files")
        results.append({"name": "damages", **_damages(place / "damages", damages)})
        say(2, 5, "four processes on one store")
        results.append({"name": "processes", **_processes(place / "processes", seconds)})
        results.append({"name": "full disk", **full_disk.measure(loaded, place / "small")})
        say(3, 5, "reading a store")
        results.append({"name": "verify", **_verify(place / "verify")})
        results.append({"name": "trace", **_trace(place / "trace")})
        say(4, 5, "compressing")
        for scheme in SCHEMES:
            found = _compression(loaded, place, scheme, questions)
            results += [{"name": f"compression {scheme}", **found}]
        say(5, 5, "done")
    return {"results": results, "machine": machine(loaded)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Thousands of warnings of the store are the point here."""
    logger = logging.getLogger("engine.store")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _segment(number: int) -> Segment:
    generator = torch.Generator().manual_seed(number)
    tokens = 32 + 8 * number
    keys, values = torch.randn(2, 4, 2, tokens, 32, generator=generator)
    return Segment(f"k{number}", tuple(range(tokens)), keys.contiguous(), values.contiguous())


def _work(folder: str, seed: int, until: float, most: int) -> None:
    """Writes, reads, prunes; ends with status 1 where something wrong is served."""
    store, draw = Store.open(Path(folder)), random.Random(seed)
    while time.time() < until:
        made = _segment(draw.randrange(_KINDS))
        read = store.load(made.key, made.token_ids)
        if read is None:
            with store.turn(made.key):
                store.save(made, _ORIGIN)
        elif not torch.equal(read.keys, made.keys) or not torch.equal(read.values, made.values):
            os._exit(1)
        if draw.random() < 0.05:
            store.prune(max_bytes=draw.randrange(most))
    store.close()


def _right(store: Store) -> bool:
    """Whether index and files agree and nothing wrong is served."""
    if not store.verify().clean:
        return False
    for number in range(_KINDS):
        made = _segment(number)
        read = store.load(made.key, made.token_ids)
        if read is not None and not torch.equal(read.keys, made.keys):
            return False
    return True


def _context() -> Any:
    """Processes that begin with torch loaded and no thread of it running."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.store"])
    return context


def _kills(folder: Path, count: int) -> dict[str, Any]:
    context, draw, right, stored = _context(), random.Random(1), 0, 0
    for number in range(count):
        worker = context.Process(target=_work, args=(str(folder), number, time.time() + 60, 1 << 20))
        worker.start()
        time.sleep(0.02 + draw.random() * 0.15)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        store = Store.open(folder)
        right += _right(store)
        stored += store.stats().segments
        store.close()
    return {"kills": count, "right": right, "segments_found": stored}


def _damages(folder: Path, count: int) -> dict[str, Any]:
    draw, wrong, noticed, mended = random.Random(2), 0, 0, 0
    store = Store.open(folder)
    for _ in range(count):
        made = _segment(draw.randrange(_KINDS))
        other = _segment((int(made.key[1:]) + 1) % _KINDS)
        for one in (made, other):
            if store.load(one.key, one.token_ids) is None:
                store.save(one, _ORIGIN)
        path, neighbour = (next(store.files.glob(f"{one.key}-*")) for one in (made, other))
        _damage(path, neighbour, draw)
        before = store.stats().corrupt
        fresh = Store.open(folder)
        read = fresh.load(made.key, made.token_ids)
        wrong += read is not None and not torch.equal(read.keys, made.keys)
        noticed += read is None and fresh.stats().corrupt == before + 1
        fresh.save(made, _ORIGIN)
        mended += fresh.load(made.key, made.token_ids) is not None
        fresh.close()
    store.close()
    return {"damages": count, "served_wrong": wrong, "noticed": noticed, "mended": mended}


def _damage(path: Path, neighbour: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    kind = draw.randrange(5)
    if kind == 0:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == 1:
        del data[draw.randrange(len(data)) :]
    elif kind == 2:
        data = bytearray(neighbour.read_bytes())
    elif kind == 3:
        start = draw.randrange(len(data))
        stop = min(len(data), start + draw.randrange(1, 512))
        data[start:stop] = bytes(value ^ 255 for value in data[start:stop])
    else:
        path.unlink()
        return
    path.chmod(0o600)  # what is stored is sealed against writing
    path.write_bytes(bytes(data))


def _processes(folder: Path, seconds: int) -> dict[str, Any]:
    context, until = _context(), time.time() + seconds
    Store.open(folder).close()
    workers = [context.Process(target=_work, args=(str(folder), n, until, 1 << 20)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds + 60)
    store = Store.open(folder)
    found = {
        "seconds": seconds,
        "failed": sum(worker.exitcode != 0 for worker in workers),
        "clean": store.verify().clean and _right(store),
        "corrupt": store.stats().corrupt,
    }
    store.close()
    return found


def _verify(folder: Path) -> dict[str, Any]:
    store = Store.open(folder)
    keys = torch.zeros(16, 8, 1024, 64)
    for number in range(8):
        keys[0, 0, 0, 0] = number
        store.save(Segment(f"v{number}", tuple(range(1024)), keys, keys.clone()), _ORIGIN)
    samples = []
    for _ in range(3):
        found = store.verify()
        samples.append(found.seconds / (found.bytes / 1e9))
    theory = 8 * 2 * keys.nbytes
    stored = store.stats().bytes
    store.close()
    shutil.rmtree(folder)
    return {"seconds_per_gb": statistics.median(samples), "bytes_by_theory": stored / theory}


def _trace(folder: Path, requests: int = 1500) -> dict[str, Any]:
    """Computing that each policy causes on one trace: two models, some modules liked, and tastes drift."""
    draw = random.Random(4)
    sizes = {f"t{n}": draw.choice((8, 16, 32, 64)) for n in range(60)}
    costs = {
        key: tokens * (1 + tokens / 64) * (10 if int(key[1:]) % 4 == 0 else 1)
        for key, tokens in sizes.items()
    }
    asked = []
    for number in range(requests):
        rank = min(int(draw.paretovariate(0.8)) - 1, 59)
        asked.append(f"t{(rank * 7 + number // 300 * 11) % 60}")
    spent: dict[str, float] = {}
    for policy in POLICIES:
        store = Store.open(folder / policy)
        store.set_budget(400_000, policy)
        spent[policy] = 0.0
        for key in asked:
            ids = range(sizes[key])
            if store.load(key, ids) is not None:
                store.record([Served(key, "disk", "hit")])
                continue
            spent[policy] += costs[key]
            states = torch.zeros(2, 4, 2, len(ids), 32)
            store.save(Segment(key, tuple(ids), states, states.clone()), _ORIGIN, seconds=costs[key] / 1000)
        store.close()
    return {"requests": requests, "cost_by_lru": spent["cost"] / spent["lru"]}


def _compression(model: Model, place: Path, scheme: Scheme, count: int) -> dict[str, Any]:
    """Size, and KL of the first token from the plainly stored one, over the longest document questions."""
    plain = Store.open(place / "plain")
    packed = Store.open(place / f"{scheme}-packed")
    packed.set_scheme(scheme)
    engines = (Engine(model, plain), Engine(model, packed))
    divergences, agrees, loads, sizes = [], [], [], []
    tasks = [task for task in read_tasks(own_questions()) if task.documents == DOCUMENTS]
    for task in sorted(tasks, key=_characters, reverse=True)[:count]:
        answers = [_twice(engine, task.schema, task.prompt) for engine in engines]
        compared = compare(answers[1][1], answers[0][1])
        divergences.append(compared.kl_first_token)
        agrees.append(compared.first_token_agrees)
        loads.append(answers[1][1].ttft_ms / answers[0][1].ttft_ms)
        sizes.append(packed.stats().bytes / plain.stats().bytes)
        for engine in engines:
            engine.residency.clear()
            engine.store.clear()
    for engine in engines:
        engine.close()
    return {
        "questions": len(divergences),
        "bytes_by_plain": statistics.median(sizes),
        "bytes_by_bf16": statistics.median(sizes) * model.torch_dtype.itemsize / 2,
        "kl_first_token": statistics.fmean(divergences),
        "first_token_agreement": statistics.fmean(agrees),
        "ttft_from_disk_by_plain": statistics.median(loads),
    }


def _characters(task: Task) -> int:
    """How much text the modules of a task hold."""
    children = [child for module in task.schema.modules() for child in module.children]
    return sum(len(child.text) for child in children if isinstance(child, Text))


def _twice(engine: Engine, schema: Any, prompt: Any) -> tuple[Answer, Answer]:
    """The answer on a miss, and again from disk."""
    found = []
    for _ in range(2):
        engine.residency.clear()
        events = engine.run(schema, prompt, RunSettings(max_new_tokens=1), "cached")
        found += [event.answer for event in events if isinstance(event, Finished)]
    return found[0], found[1]
