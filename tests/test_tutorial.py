"""The tutorial: every document in it is sound, and its commands work on the files it saves."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from app.cli.command import main, pml
from engine.pml import Schema, bind, document_kind, parse_prompt, parse_schema
from engine.pml.edit.formatter import format_source

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
STEPS = re.findall(r"(?:Save this as `([\w.]+)`:\n\n)?```(xml|sh)\n(.*?)```", PAGE, re.S)
LIGHT = ("check", "format", "export")


def test_every_document_is_sound_and_in_canonical_form() -> None:
    schema: Schema | None = None
    kinds = []
    for _, language, text in STEPS:
        if language != "xml":
            continue
        kinds.append(document_kind(text))
        assert format_source(text) == text
        if kinds[-1] == "schema":
            parsed = parse_schema(text)
            assert parsed.diagnostics == ()
            schema = parsed.tree
            continue
        prompt = parse_prompt(text)
        assert prompt.tree is not None
        assert schema is not None
        assert (prompt.diagnostics, bind(schema, prompt.tree).diagnostics) == ((), ())
    assert kinds.count("schema") >= 3
    assert kinds.count("prompt") >= 3


def test_the_commands_work_on_the_files_that_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = []
    for name, language, text in STEPS:
        if name:
            Path(name).write_text(text, encoding="utf-8")
        if language != "sh":
            continue
        for line in text.splitlines():
            words = shlex.split(line)[1:]
            command = pml.commands[words[0]]
            assert isinstance(command, click.Command)
            with command.make_context("pml", words[1:]):
                ran.append(words[0])
            if words[0] in LIGHT:
                with pytest.raises(SystemExit) as left:
                    main(words)
                assert left.value.code == 0, capsys.readouterr().err
    assert {"check", "run", "layout", "encode", "format", "export"} <= set(ran)


def test_every_document_is_saved_and_whatever_is_saved_fits() -> None:
    """Whoever stops at any step has a schema and a prompt that go together."""
    saved: dict[str, str] = {}
    for name, language, text in STEPS:
        if language != "xml":
            continue
        assert name in ("trip.pml", "eat.pml"), text
        saved[name] = text
        if len(saved) == 2:
            schema, prompt = parse_schema(saved["trip.pml"]).tree, parse_prompt(saved["eat.pml"]).tree
            assert schema is not None
            assert prompt is not None
            bound = bind(schema, prompt)
            assert bound.diagnostics == (), text
    assert schema is not None
    (scaffold,) = schema.scaffolds
    assert set(scaffold.modules) == set(bound.imports), "the last prompt uses the scaffold"
