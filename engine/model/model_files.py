"""Properties of a model's files: name, number format and size."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import LlamaFileType

from engine.checkpoint.checkpoint import GGUF, Checkpoint
from engine.checkpoint.model_catalogue import CATALOGUE
from engine.files.places import from_home
from engine.gguf.model import GgufModel

_HUB = re.compile(r"models--(.+?)--(.+)")
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_GENERAL = re.compile(
    r"(ggml-)?(model|models|weights|checkpoint|snapshots?|main|[0-9a-f]{32,})", re.IGNORECASE
)
_SAFETENSORS = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16"}
_LONGEST = 100 << 20  # bytes of the header of a safetensors file


@dataclass(frozen=True)
class Stored:
    """A model's files.

    Attributes:
        name: the model's name without a path.
        format: the stored number format, such as "GGUF Q4_1"; "" without files.
        bytes: of its weights' files.
        four_bits: whether the processor can compute with blocks of the files directly.
    """

    name: str
    format: str = ""
    bytes: int = 0
    four_bits: bool = False


def stored(name: str, checkpoint: Checkpoint, gguf: GgufModel | None = None) -> Stored:
    """Describes a model's files; raises OSError if a file cannot be read."""
    size = sum(path.stat().st_size for path in checkpoint.paths)
    if gguf is None:
        own = own_name(name, checkpoint.folder)
        return Stored(own, f"safetensors {_numbers(checkpoint.paths[0])}".rstrip(), size)
    own = own_name(name, checkpoint.place, str(gguf.metadata.get("general.name", "")))
    return Stored(own, f"GGUF {_blocks(gguf)}", size, gguf.in_four_bits)


def own_name(name: str, place: Path, title: str = "") -> str:
    """Returns a model's display name: never a path, and never a generic folder name like "model".

    `name` is the user's name for it, and `place` its folder or file. If the paths have no name, `title` is
    used, the name in its files.
    """
    if name in ("demo", *CATALOGUE) or not from_home(name).exists():
        return name
    whole = place.absolute()
    for part in whole.parts:
        if (cached := _HUB.fullmatch(part)) is not None:
            return f"{cached[1]}/{cached[2]}"
    stem = whole.name[: -len(GGUF)] if whole.name.lower().endswith(GGUF) else whole.name
    names = (_PART.sub("", stem), re.sub(r"\s+", "-", title.strip()), *(part.name for part in whole.parents))
    return next((title for title in names if title and not _GENERAL.fullmatch(title)), "model")


def _blocks(gguf: GgufModel) -> str:
    """The format of most numbers of GGUF files; the file's own name for it if that agrees."""
    sizes: Counter[str] = Counter()
    for tensor in gguf.tensors_stored:
        sizes[tensor.kind.name] += tensor.bytes
    most = max(sizes, key=lambda kind: sizes[kind])
    try:
        label = LlamaFileType(gguf.metadata.get("general.file_type", -1)).name
    except ValueError:
        return most
    label = label.removeprefix("MOSTLY_").removeprefix("ALL_")
    return label if label.startswith(most) else most


def _numbers(path: Path) -> str:
    """The format of most numbers of a safetensors file; "" if unknown."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST:
            return ""
        try:
            head: Any = json.loads(file.read(length))
            sizes: Counter[str] = Counter()
            for key, entry in head.items():
                if key != "__metadata__":
                    begin, end = entry["data_offsets"]
                    sizes[entry["dtype"]] += end - begin
            most = max(sizes, key=lambda kind: sizes[kind])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return ""  # reading the weights reports the error
    return _SAFETENSORS.get(most, most)
