"""What must be the same where a run is computed: the files of the model, the libraries, the store."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.remote.terms import Held, Terms, endings, folder_stamp
from engine.checkpoint.checkpoint import DEMO_FOLDER, Checkpoint
from engine.checkpoint.fingerprint import fingerprint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered of files of other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model in a folder that may be changed."""
    return Path(shutil.copytree(DEMO_FOLDER, tmp_path / "model"))


def held(wanted: Terms, model: Path) -> Held:
    found = fingerprint(Checkpoint.of("m", model))
    return Held(wanted, "cpu", "fp32", found, endings(str(model)), folder_stamp(wanted.cache_dir))


@pytest.mark.parametrize("first", [None, {"eos_token_id": 1}])
def test_a_change_of_where_answers_end_is_seen(model: Path, tmp_path: Path, first: Any) -> None:
    config = model / "generation_config.json"
    config.unlink(missing_ok=True)
    if first is not None:
        config.write_text(json.dumps(first))
    terms = Terms.of(str(model), cache_dir=tmp_path)
    here = held(terms, model)
    assert here.refusal(terms) == ""
    config.write_text(json.dumps({"eos_token_id": [1, 2]}))
    assert "were changed" in here.refusal(terms)


@pytest.fixture
def hub(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a revision of owner/name into the hub's own cache, as the one that is used."""
    cache = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    of_model = cache / "models--owner--name"

    def fetched(commit: str) -> Path:
        place = of_model / "snapshots" / commit
        shutil.copytree(model, place)
        (of_model / "refs").mkdir(exist_ok=True)
        (of_model / "refs" / "main").write_text(commit)
        return place

    return fetched


def test_a_model_of_the_hub_is_compared_as_it_lies_here(
    hub: Callable[[str], Path], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = held(Terms.of("owner/name", cache_dir=tmp_path), hub(COMMIT))
    assert here.refusal(here.terms) == ""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "later": 1}))
    hub(COMMIT[::-1])
    assert "were changed" in here.refusal(here.terms)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "other"))
    assert "were changed" in here.refusal(here.terms)


def test_another_version_of_a_library_is_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Terms.of("demo", cache_dir=tmp_path)
    version = importlib.metadata.version
    monkeypatch.setattr(
        "importlib.metadata.version", lambda name: "9.9" if name == "transformers" else version(name)
    )
    assert Terms.of("demo", cache_dir=tmp_path).code != before.code


def test_a_cache_folder_that_was_made_anew_is_another(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    terms = Terms.of("demo", cache_dir=cache)
    here = held(terms, DEMO_FOLDER)
    assert here.refusal(terms) == ""
    cache.rename(tmp_path / "away")  # not deleted: its number is not given again while a store has it open
    assert "cache folder" in here.refusal(terms)
    cache.mkdir()
    assert "cache folder" in here.refusal(terms)
    assert here.refusal(replace(terms, code="other")) == "it runs another version of this program"
