"""Settings of a run: declared once, and what reads the declaration says the same."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.base.choices import (
    PLACEMENTS,
    REUSES,
    SCOPES,
    SPECULATIONS,
    TIMELINE_PARTS,
    PlacementPolicy,
    Scope,
    Speculate,
    TimelinePart,
)
from engine.base.errors import SettingsError
from engine.inference.run_settings import (
    REPAIRS,
    Repair,
    RepairKind,
    ReuseParams,
    RunSettings,
    SamplingParams,
)
from engine.inference.setting import settings_of

SETTINGS = settings_of(RunSettings)
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_every_choice_has_its_words() -> None:
    for type_, words in (
        (Scope, SCOPES),
        (PlacementPolicy, PLACEMENTS),
        (Speculate, SPECULATIONS),
        (TimelinePart, TIMELINE_PARTS),
    ):
        assert tuple(words) == get_args(type_)
        assert all(words.values())
    assert tuple(name.partition(":")[0] for name in REPAIRS) == get_args(RepairKind)


def test_a_run_has_the_settings_of_sampling_and_of_reuse_and_no_others() -> None:
    names = [one.name for one in fields(RunSettings)]
    assert names == [one.name for kind in (SamplingParams, ReuseParams) for one in fields(kind)]
    assert isinstance(RunSettings(), SamplingParams)
    assert isinstance(RunSettings(), ReuseParams)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_default_is_in_its_range(name: str) -> None:
    declared = SETTINGS[name]
    assert declared.checked(declared.default) == declared.default == getattr(RunSettings(), name)
    assert declared.sentence.endswith(".")


BEYOND: list[tuple[str, object]] = [
    ("max_new_tokens", 0),
    ("max_new_tokens", 1_000_001),
    ("max_new_tokens", 1.5),
    ("max_new_tokens", True),
    ("max_new_tokens", "8"),
    ("temperature", 10.5),
    ("temperature", float("inf")),
    ("temperature", None),
    ("top_p", 0.0),
    ("repetition_penalty", 11),
    ("seed", 1 << 63),
    ("stop", "END"),
    ("stop", ["END", 3]),
    ("scope", None),
    ("placement", ["compact"]),
    ("repair", 3),
    ("repair", "link:١"),
    ("hold_conversation", 1),
    ("temperature", -0.1),
    ("temperature", float("nan")),
    ("top_p", 1.2),
    ("top_k", -1),
    ("repetition_penalty", 0),
    ("seed", -1),
    ("stop", ("x", "")),
    ("scope", "wide"),
    ("placement", "loose"),
    ("repair", "blend:1.5"),
    ("min_p", 1.1),
    ("presence_penalty", -2.5),
    ("frequency_penalty", 2.5),
    ("logit_bias", ""),
    ("logit_bias", "5"),
    ("logit_bias", "5:100.5"),
    ("logit_bias", "5:1,"),
    ("logit_bias", "-5:1"),
]


@pytest.mark.parametrize(("name", "value"), BEYOND)
def test_what_is_out_of_range_is_refused_with_the_range(name: str, value: Any) -> None:
    with pytest.raises(SettingsError) as refused:
        RunSettings(**{name: value})
    assert str(refused.value) == f"{name} is {value!r}; it must be {SETTINGS[name].range}."
    with pytest.raises(SettingsError):
        RunSettings.read({name: value})


def test_settings_are_read_as_json_has_them() -> None:
    sent = json.loads('{"max_new_tokens": 8.0, "temperature": 1, "stop": ["a", "b"], "scope": "isolated"}')
    found = RunSettings.read(sent)
    assert found == RunSettings(max_new_tokens=8, temperature=1.0, stop=("a", "b"), scope="isolated")
    assert isinstance(found.max_new_tokens, int)
    assert hash(found) == hash(
        RunSettings(max_new_tokens=8, temperature=1.0, stop=("a", "b"), scope="isolated")
    )
    assert RunSettings.read({}) == RunSettings()
    with pytest.raises(SettingsError, match="There is no setting 'temprature'; there are max_new_tokens"):
        RunSettings.read({"temprature": 1})


def test_the_largest_seed_keeps_its_last_digit() -> None:
    assert RunSettings(seed=2**63 - 1).seed == 2**63 - 1


def test_a_description_is_json_that_says_the_whole_declaration() -> None:
    told = json.loads(json.dumps([one.describe() for one in SETTINGS.values()], allow_nan=False))
    assert [one["name"] for one in told] == list(SETTINGS)
    assert RunSettings.read({one["name"]: one["default"] for one in told}) == RunSettings()
    by_name = {one["name"]: one for one in told}
    assert by_name["scope"]["choices"] == dict(SCOPES)
    assert by_name["top_p"]["above"] is True
    assert (by_name["top_p"]["least"], by_name["top_p"]["most"]) == (0, 1)
    assert "most" not in by_name["top_k"]
    assert re.fullmatch(by_name["repair"]["pattern"], "blend:0.15")
    assert "none" in by_name["repair"]["examples"]
    assert all(Repair.parse(text) for text in by_name["repair"]["examples"])


@pytest.mark.parametrize(
    "text", ["none", "link:2", "blend:0.15", "query:1.0", "blend:.5", "link", "blend:2", ""]
)
def test_a_repair_is_read_where_its_setting_takes_it(text: str) -> None:
    try:
        RunSettings(repair=text)
    except SettingsError as refused:
        with pytest.raises(SettingsError, match=re.escape(str(refused))):
            Repair.parse(text)
    else:
        assert Repair.parse(text).kind == text.partition(":")[0]


def test_the_documents_have_every_setting_and_choice() -> None:
    rows = []
    for name, one in SETTINGS.items():
        option = (
            "" if name in ("hold_conversation", "grammar", "logit_bias") else f"`--{name.replace('_', '-')}`"
        )
        default = {"flag": ("no", "yes")[bool(one.default)], "texts": "none"}.get(one.kind, one.default)
        rows.append(f"| `{name}` | {option} | {default} | {one.range} | {one.sentence} |")
    for choices in (REUSES, SPECULATIONS, SCOPES, PLACEMENTS, REPAIRS, TIMELINE_PARTS):
        rows += [f"| `{name}` | {words} |" for name, words in choices.items()]
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in lines] == []
    rows_there = [line for line in lines if line.startswith("| `")]
    assert rows_there == rows, "in this order, and no more"
