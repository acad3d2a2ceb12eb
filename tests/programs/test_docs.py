"""The page on programs: its examples give what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.pml import Module, Param, Schema, Text, parse_schema
from engine.programs import ProgramError, compile_source
from tests.pml.documents import schema_tree

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.S)
XML = re.findall(r"```xml\n(.*?)```", PAGE, re.S)


def outline(schema: Schema) -> list[object]:
    """Modules, parameters, and texts without the space at their ends and between them."""
    found: list[object] = []
    for module in schema.modules():
        union = schema.union_of(module.path)
        found.append((module.path, union and [member.name for member in union.members]))
        for child in module.children:
            if isinstance(child, Text):
                found += [] if child.seam else [child.text.strip()]
            elif isinstance(child, Param):
                found.append((child.name, child.length, child.default))
            else:
                assert isinstance(child, Module)
    return found


def test_the_example_is_the_schema_beside_it() -> None:
    shown = schema_tree(XML[0])
    assert outline(compile_source(PYTHON[0]).schema()) == outline(shown)
    assert [getattr(child, "role", None) for child in shown.children] == ["system", "user"]


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "travel.py").write_text(PYTHON[0], encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, tmp_path / "travel.py"]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert parse_schema(done.stdout).tree == compile_source(PYTHON[0]).schema()


@pytest.mark.parametrize("source", [one for one in PYTHON if "# line" not in one])
def test_every_example_runs(source: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(source, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, tmp_path / "example.py"]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if "@schema" in source:
        assert compile_source(source).schema() is not None


def test_the_fault_is_at_the_line_it_names() -> None:
    source = next(one for one in PYTHON if "# line" in one)
    named = re.search(r"# line (\d+): (.*)", source)
    assert named is not None
    with pytest.raises(ProgramError, match=named[2]) as caught:
        compile_source(source).schema()
    assert caught.value.line == int(named[1])
