"""What a model's files are: its own name, their number format, and their size."""

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
        name: what the model is called, without a path.
        format: how its numbers are stored, such as "GGUF Q4_1"; "" where there are no files.
        bytes: of its weights' files.
        four_bits: whether the processor can compute with blocks of the files as they are.
    """

    name: str
    format: str = ""
    bytes: int = 0
    four_bits: bool = False


def stored(name: str, checkpoint: Checkpoint, gguf: GgufModel | None = None) -> Stored:
    """Looks at a model's files.

    Args:
        name: the model's name, as the user wrote it.
        checkpoint: its files.
        gguf: the same files, where they are of that format.

    Raises:
        OSError: a file cannot be read.
    """
    size = sum(one.stat().st_size for one in checkpoint.paths)
    if gguf is None:
        own = own_name(name, checkpoint.folder)
        return Stored(own, f"safetensors {_numbers(checkpoint.paths[0])}".rstrip(), size)
    own = own_name(name, checkpoint.place, str(gguf.metadata.get("general.name", "")))
    return Stored(own, f"GGUF {_blocks(gguf)}", size, gguf.in_four_bits)


def own_name(name: str, place: Path, title: str = "") -> str:
    """Returns what a model is called: never a path, and not "model" after a folder of that name.

    Args:
        name: the model's name, as the user wrote it.
        place: its folder or file.
        title: the name in its files; used where those have none.
    """
    if name in ("demo", *CATALOGUE) or not from_home(name).exists():
        return name
    whole = place.absolute()
    for part in whole.parts:
        if (found := _HUB.fullmatch(part)) is not None:
            return f"{found[1]}/{found[2]}"
    stem = whole.name[: -len(GGUF)] if whole.name.lower().endswith(GGUF) else whole.name
    names = (_PART.sub("", stem), re.sub(r"\s+", "-", title.strip()), *(one.name for one in whole.parents))
    return next((one for one in names if one and not _GENERAL.fullmatch(one)), "model")


def _blocks(gguf: GgufModel) -> str:
    """The format of most numbers of GGUF files, as the makers of the file call it where that agrees."""
    sizes: Counter[str] = Counter()
    for one in gguf.tensors_stored:
        sizes[one.kind.name] += one.bytes
    most = max(sizes, key=lambda kind: sizes[kind])
    try:
        said = LlamaFileType(gguf.metadata.get("general.file_type", -1)).name
    except ValueError:
        return most
    said = said.removeprefix("MOSTLY_").removeprefix("ALL_")
    return said if said.startswith(most) else most


def _numbers(path: Path) -> str:
    """The format of most numbers of a safetensors file; "" where that cannot be told."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST:
            return ""
        try:
            head: Any = json.loads(file.read(length))
            sizes: Counter[str] = Counter()
            for key, one in head.items():
                if key != "__metadata__":
                    begin, end = one["data_offsets"]
                    sizes[one["dtype"]] += end - begin
            most = max(sizes, key=lambda kind: sizes[kind])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return ""  # who reads the weights says what is wrong
    return _SAFETENSORS.get(most, most)
