"""`pml layout --text`: what a model reads, turn by turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

Pml = Callable[..., SimpleNamespace]
HABITS = """<schema name="habits">
  <system>Be brief.</system>
  <user>
    # Habits
    <module name="cash">I pay in cash.</module>
    <union>
      <module name="walk">I walk <param name="far" len="4"/>.</module>
      <module name="ride">I ride.</module>
    </union>

    <module name="early">I get up early.</module>
  </user>
</schema>
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "habits.pml").write_text(HABITS, encoding="utf-8")
    return tmp_path


def test_the_text_of_a_whole_schema(folder: Path, run_pml: Pml) -> None:
    assert run_pml("layout", "habits.pml", "--text").out == (
        "[system]\nBe brief.\n\n[user]\n# Habits\nI pay in cash.\nI walk {far}.\n\nI get up early.\n"
    )


def test_the_text_of_modules_in_turns_of_a_module(folder: Path, run_pml: Pml) -> None:
    asked = '<user>One? <module name="more">More?</module></user>'
    shot = f'<module name="shot">{asked}<assistant>1.</assistant></module>'
    source = f'<schema name="shots">{shot}<user>Two?</user></schema>'
    (folder / "shots.pml").write_text(source, encoding="utf-8")
    result = run_pml("layout", "shots.pml", "--text")
    assert result.out == "[user]\nOne? More?\n\n[assistant]\n1.\n\n[user]\nTwo?\n"


def test_the_text_of_a_prompt(folder: Path, run_pml: Pml) -> None:
    prompt = '<prompt schema="habits"><early/><ride/><user>Why?</user></prompt>'
    (folder / "why.pml").write_text(prompt, encoding="utf-8")
    turns = json.loads(run_pml("layout", "habits.pml", "--text", "--prompt", "why.pml", "--json").out)[
        "turns"
    ]
    assert turns == [
        {"role": "system", "text": "Be brief."},
        {"role": "user", "text": "# Habits\nI get up early.\n\nI ride."},
        {"role": "user", "text": "Why?"},
    ]


def test_a_prompt_that_does_not_fit_is_refused(folder: Path, run_pml: Pml) -> None:
    (folder / "why.pml").write_text("<prompt><cashh/></prompt>", encoding="utf-8")
    result = run_pml("layout", "habits.pml", "--text", "--prompt", "why.pml")
    assert result.status == 1
    assert "did you mean <cash/>?" in result.err


def test_a_prompt_without_text_is_refused(folder: Path, run_pml: Pml) -> None:
    result = run_pml("layout", "habits.pml", "--prompt", "why.pml")
    assert result.status == 2
    assert "--text" in result.err
