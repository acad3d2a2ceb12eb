"""Trials of the store, each with its figures.

- `kills`: a writer is killed, mostly in the middle of a write. Then index and files must agree.
- `damages`: stored files are changed at random. Each change must be detected.
- `processes`: four processes write, read and prune one store.
- `verify`: seconds per gigabyte, and bytes in files ÷ bytes of keys and values.
- `trace`: computing under the policy `cost` ÷ `lru`, on a random trace.
- `compression`: saved bytes, and changes of whole answers.
"""

from __future__ import annotations

import logging
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from app.cli.base.options import ModelOptions
from app.studio.sweeps.drawn import sources
from benchmarks.base.case import Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from benchmarks.quality.tasks import Task, fits, own_questions, read_tasks
from benchmarks.speed.kills import KINDS, ORIGIN, context, kills, right, segment, work
from engine.base.errors import PromptCacheError
from engine.base.events import Answer
from engine.base.segment import Segment
from engine.base.tiers import Outcome, Tier
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.model.model import Model
from engine.pml import Text
from engine.store import Lookup, Store
from engine.store.blobs.codec import SCHEMES, Scheme
from engine.store.index.eviction import POLICIES

DOCUMENTS = 8  # in each prompt of the compression; 60 questions have this many
Values = dict[str, Any]


@case
def trial(group: Group, say: Say, run: Callable[[Path], Values]) -> Sides:
    """A trial in a folder of its own."""
    say(group.name)
    logger = logging.getLogger("engine.store")
    before = logger.level
    logger.setLevel(logging.ERROR)  # thousands of warnings are expected
    try:
        with tempfile.TemporaryDirectory(prefix="pml-bench-") as folder:
            group.values |= run(Path(folder) / "store")
    finally:
        logger.setLevel(before)
    yield []


def damaged(count: int, folder: Path) -> Values:
    """Changes, shortens, swaps or removes files."""
    draw, wrong, detected, repaired = random.Random(2), 0, 0, 0
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
        detected += read is None and fresh.stats().corrupt == before + 1
        fresh.save(made, ORIGIN)
        repaired += fresh.load(made.key, made.token_ids) is not None
        fresh.close()
    store.close()
    return {"files damaged": count, "wrong answers": wrong, "detected": detected, "repaired": repaired}


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
    path.chmod(0o600)  # stored files are read-only
    path.write_bytes(bytes(data))


def shared(seconds: int, folder: Path) -> Values:
    """Lets four processes use one store."""
    processes = context()
    Store.open(folder).close()
    workers = [processes.Process(target=work, args=(str(folder), n, seconds)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds + 60)
    store = Store.open(folder)
    clean = store.verify().clean and right(store)
    corrupt = store.stats().corrupt
    store.close()
    failed = sum(worker.exitcode != 0 for worker in workers)
    agree = {"index and files agree": "yes" if clean else "no"}
    return {"seconds": seconds, "errors": failed, "damaged segments": corrupt, **agree}


def verified(folder: Path) -> Values:
    """Reads and checks all files of a store."""
    store = Store.open(folder)
    keys = torch.zeros(16, 8, 1024, 64)
    for number in range(8):
        keys[0, 0, 0, 0] = number
        store.save(Segment(f"v{number}", tuple(range(1024)), keys, keys.clone()), ORIGIN)
    found = [store.verify() for _ in range(3)]
    stored = store.stats().bytes
    store.close()
    seconds = statistics.median(one.seconds / (one.bytes / 1e9) for one in found)
    return {"seconds per GB": seconds, "bytes ÷ keys and values": stored / (8 * 2 * keys.nbytes)}


def traced(folder: Path, requests: int = 1500) -> Values:
    """Replays one trace under each policy: two models, popular modules, and changing tastes."""
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
    spent = dict.fromkeys(POLICIES, 0.0)
    for policy in POLICIES:
        store = Store.open(folder / policy)
        store.set_budget(400_000, policy)
        for key in asked:
            ids = range(sizes[key])
            if store.load(key, ids) is not None:
                store.record([Lookup(key, Tier.DISK, Outcome.HIT)])
                continue
            spent[policy] += costs[key]
            states = torch.zeros(2, 4, 2, len(ids), 32)
            store.save(Segment(key, tuple(ids), states, states.clone()), ORIGIN, seconds=costs[key] / 1000)
        store.close()
    return {"requests": requests, "computing, cost ÷ lru": spent["cost"] / spent["lru"]}


def compressed(model: Model, scheme: Scheme, tasks: Sequence[Task], folder: Path) -> Values:
    """Compares size and whole answers with those of plain storing. Both sides read the plain answer."""
    plain, packed = Store.open(folder / "plain"), Store.open(folder / "packed")
    packed.settings.set_scheme(scheme)
    sides = [Engine(model, plain), Engine(model, packed)]
    tokens = total = worst = agree = same = 0.0
    loads, sizes = [], []
    for number, task in enumerate(tasks):
        settings = RunSettings(max_new_tokens=task.new_tokens)
        order = sides if number % 2 else sides[::-1]
        answers = {id(side): _from_disk(side, task, settings) for side in order}
        one, other = (answers[id(side)] for side in sides)
        for side in sides:
            side.memory_tier.clear()
        full, found = (task.on(side).reading(one.token_ids, settings, "cached") for side in sides)
        apart = found.divergence(full)
        tokens += len(apart)
        total += float(apart.sum())
        worst = max(worst, float(apart.max()))
        agree += float(found.agreement(full).sum())
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
        "answer tokens": int(tokens),
        "bytes ÷ bf16": statistics.median(sizes) * model.torch_dtype.itemsize / 2,
        "KL": total / tokens,
        "worst KL": worst,
        "same token": agree / tokens,
        "same answer": same / len(tasks),
        "TTFT from disk ÷ plain": statistics.median(loads),
    }


def _from_disk(engine: Engine, task: Task, settings: RunSettings) -> Answer:
    """An answer with segments from files, which were computed and checked before."""
    prompt = task.on(engine)
    for _ in range(3):
        engine.memory_tier.clear()
        answer = prompt.answer(settings)
    return answer


def longest_questions(model: Model, count: int) -> list[Task]:
    """The longest document questions that fit the model."""
    tasks = [task for task in read_tasks(own_questions()) if task.documents == DOCUMENTS]
    tasks.sort(key=_characters, reverse=True)
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        Engine(model, Store.open(Path(folder))) as engine,
    ):
        settings = RunSettings(max_new_tokens=tasks[0].new_tokens)
        fitting = (task for task in tasks if fits(engine, task, settings))
        found = list(islice(fitting, count)) if fits(engine, tasks[-1], settings) else []
    if not found:
        raise PromptCacheError(
            f"none of the {len(tasks)} questions to {DOCUMENTS} documents fits the {model.context_length} "
            f"tokens that {model.name!r} reads; name a model that reads more."
        )
    return found


def _characters(task: Task) -> int:
    children = [child for module in task.schema.modules() for child in module.children]
    return sum(len(child.text) for child in children if isinstance(child, Text))


def stored(size: Size, folder: Path) -> Values:
    """Bytes in files ÷ bytes of keys and values."""
    model = size.loaded(narrate)
    schema, _ = sources(model, size.cached, size.modules, size.new, size.seed)
    with Engine(model, Store.open(folder)) as engine:
        engine.schema(schema).encode()
        tokens = sum(int(row["tokens"]) for row in engine.store.segments())
        found = engine.store.stats().bytes / tokens
    return {"bytes per token in files": found, "stored by theory": found / model.bytes_per_token}


@command(kills=200, damages=1000, seconds=60, questions=40)
def store(options: ModelOptions, **counts: int) -> Report:
    """Trials of the store: killed writers, damaged files, four processes, policies and compression."""
    model = size_of(options, 1, 1, 1).loaded(narrate)
    tasks = longest_questions(model, counts["questions"])  # refuses a model before minutes of trials
    cases = [
        trial("kills", partial(kills, count=counts["kills"])),
        trial("damages", partial(damaged, counts["damages"])),
        trial("processes", partial(shared, counts["seconds"])),
        trial("verify", verified),
        trial("trace", traced),
        *(trial(f"compression {scheme}", partial(compressed, model, scheme, tasks)) for scheme in SCHEMES),
    ]
    return report_of(cases, pace_of(1, 0), narrate)
