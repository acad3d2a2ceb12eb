"""How the page runs a prompt: the settings of its drawer, and those of earlier drafts."""

from __future__ import annotations

from typing import Any

import pytest

from app.studio.runs.settings import PageSettings, as_today, declarations, described
from engine.base.errors import PromptCacheError
from engine.decisions.readout import Readout


def test_settings_of_the_page() -> None:
    sent = {
        "stop": ["END\n"],
        "top_p": 0.5,
        "top_k": 4,
        "repair": "link:2",
        "placement": "schema",
        "scope": "isolated",
        "repeats": 3,
    }
    found = PageSettings.read(sent)
    assert found.stop == ("END\n",)
    assert (found.top_p, found.top_k, found.repair, found.placement) == (0.5, 4, "link:2", "schema")
    assert found.repeats == 3
    assert PageSettings.read({}) == PageSettings()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"repair": "x"}, {"scope": "x"}, {"placement": "x"}, {"top_p": "x"}),
        *({"repeats": 26}, {"repeats": -1}, {"max_new_tokens": 0}, {"temperature": 11}),
    ],
)
def test_nothing_is_brought_into_its_range(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(PromptCacheError, match=f"^{declarations()[name].label} must be "):
        PageSettings.read(wrong)


def test_the_form_has_every_setting_with_its_range() -> None:
    form = {one["name"]: one for one in described()}
    assert set(form) == set(PageSettings.__dataclass_fields__)
    assert (form["repeats"]["least"], form["repeats"]["most"]) == (0, 25)
    slow = [PageSettings().timings(ms) for ms in (0.0, 900.0, 1600.0, 63_000.0)]
    assert slow == [3, 3, 2, 1], "a slow model is timed again only on request"
    assert PageSettings(repeats=5).timings(63_000.0) == 5


def test_the_readout_of_decisions_has_the_defaults_of_the_library_and_stays_out_of_runs() -> None:
    assert PageSettings().readout == Readout()
    read = PageSettings.read({"decide_permutations": 3, "decide_list_options": False})
    assert read.readout == Readout(permutations=3, list_options=False)
    assert read.digest == PageSettings().digest
    assert not any(name.startswith("decide_") for name in read.to_json())
    assert read.of_decisions()["decide_permutations"] == 3


def test_whole_numbers_are_those_that_a_page_holds_exactly() -> None:
    form = {one["name"]: one for one in described()}
    assert (form["seed"]["most"], form["top_k"]["most"]) == (2**53 - 1, 2**53 - 1)
    assert form["seed"]["range"].endswith("at most 9007199254740991")
    assert PageSettings.read({"seed": 2**53 - 1}).seed == 2**53 - 1
    with pytest.raises(PromptCacheError, match="Seed must be a whole number"):
        PageSettings.read({"seed": 2**53})


def test_what_is_measured_depends_on_no_other_setting() -> None:
    found = PageSettings.sight({"scope": "isolated", "temperature": "x", "gone": 1})
    assert found == PageSettings(scope="isolated")


@pytest.mark.parametrize(
    ("sent", "stored"), [({}, False), ({"conversation": "memory"}, False), ({"conversation": "disk"}, True)]
)
def test_earlier_turns_are_stored_only_where_a_draft_says_so(sent: dict[str, Any], stored: bool) -> None:
    assert PageSettings.read(as_today(sent)).store_conversation is stored


def test_a_draft_that_chose_a_scope_before_reuse_could_keeps_it() -> None:
    assert as_today({"scope": "isolated"}) == {"scope": "isolated", "reuse": "off"}
    assert as_today({"scope": "anchored"}) == {"scope": "anchored"}
    assert PageSettings.read(as_today({})).reuse == "auto"


def test_the_stop_text_of_an_earlier_draft() -> None:
    assert PageSettings.read(as_today({"stop": "END\\n", "gone": 1})).stop == ("END\n",)
    assert PageSettings.read(as_today({"stop": ""})).stop == ()
