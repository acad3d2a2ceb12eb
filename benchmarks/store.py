"""Whether the store keeps its word: killed writers, damaged files, many processes; and what it costs.

- `kills`: a process that writes and prunes is killed, mostly in the middle of a write; index and files must
  agree after it, and nothing wrong may be served.
- `damages`: stored files are changed at random (bits, length, swapped with others); each must be noticed.
- `processes`: four processes write, read and prune one store.
- `full disk`: a real one fills up while encoding, before opening and before pruning; the answer must come.
- `trace`: what the policy `cost` computes again by what `lru` does, on a drawn trace.
- `verify`: seconds per gigabyte, and bytes in files by the bytes of keys and values.
- `compression`: what fewer bits save, and what they change in whole answers.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks import full_disk
from benchmarks.kills import KINDS, ORIGIN, context, right, segment, work
from benchmarks.kills import kills as killed
from benchmarks.machine import machine
from benchmarks.shortening import fits
from benchmarks.tasks import Task, own_questions, read_tasks
from engine.base.choices import Weights
from engine.base.errors import PromptCacheError
from engine.base.events import Answer
from engine.base.segment import Segment
from engine.base.tiers import Outcome, Tier
from engine.engine import Engine
from engine.fidelity.teacher_forcing import Reading
from engine.inference.run_settings import RunSettings
from engine.model.loading import load
from engine.model.model import Model
from engine.pml import Text
from engine.store import Lookup, Store
from engine.store.blobs.codec import SCHEMES, Scheme
from engine.store.index.eviction import POLICIES

DOCUMENTS = 8  # in each prompt that compression is measured over; 60 questions have so many
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
    weights: Weights = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs every trial.

    Args:
        model: name of the model that compression is measured on.
        kills: how many processes are killed.
        damages: how many files are damaged.
        seconds: how long the processes share a store.
        questions: the questions that compression is measured over.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: "auto", "packed" or "plain".
        progress: called with (done, total, what).

    Returns:
        `results` (name, and figures by their names) and `machine`.

    Raises:
        PromptCacheError: the model reads none of the questions.
    """
    say = progress or (lambda *_: None)
    loaded = load(model, device=device, dtype=dtype, weights=weights)
    tasks = longest_questions(loaded, questions)
    results = []
    with _quiet(), tempfile.TemporaryDirectory(prefix="pml-store-") as folder:
        place = Path(folder)
        say(0, 5, "killing writers")
        results.append({"name": "kills", **killed(place / "kills", kills)})
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
            found = compression(loaded, place, scheme, tasks)
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


def _damages(folder: Path, count: int) -> dict[str, Any]:
    draw, wrong, noticed, mended = random.Random(2), 0, 0, 0
    store = Store.open(folder)
    for _ in range(count):
        made = segment(draw.randrange(KINDS))
        other = segment((int(made.key[1:]) + 1) % KINDS)
        for one in (made, other):
            if store.load(one.key, one.token_ids) is None:
                store.save(one, ORIGIN)
        path, neighbour = (next(store.files.glob(f"{one.key}-*")) for one in (made, other))
        _damage(path, neighbour, draw)
        before = store.stats().corrupt
        fresh = Store.open(folder)
        read = fresh.load(made.key, made.token_ids)
        wrong += read is not None and not torch.equal(read.keys, made.keys)
        noticed += read is None and fresh.stats().corrupt == before + 1
        fresh.save(made, ORIGIN)
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
    processes = context()
    Store.open(folder).close()
    workers = [processes.Process(target=work, args=(str(folder), n, seconds)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds + 60)
    store = Store.open(folder)
    found = {
        "seconds": seconds,
        "failed": sum(worker.exitcode != 0 for worker in workers),
        "clean": store.verify().clean and right(store),
        "corrupt": store.stats().corrupt,
    }
    store.close()
    return found


def _verify(folder: Path) -> dict[str, Any]:
    store = Store.open(folder)
    keys = torch.zeros(16, 8, 1024, 64)
    for number in range(8):
        keys[0, 0, 0, 0] = number
        store.save(Segment(f"v{number}", tuple(range(1024)), keys, keys.clone()), ORIGIN)
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
                store.record([Lookup(key, Tier.DISK, Outcome.HIT)])
                continue
            spent[policy] += costs[key]
            states = torch.zeros(2, 4, 2, len(ids), 32)
            store.save(Segment(key, tuple(ids), states, states.clone()), ORIGIN, seconds=costs[key] / 1000)
        store.close()
    return {"requests": requests, "cost_by_lru": spent["cost"] / spent["lru"]}


def compression(model: Model, place: Path, scheme: Scheme, tasks: Sequence[Task]) -> dict[str, Any]:
    """Size, and how whole answers differ from those of plain storing.

    The plain side answers; both sides then read its answer from their files.
    """
    plain = Store.open(place / "plain")
    packed = Store.open(place / f"{scheme}-packed")
    packed.settings.set_scheme(scheme)
    sides = [Engine(model, plain), Engine(model, packed)]
    tokens = total = worst = agree = same = 0.0
    loads, sizes = [], []
    for number, task in enumerate(tasks):
        settings = RunSettings(max_new_tokens=task.new_tokens)
        order = sides if number % 2 else sides[::-1]  # the sides take turns in going first
        answers = {id(side): _from_disk(side, task, settings) for side in order}
        one, other = (answers[id(side)] for side in sides)
        readings = [_read_from_disk(side, task, one, settings) for side in sides]
        apart = readings[1].divergence(readings[0])
        tokens += len(apart)
        total += float(apart.sum())
        worst = max(worst, float(apart.max()))
        agree += float(readings[1].agreement(readings[0]).sum())
        same += one.token_ids == other.token_ids
        loads.append(other.ttft_ms / one.ttft_ms)
        sizes.append(packed.stats().bytes / plain.stats().bytes)
        for side in sides:
            side.memory_tier.clear()
            side.store.clear()
    for side in sides:
        side.close()
    return {
        "questions": len(tasks),
        "bytes_by_plain": statistics.median(sizes),
        "bytes_by_bf16": statistics.median(sizes) * model.torch_dtype.itemsize / 2,
        "answer_tokens": int(tokens),
        "kl_answer": total / tokens,
        "kl_worst": worst,
        "answer_agreement": agree / tokens,
        "same_answer": same / len(tasks),
        "ttft_from_disk_by_plain": statistics.median(loads),
    }


def longest_questions(model: Model, count: int) -> list[Task]:
    """The longest document questions that the model can read.

    Raises:
        PromptCacheError: it reads none.
    """
    tasks = [task for task in read_tasks(own_questions()) if task.documents == DOCUMENTS]
    tasks.sort(key=_characters, reverse=True)
    with tempfile.TemporaryDirectory(prefix="pml-store-") as folder:
        engine = Engine(model, Store.open(Path(folder)))
        settings = RunSettings(max_new_tokens=tasks[0].new_tokens)
        readable = fits(engine, tasks[-1], settings)
        fitting = (task for task in tasks if fits(engine, task, settings))
        found = list(islice(fitting, count)) if readable else []
        engine.close()
    if not found:
        raise PromptCacheError(
            f"none of the {len(tasks)} questions to {DOCUMENTS} documents fits the {model.context_length} "
            f"tokens that {model.name!r} reads; name a model that reads more."
        )
    return found


def _characters(task: Task) -> int:
    """How much text the modules of a task hold."""
    children = [child for module in task.schema.modules() for child in module.children]
    return sum(len(child.text) for child in children if isinstance(child, Text))


def _from_disk(engine: Engine, task: Task, settings: RunSettings) -> Answer:
    """The answer whose segments are read from files, computed and checked before."""
    prompt = task.on(engine)
    for _ in range(3):
        engine.memory_tier.clear()
        answer = prompt.answer(settings)
    return answer


def _read_from_disk(engine: Engine, task: Task, answer: Answer, settings: RunSettings) -> Reading:
    engine.memory_tier.clear()
    return task.on(engine).reading(answer.token_ids, settings, "cached")
