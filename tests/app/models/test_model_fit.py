"""Whether a model fits: by its numbers, in a sentence that has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.models import model_fit
from app.models.model_choice import ModelChoice
from app.models.model_fit import RESERVE, Beside, fit
from app.studio.database import UserDatabase
from app.studio.model.recent_models import KEPT, RecentModels
from engine.model.model_info import look
from engine.quantize.memory_fit import Free

MIB = 1 << 20
LOOK = replace(look("demo"), weight_bytes=100 * MIB, peak_bytes=150 * MIB, working_bytes=50 * MIB)


@pytest.mark.parametrize(
    ("free", "beside", "verdict", "words"),
    [
        (1000, Beside(), "fits", "it takes 200.0 MiB, and 1000.0 MiB of memory are free"),
        (200, Beside(), "fits", "It fits"),
        (199, Beside(), "refused", "it takes 200.0 MiB, and 199.0 MiB of memory are available"),
        (199, Beside("old", MIB), "apart", "old is unloaded first"),
        (100, Beside("old", 100 * MIB), "apart", "if loading fails, old is loaded again"),
        (100, Beside("old", 99 * MIB), "refused", "199.0 MiB of memory are available"),
        (200, Beside("old", 0, 100 * MIB), "tight", "up to 100.0 MiB more"),
        (200, Beside("old", 50 * MIB, 100 * MIB), "fits", "It fits"),
    ],
)
def test_what_is_free_and_what_goes_decide(free: int, beside: Beside, verdict: str, words: str) -> None:
    found = fit(LOOK, beside, Free(free * MIB + RESERVE, 4000 * MIB))
    assert found.verdict == verdict
    assert words in found.sentence
    assert found.needed == 200 * MIB


def test_what_has_to_be_fetched_needs_room_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_fit, "cache_folder", lambda: tmp_path / "not" / "yet")
    room = Free(4000 * MIB, 4000 * MIB)
    assert fit(replace(LOOK, fetch_bytes=1), None, room).verdict == "fits"
    found = fit(replace(LOOK, fetch_bytes=1 << 60), None, room)
    assert found.verdict == "refused"
    assert "of disk" in found.sentence


def test_a_system_that_does_not_say_what_is_free_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_fit, "free_memory", lambda _: None)
    found = fit(LOOK)
    assert found.verdict == "unknown"
    assert "the free part of" in found.sentence


def test_recent_models_are_kept_latest_first_within_bounds(tmp_path: Path) -> None:
    recent = RecentModels(UserDatabase(tmp_path))
    assert recent.kept() == ()
    for number in range(KEPT + 3):
        recent.add(ModelChoice(f"owner/m{number}", quantize="int4"))
    recent.add(ModelChoice("owner/m5", dtype="bf16"))
    recent.add(ModelChoice())
    recent.add(ModelChoice("random:llama-100m"))
    again = RecentModels(UserDatabase(tmp_path)).kept()
    assert len(again) == KEPT
    assert again[0] == ModelChoice("owner/m5", dtype="bf16")
    assert again[1] == ModelChoice(f"owner/m{KEPT + 2}", quantize="int4")
    recent.remove("owner/m5")
    assert recent.kept() == again[1:]


def test_a_folder_is_remembered_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    recent = RecentModels(UserDatabase(tmp_path))
    recent.add(ModelChoice("model"))
    recent.add(ModelChoice(str(tmp_path / "model")))
    assert [one.name for one in recent.kept()] == [str((tmp_path / "model").resolve())]
