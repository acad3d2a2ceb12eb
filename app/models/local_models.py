"""The models that are on this machine, without anybody being asked: what they are and what they take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import TypedDict

_LICENCE = re.compile(r"\A---\n(?:.*\n)*?license:[ \t]*[\"']?([\w.+-]+)")


class LocalModel(TypedDict):
    """A model on this machine, or one of the catalogue that can be fetched.

    `bytes` are those of its files, `memory` those of its weights once it is loaded, `context` is in tokens.
    `fits` says whether it fits into memory, "" where that is not known. Without `here` it has to be fetched
    first.
    """

    name: str
    title: str
    here: bool
    bytes: int
    memory: int
    format: str
    licence: str
    context: int
    fits: str
    about: str


def local_models() -> list[LocalModel]:
    """Returns the bundled model, those of the catalogue, and those in the cache of the Hugging Face hub."""
    from engine.checkpoint.model_catalogue import CATALOGUE, here

    found = [_bundled()]
    for entry in CATALOGUE.values():
        row = _row(entry.name, entry.title, entry.bytes, entry.format, entry.licence)
        found.append(row | {"here": here(entry.name) is not None, "about": entry.about})
    return [*found, *_of_hub()]


def _bundled() -> LocalModel:
    from engine.checkpoint.checkpoint import DEMO_FOLDER

    size = sum(one.stat().st_size for one in DEMO_FOLDER.iterdir())
    row = _row("demo", "demo", size, "safetensors", _licence(DEMO_FOLDER))
    return row | {"about": "bundled, knows only the samples"}


def _of_hub() -> Iterator[LocalModel]:
    from engine.checkpoint.checkpoint import GGUF, gguf_models
    from engine.checkpoint.hub import cache_folder

    for repository in sorted(cache_folder().glob("models--*--*")):
        name = "/".join(repository.name.split("--")[1:])
        for folder in sorted((repository / "snapshots").glob("*"))[-1:]:
            files = [str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()]
            size = sum((folder / one).stat().st_size for one in files if one.endswith(".safetensors"))
            if size:
                yield _row(name, name, size, "safetensors", _licence(folder))
            for one in gguf_models(files):
                title = one.removesuffix(GGUF)
                yield _row(f"{name}:{one}", title, (folder / one).stat().st_size, "GGUF", _licence(folder))


def _row(name: str, title: str, size: int, form: str, licence: str) -> LocalModel:
    from app.models.model_fit import fit
    from engine.base.errors import ModelError
    from engine.model.model_info import look

    try:
        found = look(name)
        context, fits, memory = found.context_length, fit(found).verdict, found.weight_bytes
        form = found.stored.format or form
    except ModelError:
        context, fits, memory = 0, "refused", 0
    return {
        "name": name,
        "title": title,
        "here": True,
        "bytes": size,
        "memory": memory,
        "format": form,
        "licence": licence,
        "context": context,
        "fits": fits,
        "about": "",
    }


def _licence(folder: Path) -> str:
    """What the card of a model says; "" where it has none."""
    try:
        found = _LICENCE.match((folder / "README.md").read_text(encoding="utf-8")[:5000])
    except (OSError, ValueError):
        return ""
    return found[1] if found else ""
