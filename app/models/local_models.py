"""Lists the models on this machine with their sizes, without network access."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import TypedDict

_LICENCE = re.compile(r"\A---\n(?:.*\n)*?license:[ \t]*[\"']?([\w.+-]+)")


class LocalModel(TypedDict):
    """A model on this machine, or a catalogue entry that can be fetched.

    `bytes` is the size of its files, `memory` that of its loaded weights, `context` is in tokens. `fits`
    tells whether it fits into memory, "" if unknown. If `here` is false, it must be fetched first.
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
    """Returns the bundled model, the catalogue, and models in the Hugging Face hub's cache."""
    from engine.checkpoint.model_catalogue import CATALOGUE, here

    models = [_bundled()]
    for entry in CATALOGUE.values():
        row = _row(entry.name, entry.title, entry.bytes, entry.format, entry.licence)
        models.append(row | {"here": here(entry.name) is not None, "about": entry.about})
    return [*models, *_of_hub()]


def _bundled() -> LocalModel:
    from engine.checkpoint.checkpoint import DEMO_FOLDER

    size = sum(file.stat().st_size for file in DEMO_FOLDER.iterdir())
    row = _row("demo", "demo", size, "safetensors", _licence(DEMO_FOLDER))
    return row | {"about": "bundled, knows only the samples"}


def _of_hub() -> Iterator[LocalModel]:
    from engine.checkpoint.checkpoint import GGUF, gguf_models
    from engine.checkpoint.hub import cache_folder

    for repository in sorted(cache_folder().glob("models--*--*")):
        name = "/".join(repository.name.split("--")[1:])
        for folder in sorted((repository / "snapshots").glob("*"))[-1:]:
            files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
            size = sum((folder / path).stat().st_size for path in files if path.endswith(".safetensors"))
            if size:
                yield _row(name, name, size, "safetensors", _licence(folder))
            for path in gguf_models(files):
                title = path.removesuffix(GGUF)
                yield _row(f"{name}:{path}", title, (folder / path).stat().st_size, "GGUF", _licence(folder))


def _row(name: str, title: str, size: int, form: str, licence: str) -> LocalModel:
    from app.models.model_fit import fit
    from engine.base.errors import ModelError
    from engine.model.model_info import look

    try:
        info = look(name)
        context, fits, memory = info.context_length, fit(info).verdict, info.weight_bytes
        form = info.stored.format or form
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
    """The licence in a model's card; "" without one."""
    try:
        match = _LICENCE.match((folder / "README.md").read_text(encoding="utf-8")[:5000])
    except (OSError, ValueError):
        return ""
    return match[1] if match else ""
