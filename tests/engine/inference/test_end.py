"""A program may end while an engine computes: it ends as it meant to, and does not abort."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drawing import EVERY
from tests.test_architecture import ROOT

ENDS = """
import os, random, sys, threading, time
from pathlib import Path
from engine.store import Store
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.model.loading import load

engine = Engine(load("demo"), Store.open(Path(sys.argv[1])))
schema = engine.schema('<schema name="s"><module name="m">' + "Some text. " * 50 + "</module></schema>")
prompt = schema.prompt('<prompt schema="s"><m/>And more?</prompt>')
draw, ended = random.Random(0), []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        began = threading.Event()

        def answers():
            while True:
                for _ in prompt.stream(RunSettings(max_new_tokens=20), mode="uncached"):
                    began.set()

        for _ in range(1 + number % 2):
            threading.Thread(target=answers, daemon=True).start()
        if number % 3:
            began.wait()
        time.sleep(draw.random() * 0.3)
        if number % 4 == 0:
            left = prompt.stream(RunSettings(max_new_tokens=20), mode="uncached")
            next(left)
        sys.exit(3)
    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ended, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="many programs are started as copies of one")
def test_a_program_ends_while_answers_are_computed(tmp_path: Path) -> None:
    children = 12 if EVERY else 2
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path), str(children)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (str([3] * children), "")
