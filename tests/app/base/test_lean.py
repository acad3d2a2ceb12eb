"""What a process loads, counted in packages: what no run needs must not come back unseen."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.base.fast_imports import SPINS

TORCH = Path(str(getattr(importlib.util.find_spec("torch"), "origin", ""))).parent
ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "sample_schemas"
PROMPT, SCHEMA = str(SAMPLES / "travel.prompt.1.pml"), str(SAMPLES / "travel.pml")
UNUSED = {
    *("sympy", "mpmath", "pandas", "scipy", "sklearn", "matplotlib", "gradio", "plotly", "torch._inductor"),
    *("torch._dynamo.convert_frame", "torch.distributed.tensor", "torch.distributed.fsdp", "torch.onnx"),
    *("torch.distributed.checkpoint", "torch.fx.experimental.symbolic_shapes", "triton", "accelerate"),
}


def in_new_process(code: str, *words: str) -> dict[str, Any]:
    """What a program prints as JSON on its last line."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


LOADED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps({"loaded": sorted(sys.modules)}), flush=True))
from app.cli import main
main(sys.argv[1:])
"""


@pytest.mark.long
def test_a_run_loads_what_one_model_needs(tmp_path: Path) -> None:
    words = ("run", PROMPT, "--schema", SCHEMA, "--server", "never", "--cache-dir", str(tmp_path))
    loaded = set(in_new_process(LOADED, *words, "--max-new-tokens", "2")["loaded"])
    assert "transformers.models.llama.modeling_llama" in loaded
    assert sorted(UNUSED & loaded) == []
    assert len(loaded) < 2100


def test_a_check_loads_the_language_alone() -> None:
    loaded = set(in_new_process(LOADED, "check", SCHEMA)["loaded"])
    heavy = {"torch", "transformers", "numpy", "safetensors", "gradio", "pydantic", "tokenizers", "jinja2"}
    others = {"app.cli.commands.run", "app.cli.commands.cache", "app.remote", "engine.inference.run_settings"}
    assert sorted((UNUSED | heavy | others) & loaded) == []
    assert len(loaded) < 300


PAGE = """
import inspect, json, sys
from app.base.fast_imports import without_stubs
opened = []
def hear(event, about):
    if event == "open" and str(about[0]).endswith(".pyi"):
        opened.append(about[0])
sys.addaudithook(hear)
before = inspect.getfile
if sys.argv[1] == "lean":
    with without_stubs():
        from app.studio import layout
    from app.studio.model import remote_runs, engine_loader
else:
    import gradio
same = inspect.getfile is before
print(json.dumps({"loaded": sorted(sys.modules), "opened": len(opened), "same": same}))
"""


def test_the_page_is_there_before_torch_and_compares_no_stubs() -> None:
    found = in_new_process(PAGE, "lean")
    loaded = set(found["loaded"])
    assert "gradio" in loaded
    heavy = {"torch", "transformers", "safetensors", "scipy", "sklearn", "matplotlib"}
    assert sorted(heavy & loaded) == []
    assert (found["opened"], found["same"]) == (0, True)


@pytest.mark.long
def test_gradio_alone_compares_stubs() -> None:
    assert in_new_process(PAGE, "whole")["opened"] > 0


WAITS = """
import ctypes, json, os, sys
from pathlib import Path
from app.cli import main
try:
    main(["check", sys.argv[1]])
except SystemExit:
    pass
left = os.environ.get("GOMP_SPINCOUNT", "")
if sys.argv[2] == "torch":
    import torch
else:
    ctypes.CDLL(sys.argv[2])
maps = Path("/proc/self/maps").read_text().splitlines()
print(json.dumps({"left": left, "libraries": len({one.split()[-1] for one in maps if "libgomp" in one})}))
"""
GOMP = sorted(TORCH.glob("lib/libgomp*"))


@pytest.mark.skipif(not GOMP, reason="torch has another library of threads")
@pytest.mark.parametrize("torch", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
)
def test_threads_that_wait_leave_the_processor_soon(given: dict[str, str], spins: str, torch: bool) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    env |= {"OMP_DISPLAY_ENV": "verbose", **given}
    words = [sys.executable, "-c", WAITS, SCHEMA, "torch" if torch else str(GOMP[0])]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env, cwd=ROOT)
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr) == [spins]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"left": given.get("GOMP_SPINCOUNT", ""), "libraries": 1}


LATER = """
import json, sys, torch
from app.base.fast_imports import LatePackage, starting
with starting():
    from engine.engine import Engine
before = [name for name in ("transformers", "transformers.models", "torch._dynamo")
          if isinstance(sys.modules[name], LatePackage)]
from torch.nn.attention import varlen
sequences = callable(varlen.varlen_attn) and isinstance(sys.modules["torch._dynamo"], LatePackage)
import transformers, torch._dynamo, transformers.models.llama
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
import pandas
print(json.dumps({
    "before": before,
    "after": [name for name in before if isinstance(sys.modules[name], LatePackage)],
    "one class": AutoModelForCausalLM._model_mapping[LlamaConfig] is LlamaForCausalLM,
    "compiler": torch._dynamo.config.cache_size_limit > 0,
    "version": transformers.__version__,
    "pandas": hasattr(pandas, "DataFrame"),
    "sequences": sequences,
}))
"""


@pytest.mark.long
def test_what_was_left_out_comes_when_it_is_asked_for() -> None:
    found = in_new_process(LATER)
    assert found["before"] == ["transformers", "transformers.models", "torch._dynamo"]
    assert "transformers" not in found["after"]
    assert found["one class"]
    assert found["compiler"]
    assert found["pandas"]
    assert found["sequences"], "attention over sequences loads no compiler"
    assert found["version"].startswith("5.")


BROKEN = """
import json, sys, torch
from app.base import fast_imports
fast_imports.NEEDED = (*fast_imports.NEEDED, "no_such_module")
with fast_imports.starting():
    from engine.engine import Engine
import transformers
print(json.dumps({
    "late": [name for name, module in sys.modules.items() if isinstance(module, fast_imports.LatePackage)],
    "whole": hasattr(transformers, "AutoModelForCausalLM"),
    "distributed": transformers.utils.is_torch_distributed_available(),
    "has": torch.distributed.is_available(),
}))
"""


@pytest.mark.long
def test_libraries_that_want_it_otherwise_are_imported_whole() -> None:
    found = in_new_process(BROKEN)
    assert found["late"] == []
    assert found["whole"]
    assert found["distributed"] == found["has"]


SAME = """
import json, sys
from contextlib import nullcontext
from pathlib import Path
from app.base.fast_imports import starting
with starting() if sys.argv[1] == "lean" else nullcontext():
    from engine.engine import Engine
    engine = Engine.open("demo", cache_dir=Path(sys.argv[2]))
prompt = engine.schema(Path(sys.argv[3])).prompt(Path(sys.argv[4]))
answers = [prompt.answer(mode=mode, max_new_tokens=6) for mode in ("cached", "uncached")]
print(json.dumps({
    "tokens": [answer.token_ids for answer in answers],
    "logits": [answer.first_logits.double().sum().item() for answer in answers],
    "lean": "sympy" not in sys.modules,
}))
"""


@pytest.mark.long
def test_a_lean_process_computes_the_same(tmp_path: Path) -> None:
    lean, whole = (
        in_new_process(SAME, how, str(tmp_path / how), SCHEMA, PROMPT) for how in ("lean", "whole")
    )
    assert lean["lean"]
    assert not whole["lean"]
    assert lean["tokens"] == whole["tokens"]
    assert lean["logits"] == whole["logits"]
