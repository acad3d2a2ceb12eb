"""What the documents say is so: commands parse, examples are sound, links and file names lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from app.cli.command import pml
from engine.pml import bind, parse_prompt, parse_schema

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def command_lines() -> list[list[str]]:
    """Every `pml …` line of the documents, without its comment."""
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    lines = [line for text in texts for block in blocks(text, "sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("pml ")]


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_commands_of_the_documents_parse(words: list[str]) -> None:
    command: click.Command = pml
    rest = words[1:]
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    with command.make_context("pml", rest) as context:
        assert context.params
    for word in rest:
        if word.startswith("sample_schemas/"):
            assert (ROOT / word).is_file()


def test_the_documents_show_commands() -> None:
    assert len(command_lines()) >= 20


def test_the_example_of_the_readme_is_sound() -> None:
    schema_text, prompt_text = blocks(README, "xml")
    schema, prompt = parse_schema(schema_text), parse_prompt(prompt_text)
    assert schema.tree is not None
    assert prompt.tree is not None
    bound = bind(schema.tree, prompt.tree)
    assert [d.message for d in (*schema.diagnostics, *prompt.diagnostics, *bound.diagnostics)] == []
    assert bound.imports == ("trip-plan", "trip-plan/tokyo")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_the_architecture_names_files_that_exist() -> None:
    named = set(re.findall(r"`((?:engine|app|tests)/[\w/.]*)`", ARCHITECTURE))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_architecture_names_every_file_of_the_engine() -> None:
    files = {f"engine/{path.name}" for path in (ROOT / "engine").glob("*.py")}
    files -= {"engine/__init__.py"}
    assert [name for name in sorted(files) if f"`{name}`" not in ARCHITECTURE] == []


def test_the_readme_names_every_folder() -> None:
    tree = next(block for block in blocks(README, "text") if block.startswith("engine/"))
    for folder in ("engine", "app", "assets", "sample_schemas", "benchmarks", "training", "tests", "docs"):
        assert (ROOT / folder).is_dir()
        assert re.search(rf"^{folder}/ +\S", tree, re.MULTILINE), folder
