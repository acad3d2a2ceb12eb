"""What editors are set up with: the RNG schema agrees with the parser, and the command gives the files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import lxml.etree as ET
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli.commands.lsp import EDITOR_FILES
from engine.pml import document_kind, parse_prompt, parse_schema
from engine.pml.edit.writer import write_prompt, write_schema
from engine.pml.xml.names import ELEMENTS, RESERVED
from sample_schemas import samples
from tests.drawing import draws
from tests.pml.mistake_table import MISTAKES
from tests.pml.trees import prompts, schemas

ROOT = Path(__file__).resolve().parents[3]
STRUCTURE = ET.RelaxNG(ET.parse(str(EDITOR_FILES / "pml.rng")))
PACKAGE = json.loads((EDITOR_FILES / "vscode" / "package.json").read_text(encoding="utf-8"))
GRAMMAR = json.loads((EDITOR_FILES / "vscode" / "pml.tmLanguage.json").read_text(encoding="utf-8"))

OUTSIDE = ("E209", "E215")  # what is in a file that a document names, or in JSON and patterns


def documents() -> dict[str, str]:
    """Every document of the samples and of the docs that names no fault."""
    found = {}
    for sample in samples():
        for path in (sample.schema_path, *sample.prompts):
            found[path.name] = path.read_text(encoding="utf-8")
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]):
        for number, block in enumerate(re.findall(r"```xml\n(.*?)```", page.read_text("utf-8"), re.S)):
            if not re.match(r"\s*<!-- [EW]\d+ -->", block) and document_kind(block):
                found[f"{page.name}-{number}"] = block
    return found


def faults(source: str) -> set[str]:
    parse = parse_prompt if document_kind(source) == "prompt" else parse_schema
    return {one.code for one in parse(source).diagnostics if one.severity == "error"}


def valid(source: str) -> bool:
    return bool(STRUCTURE.validate(ET.fromstring(source.encode("utf-8"))))


DOCUMENTS = documents()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_we_show_is_valid(name: str) -> None:
    assert valid(DOCUMENTS[name]), STRUCTURE.error_log


def structural() -> list[tuple[str, str]]:
    found = []
    for mistake in MISTAKES:
        alone = mistake.reader in ("schema", "prompt") and mistake.says
        if mistake.code.startswith("E2") and mistake.code not in OUTSIDE and alone:
            source = mistake.source
            if re.search(r'<param name="\w+"/>', source):
                continue  # a name alone repeats a parameter, and structure cannot tell whether there is one
            try:
                ET.fromstring(source.encode("utf-8"))
            except ET.XMLSyntaxError:
                continue
            found.append((mistake.code, source))
    return found


@pytest.mark.parametrize(("code", "source"), structural())
def test_a_fault_of_structure_is_invalid(code: str, source: str) -> None:
    asked_for_schema = code == "E201" and document_kind(source) in ("schema", "prompt")
    assert valid(source) == asked_for_schema, source  # the wrong one of two documents is one of two documents


def test_each_kind_of_structural_fault_is_among_them() -> None:
    assert {code for code, _ in structural()} >= {
        *("E201", "E202", "E203", "E204", "E205", "E206", "E207", "E208", "E210", "E212", "E213", "E214")
    }


@settings(max_examples=draws(100))
@given(st.data())
def test_what_is_written_is_valid(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    assert valid(write_schema(schema)), STRUCTURE.error_log
    assert valid(write_prompt(data.draw(prompts(schema)))), STRUCTURE.error_log


KEPT = {
    "param": 'name="p" len="3"',
    "parameter": 'name="p" len="3"',
    "scaffold": 'modules="a"',
    "include": 'src="x"',
    "decide": 'type="predicate"',
    "answer-format": 'type="json"',
}
ATTRIBUTES = {"module": 'name="b"', "schema": 'name="c"', "arg": 'name="d"', **KEPT}
INNER = [*sorted(RESERVED), "thing"]


def element(tag: str, inside: str = "") -> str:
    return f"<{tag} {ATTRIBUTES.get(tag, '')}>{inside}</{tag}>"


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", ["module", "union", "user", "param", "scaffold", "thing"])
def test_an_element_in_the_wrong_place_of_a_schema_is_invalid(outer: str, inner: str) -> None:
    source = f'<schema name="s"><module name="a">x</module>{element(outer, element(inner))}</schema>'
    assert valid(source) == (not {"E205", "E206"} & faults(source)), (source, STRUCTURE.error_log)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", ["", "thing", "user", "arg"])
def test_an_element_in_the_wrong_place_of_a_prompt_is_invalid(outer: str, inner: str) -> None:
    inside = element(inner)
    if outer == "arg":
        inside = f"<thing>{element(outer, inside)}</thing>"
    elif outer:
        inside = element(outer, inside)
    source = f'<prompt schema="s">{inside}</prompt>'
    assert valid(source) == (not {"E206", "E213"} & faults(source)), (source, STRUCTURE.error_log)


def test_the_grammar_knows_every_element_of_the_language() -> None:
    rules = GRAMMAR["repository"]
    for rule in ("match", rules["end-tag"]), ("begin", rules["language-tag"]):
        key, given_rule = rule
        listed = re.search(r"\((schema\|[a-z|-]+)\)", given_rule[key])
        assert listed is not None
        assert set(listed[1].split("|")) == {*ELEMENTS, "parameter"}


def test_the_extension_names_files_that_are_there() -> None:
    contributed = PACKAGE["contributes"]
    named = [
        PACKAGE["main"],
        contributed["languages"][0]["configuration"],
        contributed["grammars"][0]["path"],
    ]
    assert [name for name in named if not (EDITOR_FILES / "vscode" / name).is_file()] == []
    assert contributed["grammars"][0]["scopeName"] == GRAMMAR["scopeName"]
    json.loads((EDITOR_FILES / "vscode" / "language-configuration.json").read_text(encoding="utf-8"))


def test_the_command_writes_the_files(tmp_path: Path, run_pml: Callable[..., SimpleNamespace]) -> None:
    result = run_pml("lsp", "--files", tmp_path / "editors")
    assert result.status == 0
    written = {
        path.relative_to(tmp_path / "editors").as_posix() for path in (tmp_path / "editors").rglob("*.*")
    }
    assert written >= {"pml.rng", "vscode/package.json", "vscode/pml.tmLanguage.json", "vscode/extension.js"}
    again = run_pml("lsp", "--files", tmp_path / "editors")
    assert again.status == 1
    assert "--force" in again.err
    assert run_pml("lsp", "--files", tmp_path / "editors", "--force").status == 0
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert run_pml("lsp", "--files", tmp_path / "file").status == 2
