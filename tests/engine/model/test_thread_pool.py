"""A thread that stops computing releases its pool: too many threads slow all others down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_architecture import ROOT

PRODUCT = """
import json, os, sys, threading, time
import torch
from engine.model import thread_pool

told = {}

def count():
    # A thread that ends is gone a moment later; the least of several looks is what stays.
    found = []
    for _ in range(20):
        found.append(len(os.listdir("/proc/self/task")) - threading.active_count())
        time.sleep(0.005)
    return min(found)

def kept(name, work):
    thread_pool.release_thread_pool()
    before = count()
    work()
    told[name] = count() - before

product = torch.randn(512, 512)
kept("warm", lambda: product @ product)
kept("a product", lambda: product @ product)
thread_pool.release_thread_pool()
kept("a released product", lambda: (product @ product, thread_pool.release_thread_pool()))
"""
ANSWERS = """
from pathlib import Path
from engine.engine import Engine
from engine.model.loading import load
from engine.store import Store

model = load("demo")
kept("loading", lambda: load("demo"))
engine = Engine(model, Store.open(Path(sys.argv[1])))
schema = engine.schema('<schema name="s"><module name="m">' + "Some text. " * 200 + "</module></schema>")
prompt = schema.prompt('<prompt schema="s"><m/>And more?</prompt>')
settings = {"max_new_tokens": 8, "speculate": "off"}
kept("an answer", lambda: prompt.answer(**settings))
halves = [prompt.stream(mode="uncached", max_new_tokens=40, speculate="off")]
kept("half an answer", lambda: next(halves[0]))
child = os.fork()
if child == 0:  # it has a pool without threads, which would be waited for
    thread_pool.release_thread_pool()
    os._exit(0)
for _ in range(200):
    ended, _ = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    time.sleep(0.05)
else:
    os.kill(child, 9)
told["a child goes on"] = bool(ended)
kept("the other half", lambda: list(halves[0]))

after = threading.Event()

def elsewhere(work):
    # The thread goes on to live, as those of a server do.
    done = threading.Event()
    def run():
        work()
        done.set()
        after.wait()
    threading.Thread(target=run, daemon=True).start()
    done.wait()

kept("an answer in a thread that lives on", lambda: elsewhere(lambda: prompt.answer(**settings)))

idle = []
def together():
    product @ product
    for number, _ in engine.answer_all([prompt] * 3, **settings):
        pass
    idle.append(any(one.name == "answers" for one in threading.enumerate()))
kept("answers together", together)
told["waits for more"] = idle

def turns():
    # Both go on at once, so each waits in line while the other computes.
    both = [
        threading.Thread(target=lambda: prompt.answer(max_new_tokens=40, speculate="off"), daemon=True)
        for _ in range(2)
    ]
    for one in both:
        one.start()
    most = []
    while any(one.is_alive() for one in both):
        most.append(len(os.listdir("/proc/self/task")) - threading.active_count())
    told["most at once"] = sorted(most)[len(most) * 9 // 10] - base
base = count()
kept("two answers at once", turns)
"""
END = """
print(json.dumps(told), flush=True)
os._exit(0)
"""


PATIENT = {"OMP_WAIT_POLICY": "passive"}
"""How threads wait for more does not matter here; by themselves they take a processor each while they do."""


def run(program: str, folder: Path) -> dict[str, Any]:
    """What the program says of itself, with two threads in each pool."""
    done = subprocess.run(
        [sys.executable, "-c", program + END, str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"} | PATIENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="threads are counted as Linux shows them"
)


def test_a_released_pool_has_no_threads(tmp_path: Path) -> None:
    told = run(PRODUCT, tmp_path)
    if told["a product"] != 1:
        pytest.skip("torch computes with another library of threads")
    assert told["a released product"] == 0


@pytest.mark.long
def test_threads_are_released_when_nothing_is_computed(tmp_path: Path) -> None:
    told = run(PRODUCT + ANSWERS, tmp_path)
    if told["a product"] != 1:
        pytest.skip("torch computes with another library of threads")
    assert told["loading"] == told["an answer"] == told["an answer in a thread that lives on"] == 0
    assert told["half an answer"] == 1, "it goes on soon"
    assert told["the other half"] == 0
    assert told["a child goes on"]
    assert told["waits for more"] == [True]
    assert told["answers together"] == told["two answers at once"] == 0
    assert told["most at once"] <= 1, "a thread that waits for its turn has none"
