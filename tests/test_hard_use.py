"""`python -m tests.hard_use`: what breaks is reported as broken, and the quick scenes hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hard_use import __main__ as hard_use
from tests.hard_use import model_scenes, store_scenes
from tests.hard_use.stage import Stage, UnplayableError, refused, require


def breaks(stage: Stage) -> str:
    """A scene that does not hold."""
    refused(stage.pml("check", "schema.pml"))
    return "never seen"


def stumbles(stage: Stage) -> str:
    """A scene with a fault of its own."""
    return str({}["nothing"])


def cannot(stage: Stage) -> str:
    """A scene that needs what is not there."""
    raise UnplayableError("it needs a moon")


def holds(stage: Stage) -> str:
    """A scene that holds."""
    require(stage.pml("check", "schema.pml").status == 0, "check failed")
    return "checked"


@pytest.mark.parametrize(
    ("scene", "outcome", "status"),
    [(breaks, "BROKE", 1), (stumbles, "BROKE", 1), (cannot, "not played", 0), (holds, "held", 0)],
)
def test_what_a_scene_shows_is_what_is_said(
    scene: Callable[[Stage], str],
    outcome: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hard_use, "SCENES", (scene,))
    assert hard_use.main([]) == status
    said = capsys.readouterr().out
    assert said.startswith(f"{outcome} ")
    assert f"1 {outcome}" in said.splitlines()[-1]


def test_no_scene_by_that_name_is_no_success() -> None:
    assert hard_use.main(["no such scene"]) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "scene",
    [
        store_scenes.a_folder_of_somebody_else,
        model_scenes.a_module_called_self,
        model_scenes.a_parent_that_is_swapped,
        model_scenes.an_answer_left_half_read,
    ],
)
def test_quick_scenes_hold(scene: Callable[[Stage], str]) -> None:
    outcome, seen = hard_use.play(scene)
    assert outcome == "held", seen
