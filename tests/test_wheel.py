"""The wheel: it holds what the studio needs and nothing else, and works far from this tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "app", "assets", "sample_schemas")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
USE = """
import json, re, sys, urllib.request
from pathlib import Path
import app, assets, engine, sample_schemas
from app.studio import launch
from app.studio.workspace.help import Help
from app.studio.documents.requests import Nothing
from engine import Engine
folder = Path(sys.argv[1])
(folder / "documents").mkdir()
with Engine.open("demo", cache_dir=folder / "cache") as opened:
    schema = opened.schema('<schema name="s"><module name="m">Some text.</module></schema>')
    answer = schema.prompt('<prompt schema="s"><m/>And more?</prompt>').answer(max_new_tokens=2)
studio = launch(
    port=0, open_browser=False, block=False,
    cache_dir=folder / "cache", data_dir=folder / "data", schemas_dir=folder / "documents",
)
def fetched(path):
    with urllib.request.urlopen(studio.url + path, timeout=60) as answer:
        return answer.read()
page = fetched("/").decode()
linked = sorted(set(re.findall(r'/studio-assets-[^"\\\\\\\\]+', page)))
sizes = {path.rpartition("/")[2]: len(fetched(path)) for path in linked}
helped = len(Help().list_help(Nothing())["documents"])
places = [str(package.__file__) for package in (app, assets, engine, sample_schemas)]
studio.close()
print(json.dumps({"tokens": len(answer.token_ids), "helped": helped, "page": sizes, "places": places}))
"""


def carried() -> set[str]:
    """The files of this tree that the wheel carries."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not path.is_relative_to(ROOT / "app" / "editor")
        and (path.suffix == ".py" or package in ("assets", "sample_schemas") or path.name == "py.typed")
        and not path.name.endswith((".d.ts", "screenshot.png"))
    } | {
        *(f"share/prompt-cache-studio/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in this tree."""
    tree = tmp_path_factory.mktemp("tree")
    for name in (*PACKAGES, "benchmarks", "docs", "tests", "training"):
        left_out = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / name, tree / name, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(tree / "dist")],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = (tree / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel in it, which takes what it needs from this one."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=os.name != "nt")
    found = place / ("Scripts" if os.name == "nt" else "bin")
    python = str(found / "python")
    quiet = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *quiet, str(wheel)], check=True
    )
    (inner,) = [path for path in place.rglob("site-packages") if not path.is_symlink()]
    needed = [path for path in sys.path if Path(path).name == "site-packages"]
    (inner / "needed.pth").write_text("\n".join(needed) + "\n", encoding="utf-8")  # no .pth of theirs is read
    return found


def said(command: list[str], folder: Path) -> str:
    """What a command prints in a folder of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PML_CACHE_DIR": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_holds_the_page_the_samples_and_the_model_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {
            re.sub(r"^[^/]+\.data/data/", "", name)
            for name in archive.namelist()
            if ".dist-info/" not in name
        }
    assert names == carried()
    assert {"assets/demo_model/model.safetensors", "assets/studio/studio.js"} <= names
    assert "sample_schemas/travel.prompt.1.pml" in names


@pytest.mark.long
def test_the_command_runs_a_packaged_sample_from_another_folder(commands: Path, tmp_path: Path) -> None:
    pml, python = str(commands / "pml"), str(commands / "python")
    assert said([pml, "--version"], tmp_path).split()[-1].count(".") == 2
    where = "import sample_schemas; print(sample_schemas.__path__[0])"
    samples = Path(said([python, "-c", where], tmp_path).strip())
    assert not samples.is_relative_to(ROOT)
    prompt, schema = str(samples / "travel.prompt.1.pml"), str(samples / "travel.pml")
    ran = [pml, "run", prompt, "--schema", schema, "--mode", "cached", "--max-new-tokens", "2", "--json"]
    assert json.loads(said(ran, tmp_path))


@pytest.mark.long
def test_engine_and_page_come_from_the_wheel(commands: Path, tmp_path: Path) -> None:
    found = json.loads(said([str(commands / "python"), "-c", USE, str(tmp_path)], tmp_path).splitlines()[-1])
    assert found["tokens"] == 2
    assert found["helped"] == len([*(ROOT / "docs").glob("*.md")])
    assert {"studio.js", "studio.css", "icon.svg"} <= {*found["page"]}
    assert all(found["page"].values())
    assert not any(Path(place).is_relative_to(ROOT) for place in found["places"])
