"""`pml fidelity` on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.studio.database import UserDatabase
from app.studio.history import RunStore
from engine.files.places import user_data

pytestmark = pytest.mark.usefixtures("place")


def test_fidelity_in_words_and_as_json(
    run_pml: Callable[..., SimpleNamespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    words = run_pml("fidelity", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4")
    assert words.status == 0, words.err
    assert "first token (KL " in words.out
    assert "plan/tokyo" in words.out
    done = run_pml("fidelity", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4", "--json")
    report = json.loads(done.out)
    assert [module["path"] for module in report["modules"]] == ["", "plan", "plan/tokyo"]
    assert {"kl_first_token", "answer_agreement", "remedies", "advice"} <= set(report)
    assert {"flips", "kl_worst", "kl_mean", "tokens_read", "read_to_end"} <= set(report)
    assert report["tokens_read"] == 4 or report["read_to_end"]
    assert not done.err
    (run,) = RunStore(UserDatabase(user_data())).summaries()
    assert (run["state"], run["schema"]) == ("measured", "trip")
    assert run["fidelity"] is not None
    assert run["fidelity"]["advice"] == report["advice"]
    faulty = run_pml(
        "fidelity", "prompt.pml", "--schema", "trip.pml", "--placement", "schema", "--repair", "x"
    )
    assert faulty.status == 2
