"""Rules that hold for the whole tree: who may know whom, how long a file may be, what no text may carry."""

from __future__ import annotations

import ast
import graphlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GENERATED = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "node_modules"}
TEXTS = {".py", ".md", ".toml", ".txt", ".json", ".pml", ".js", ".mjs", ".css", ".html", ".svg", ".yml", ""}
CODE = ("engine", "app", "benchmarks", "training", "tests", "assets")

LARGEST_FOLDER = 15  # files, the package's own not counted

MACHINE_PATH = re.compile(r"(?<![\w.}/])/(?:root|work|home/[a-z]\w*|Users/[A-Za-z]\w*)/")
HOST = re.compile(r"https?://([^/\s\"'<>)]+)")


def sources(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if not GENERATED & set(path.relative_to(ROOT).parts)
    )


@cache
def texts() -> tuple[Path, ...]:
    found: list[Path] = []
    for folder, below, names in os.walk(ROOT):
        below[:] = [one for one in below if one not in GENERATED and not one.endswith(".egg-info")]
        kept = (name for name in names if name not in GENERATED and Path(name).suffix in TEXTS)
        found.extend(Path(folder, name) for name in kept)
    return tuple(path for path in sorted(found) if path.is_file() and b"\0" not in path.read_bytes()[:4096])


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imported(path: Path) -> set[str]:
    """Returns the top-level packages that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").split(".")[0])
    return names


@cache
def arrows(*folders: str) -> dict[str, set[str]]:
    """Returns which files each file of some folders imports, for types only or inside functions included."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sources(*folders)
    }
    found: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in nodes(path):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names} & set(files)
            elif isinstance(node, ast.ImportFrom) and node.module in files:
                whole = (f"{node.module}.{alias.name}" for alias in node.names)
                found[name] |= {inner if inner in files else node.module for inner in whole}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name} imports by a relative name"
    return found


def folder(name: str) -> str:
    """Returns the folder of a file, which for a package's own file is the package."""
    if ROOT.joinpath(*name.split("."), "__init__.py").exists():
        return name
    return name.rpartition(".")[0]


def in_new_process(code: str) -> dict[str, list[str]]:
    """Runs `code` in a fresh interpreter that refuses every connection; returns the JSON it prints."""
    guard = (
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo'):\n"
        "        raise SystemExit(f'{event} {arguments}')\n"
        "sys.addaudithook(refuse)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", guard + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_commands_print_through_one_place() -> None:
    """Else text of documents, models and stores could reach a terminal with control characters in it."""
    for path in sources("app/cli"):
        if path.name != "output.py":
            found = re.findall(
                r"\bclick\.s?echo\(|(?<![\w.])print\(|std(?:out|err)\.write", path.read_text("utf-8")
            )
            assert not found, f"{path.name} prints by itself: {found}"


def test_the_engine_imports_neither_the_app_nor_the_web() -> None:
    found = {str(path.relative_to(ROOT)): imported(path) for path in sources("engine")}
    assert len(found) > 10
    forbidden = {
        "app",
        "benchmarks",
        "training",
        "gradio",
        "plotly",
        "click",
        "tqdm",
        "requests",
        "httpx",
        "urllib",
        "socket",
    }
    assert {path: names & forbidden for path, names in found.items() if names & forbidden} == {}


def test_no_folders_import_each_other_in_a_circle() -> None:
    """An import for types only counts too, because a reader needs to know it as well."""
    graph: dict[str, set[str]] = {}
    for name, known in arrows("engine", "app", "benchmarks", "training").items():
        graph.setdefault(folder(name), set()).update({folder(other) for other in known} - {folder(name)})
    graphlib.TopologicalSorter(graph).prepare()


def test_no_folder_has_many_files() -> None:
    files = [path for path in sources("engine", "app", "benchmarks") if path.name != "__init__.py"]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    assert {name: count for name, count in counts.items() if count > LARGEST_FOLDER} == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    graphlib.TopologicalSorter(arrows("engine", "app", "benchmarks", "training")).prepare()


def test_the_studio_and_the_server_do_not_import_the_command_line() -> None:
    found = arrows("app")
    assert {
        (name, other)
        for name, known in found.items()
        for other in known
        if other.startswith("app.cli") and not name.startswith(("app.cli", "app.__main__"))
    } == set()


def test_prompts_are_planned_without_tensors() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sources("engine/pml", "engine/programs", "engine/exchange", "engine/prompt")
    ]
    loaded = in_new_process(
        f"import importlib, json\nfor name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps({'top': sorted({name.split('.')[0] for name in sys.modules})}))"
    )["top"]
    assert "tokenizers" in loaded
    assert not {"torch", "transformers", "safetensors", "numpy", "sqlite_utils"} & set(loaded)


def test_the_language_knows_no_tensors() -> None:
    found = {str(path.relative_to(ROOT)): imported(path) for path in sources("engine/pml")}
    assert found
    forbidden = {"torch", "transformers", "tokenizers", "safetensors", "numpy", "sqlite_utils"}
    assert {path: names & forbidden for path, names in found.items() if names & forbidden} == {}


def test_nothing_asks_which_kv_cache_it_has() -> None:
    """One protocol stands before both; who makes them, or is handed one by transformers, names them."""
    caches = {"SegmentKVCache", "DenseKVCache"}
    found = set()
    for path in sources("engine", "app", "benchmarks"):
        if caches & {node.id for node in nodes(path) if isinstance(node, ast.Name)}:
            found.add(path.relative_to(ROOT).as_posix())
        for node in nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                named = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
                assert not named & {*caches, "KVCache"}, f"{path}:{node.lineno}"
    assert found == {"engine/model/hf_attention.py", "engine/model/network.py"}


def test_few_files_know_transformers() -> None:
    knowing = {str(path.relative_to(ROOT)) for path in sources("engine") if "transformers" in imported(path)}
    assert knowing == {
        "engine/inference/text_stream.py",
        *(
            f"engine/checkpoint/{name}.py"
            for name in ("configuration", "generation_config", "kv_sizes", "synthetic")
        ),
        *(f"engine/gguf/{name}.py" for name in ("configuration", "model", "tokenizer")),
        *(f"engine/model/{name}.py" for name in ("hf_attention", "loading")),
    }


@pytest.mark.long
def test_importing_the_whole_engine_loads_no_page_and_opens_no_connection() -> None:
    names = [
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for path in sources("engine")
    ]
    loaded = in_new_process(
        f"import importlib, json\nfor name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps({'top': sorted({name.split('.')[0] for name in sys.modules})}))"
    )["top"]
    assert "torch" in loaded
    assert not {"app", "gradio", "plotly", "fastapi"} & set(loaded)


@pytest.mark.parametrize(
    "statement",
    [
        *("import engine", "import engine.pml", "import engine.base.errors", "import app.cli"),
        *("import app.lsp.server", "import app.base.watcher"),
    ],
)
def test_what_the_command_line_starts_with_is_light(statement: str) -> None:
    loaded = in_new_process(f"import json\n{statement}\nprint(json.dumps({{'names': sorted(sys.modules)}}))")[
        "names"
    ]
    assert not {"torch", "transformers", "gradio", "safetensors", "plotly", "numpy"} & set(loaded)


def test_no_file_is_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources(*CODE)
    }
    assert {path: length for path, length in lengths.items() if length >= 500} == {}


def test_no_module_is_a_catch_all() -> None:
    catch_alls = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in sources(*CODE) if catch_alls & {path.stem, path.parent.name}] == []


def test_texts_name_no_place_on_one_machine() -> None:
    read = texts()
    assert ROOT / "README.md" in read
    assert ROOT / "pyproject.toml" in read
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in read
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if path != Path(__file__) and MACHINE_PATH.search(line)
    ]
    assert found == []


def test_pinned_versions_name_no_registry() -> None:
    pins = [
        path
        for path in texts()
        if path.name in {"constraints.txt", "pyproject.toml", "package-lock.json", "Makefile"}
    ]
    assert ROOT / "constraints.txt" in pins
    hosts = {
        f"{path.relative_to(ROOT)}: {host}"
        for path in pins
        for line in path.read_text(encoding="utf-8").splitlines()
        if '"url"' not in line and '"funding"' not in line
        for host in HOST.findall(line)
    }
    assert {entry for entry in hosts if not entry.endswith(("registry.npmjs.org", "127.0.0.1:7860"))} == set()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("see /work" + "/tree", True),
        ("'/home" + "/ann/x'", True),
        ("out/work/tree", False),
        ("https://example.org/home/ann/x", False),
    ],
)
def test_machine_paths_are_recognised(line: str, named: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is named


def underscored(path: Path) -> set[str]:
    """Names with one underscore that a file defines: functions, classes, attributes of self, constants."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            found.add(getattr(node, "id", "") or getattr(node, "attr", ""))
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_no_test_and_no_benchmark_uses_a_private_name_of_another_file() -> None:
    known = {"_attn_implementation"}  # a library's
    own = {path: underscored(path) for path in sources(*CODE)}
    private = set().union(*own.values())
    found = []
    for path in sources("tests", "benchmarks"):
        others = private - own[path]
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr in others - known:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}")
            elif isinstance(node, ast.ImportFrom) and others & {alias.name for alias in node.names}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
