"""What a disk without one free block costs: no answer, whenever it fills up. On a real one, in memory."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.tasks import own_questions, read_tasks
from engine.base.events import Answer
from engine.engine import Engine
from engine.model.model import Model
from engine.store import Store

_SIZE = "64m"
_BLOCK = bytes(1 << 12)


def measure(model: Model, place: Path) -> dict[str, Any]:
    """Fills a disk while a prompt is encoded, before a store is opened, and before it is pruned.

    Args:
        model: the model that answers.
        place: where the disk is mounted; it does not exist yet.

    Returns:
        `tried` (0 where no disk can be mounted, which needs root), `answers` of 3 that came and were the
        right ones, `opened_read_only`, `freed` (1 where pruning gave space back) and `clean` (1 where index
        and files agree in the end).
    """
    with _mounted(place) as mounted:
        if not mounted:
            return {"tried": 0}
        task = min(read_tasks(own_questions()), key=lambda task: task.documents or 0)

        def answer(engine: Engine) -> Answer:
            return task.on(engine).answer(max_new_tokens=8)

        want = answer(Engine(model, Store.open(place.parent / "elsewhere"))).token_ids
        engine = Engine(model, Store.open(place / "cache"))
        ballast = _fill(place)
        answers = [answer(engine)]
        ballast.unlink()
        engine.memory_tier.clear()
        answers.append(answer(engine))
        engine.close()
        _fill(place)
        engine = Engine(model, Store.open(place / "cache"))
        read_only = bool(engine.store.read_only)
        answers.append(answer(engine))
        engine.memory_tier.clear()  # what is mapped takes its room until it is let go
        engine.store.prune(max_bytes=0)
        freed = shutil.disk_usage(place).free > 0
        clean = engine.store.verify().clean
        engine.close()
    return {
        "tried": 3,
        "answers": sum(one.token_ids == want for one in answers),
        "opened_read_only": int(read_only),
        "freed": int(freed),
        "clean": int(clean),
    }


@contextlib.contextmanager
def _mounted(place: Path) -> Iterator[bool]:
    place.mkdir(parents=True)
    try:
        words = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(place)]
        done = subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(place)], check=False)


def _fill(place: Path) -> Path:
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(_BLOCK):
            pass
    return ballast
