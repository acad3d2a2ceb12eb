"""What a model's files are called, how their numbers are stored, and what they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.model.loading import load
from engine.model.model_files import own_name
from engine.model.model_info import look
from tests.engine.tiny import save_tiny


@pytest.mark.parametrize(
    ("place", "title", "name"),
    [
        ("Some-Model.Q4_1.gguf", "Another", "Some-Model.Q4_1"),
        ("big-00001-of-00003.gguf", "", "big"),
        ("model.gguf", "A  Good Model", "A-Good-Model"),
        ("mine/ggml-model.gguf", "model", "mine"),
        ("mine/model", "", "mine"),
        ("mine", "", "mine"),
        ("models--owner--name/snapshots/0123/x.gguf", "", "owner/name"),
        ("models--owner--name/snapshots/0123", "", "owner/name"),
    ],
)
def test_a_path_gets_the_models_own_name(place: str, title: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert own_name(str(path), path, title) == name


@pytest.mark.parametrize("name", ["demo", "smollm2", "owner/name", "owner/name:a.gguf", "random:llama-100m"])
def test_a_name_stays(name: str, tmp_path: Path) -> None:
    assert own_name(name, tmp_path / "other") == name


def test_a_folder_tells_its_format_and_size(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    found = load(str(folder)).stored
    assert (found.name, found.format, found.four_bits) == ("tiny", "safetensors fp32", False)
    assert found.bytes == (folder / "model.safetensors").stat().st_size
    assert look(str(folder)).stored == found
