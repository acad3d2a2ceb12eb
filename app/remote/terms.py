"""What an answer depends on besides its documents and settings, as a studio has it and a command wants it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from engine.base.choices import RANDOM, Quantize
from engine.base.errors import PromptCacheError
from engine.checkpoint.checkpoint import Checkpoint, local_folder
from engine.checkpoint.fingerprint import digest_of, fingerprint, quantized_fingerprint
from engine.files.places import user_cache

_PACKAGES = ("app", "engine")
_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "jinja2")
_ENDINGS = "generation_config.json"  # of no segment's name, but it says where answers end


@dataclass(frozen=True)
class Terms:
    """What answers depend on.

    Attributes:
        model: the model's name as it was written; of a folder, the real path of that.
        device: as it was asked for.
        dtype: as it was asked for.
        weights: how they lie in memory, as it was asked for.
        quantize: how they are rounded.
        cache_dir: the real path of the store's folder.
        verify: when a stored file's digest is checked.
        memory: the most bytes of segments held in memory; None for the engine's own bound.
        date: the date that a chat template may write, in ISO form; "" for the day of each prompt.
        code: which code computes, and where it is installed.
    """

    model: str
    device: str
    dtype: str
    weights: str
    quantize: Quantize
    cache_dir: str
    verify: str
    memory: int | None
    date: str
    code: str

    @classmethod
    def of(
        cls,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        weights: str = "auto",
        quantize: Quantize = "none",
        cache_dir: Path | None = None,
        verify: str = "first",
        memory: int | None = None,
        date: Any = None,
    ) -> Terms:
        """Returns the terms of `Engine.open` with these arguments."""
        folder = local_folder(model)
        return cls(
            model if folder is None else os.path.realpath(folder),
            device,
            dtype,
            weights,
            quantize,
            os.path.realpath(cache_dir or user_cache() / "segments"),
            verify,
            memory,
            date.isoformat() if date else "",
            code_stamp(),
        )


@dataclass(frozen=True)
class Held:
    """What a studio computes with.

    Attributes:
        terms: as it was started.
        device: where the model runs.
        dtype: of weights and segments: fp32, bf16 or fp16.
        fingerprint: digest of the model's files, and of how its weights are rounded.
        endings: `endings` of the model as it was loaded.
        store: `folder_stamp` of the store's folder as it was opened.
    """

    terms: Terms
    device: str
    dtype: str
    fingerprint: str
    endings: str
    store: str

    def serves(self, wanted: Terms) -> bool:
        """Whether it has the model and the store that are wanted."""
        return (self.terms.model, self.terms.cache_dir) == (wanted.model, wanted.cache_dir)

    def refusal(self, wanted: Terms) -> str:
        """Why a run on these terms would not be the same here, in words; "" where it would."""
        held = self.terms
        if held.code != wanted.code:
            return "it runs another version of this program"
        if wanted.device not in (held.device, self.device):
            return f"it runs on {self.device}"
        if wanted.dtype not in (held.dtype, self.dtype):
            return f"it computes in {self.dtype}"
        if wanted.quantize != held.quantize:
            return f"it was started with --quantize {held.quantize}"
        if wanted.weights != held.weights:
            return f"it was started with --weights {held.weights}"
        if wanted.verify != held.verify:
            return f"it was started with --verify {held.verify}"
        if wanted.memory is not None and wanted.memory != held.memory:
            return "it holds another amount of segments in memory"
        if wanted.date != held.date:
            return f"its date is {held.date or 'that of the day'}"
        if self.store != folder_stamp(held.cache_dir):
            return "its cache folder was removed or made anew since it was started"
        if not self._unchanged():
            return "the files of its model have changed since it was started, or lie elsewhere"
        return ""

    def _unchanged(self) -> bool:
        """Whether the files of a model are those that it was loaded from."""
        name = self.terms.model
        if name.startswith(RANDOM):
            return True
        folder = _folder(name)
        if folder is None:
            return False
        try:
            found = fingerprint(Checkpoint.of(name, folder), user_cache() / "fingerprints.json")
            same = endings(name) == self.endings
        except (PromptCacheError, OSError):
            return False
        return same and quantized_fingerprint(found, self.terms.quantize) == self.fingerprint


def endings(model: str) -> str:
    """Returns a digest of what the files of a model say of where answers end; "" where there are no files.

    Args:
        model: a folder, "demo", or the id of a model of which a revision lies in the hub's own cache.
    """
    folder = None if model.startswith(RANDOM) else _folder(model)
    if folder is None:
        return ""
    if folder.is_file():
        return "none"  # a GGUF file holds all of it, and is known as a whole
    try:
        return digest_of(folder / _ENDINGS, None)
    except FileNotFoundError:
        return "none"
    except OSError:
        return ""


def folder_stamp(path: str) -> str:
    """Returns what tells a folder from another that takes its place; "" where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _folder(model: str) -> Path | None:
    """Where a model's files lie on this machine; nothing is fetched."""
    if (folder := local_folder(model)) is not None:
        return folder
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    from engine.checkpoint.hub import parted

    owner_and_name, file = parted(model)
    try:
        found = try_to_load_from_cache(owner_and_name, file or "config.json")
    except HFValidationError:
        return None
    if not isinstance(found, str):
        return None
    return Path(found) if file else Path(found).parent


def code_stamp() -> str:
    """Returns a digest that changes with the program's files, their place, its libraries, and the Python."""
    root = Path(__file__).resolve().parents[2]
    whole = xxhash.xxh3_128(f"{root}\0{sys.prefix}\0{sys.version}".encode())
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        found = path.stat()
        whole.update(f"\0{path}\0{found.st_size}\0{found.st_mtime_ns}".encode())
    for library in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            whole.update(f"\0{library}\0{importlib.metadata.version(library)}".encode())
    return whole.hexdigest()
