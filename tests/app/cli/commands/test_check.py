"""`pml check`: which schema a prompt is bound to, and files that are no PML or in another encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.app.cli.test_command import PROMPT, SCHEMA
from tests.app.cli.test_command import prompt as prompt
from tests.app.cli.test_command import schema as schema

Pml = Callable[..., SimpleNamespace]


def test_a_prompt_without_a_name_is_bound_to_the_only_schema(
    schema: Path, prompt: Path, run_pml: Pml
) -> None:
    prompt.write_text(PROMPT.replace(' schema="trip"', "").replace("<tokyo/>", "<tokio/>"), encoding="utf-8")
    result = run_pml("check", schema, prompt)
    assert result.status == 1
    assert "E402" in result.out


@pytest.mark.parametrize("name", ["trip.pml", "Trip", "tripp"])
def test_a_schema_that_is_nearly_named_is_the_one_meant(
    name: str, schema: Path, prompt: Path, run_pml: Pml
) -> None:
    prompt.write_text(PROMPT.replace('schema="trip"', f'schema="{name}"'), encoding="utf-8")
    result = run_pml("check", schema, prompt)
    assert result.status == 1
    assert "E401" in result.out
    assert "hint: trip" in result.out


def test_a_prompt_says_what_became_of_the_schema_that_was_given(
    schema: Path, prompt: Path, run_pml: Pml
) -> None:
    schema.write_text(SCHEMA.replace("</union>", ""), encoding="utf-8")
    said = run_pml("check", schema, prompt).out.splitlines()[-1]
    assert said == f"{prompt}: prompt, ok, but not checked against {schema}, which has errors"
    schema.write_text(SCHEMA.replace('name="trip"', 'name="cooking"'), encoding="utf-8")
    said = run_pml("check", schema, prompt).out.splitlines()[-1]
    assert said.endswith("no given schema has the name 'trip'; name it with --schema")


def test_what_is_no_pml_is_told_once_with_a_command_that_works(tmp_path: Path, run_pml: Pml) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "ferry.md").write_text("# Ferry\n\nIt *leaves* at <b>nine</b> & ten.\n" * 50, encoding="utf-8")
    result = run_pml("check", notes / "ferry.md")
    assert result.status == 1
    assert result.out.count(": error ") == 1
    assert "hint: pml import FILE --from text -o schema.pml" in result.out
    asked = run_pml("import", notes / "ferry.md", "--from", "text", "-o", tmp_path / "schema.pml")
    assert asked.status == 0
    assert run_pml("check", tmp_path / "schema.pml").status == 0
    messages = '{"messages": [{"role": "user", "content": "Hi & <bye>"}]}'
    (tmp_path / "chat.json").write_text(messages, encoding="utf-8")
    result = run_pml("check", tmp_path / "chat.json")
    assert "hint: pml import FILE.json -o schema.pml" in result.out
    assert run_pml("import", tmp_path / "chat.json", "-o", tmp_path / "chat.pml").status == 0


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_another_encoding_is_a_fault_with_its_place(encoding: str, schema: Path, run_pml: Pml) -> None:
    schema.write_bytes(SCHEMA.replace("Rome.", "Rome, é.").encode(encoding))
    result = run_pml("check", schema, "--json")
    assert result.status == 1
    (listed,) = json.loads(result.out)["files"]
    assert (listed["kind"], listed["ok"]) == ("schema", False)
    assert [found["code"] for found in listed["diagnostics"]] == ["E101"]
    assert "save" in listed["diagnostics"][0]["message"]
    assert "E101" in run_pml("check", schema).out


def test_faults_of_an_included_file_are_shown_with_its_name_and_line(tmp_path: Path, run_pml: Pml) -> None:
    (tmp_path / "parts").mkdir()
    rules = tmp_path / "parts" / "rules.pml"
    rules.write_text('<schema name="r">\n<module name="a b">x</module></schema>', encoding="utf-8")
    main = tmp_path / "s.pml"
    main.write_text('<schema name="s">\n\n<include src="parts/rules.pml"/></schema>', encoding="utf-8")
    shown = run_pml("check", str(main))
    assert shown.status == 1
    assert f"{rules}:2:15: error E301" in shown.out
    assert '2 | <module name="a b">x</module></schema>' in shown.out
    (found,) = json.loads(run_pml("check", "--json", str(main)).out)["files"][0]["diagnostics"]
    assert (found["file"], found["line"], found["code"]) == ("parts/rules.pml", 2, "E301")
    rules.write_text('<schema name="r"><module name="brief">Be brief.</module></schema>', encoding="utf-8")
    exported = run_pml("export", str(main), "--to", "pml").out
    assert "Be brief." in exported
    assert "<include" not in exported


def test_faults_of_binding_are_found_beside_those_of_xml(schema: Path, tmp_path: Path, run_pml: Pml) -> None:
    faulty = tmp_path / "faulty.pml"
    faulty.write_text('<prompt schema="trip"><nothere/> Fish & chips?</prompt>', encoding="utf-8")
    result = run_pml("check", schema, faulty)
    assert result.status == 1
    assert "E109" in result.out
    assert "E402" in result.out
