"""The terms of an answer besides its documents and settings, for a studio and for a command."""

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
_ENDINGS = "generation_config.json"  # not part of a segment's key, but it defines end tokens


@dataclass(frozen=True)
class Terms:
    """The terms of an answer."""

    model: str  # the model's name as given; the real path of a folder
    device: str
    dtype: str  # the requested number format
    weights: str  # the requested layout of weights
    quantize: Quantize  # the requested quantization
    cache_dir: str  # the real path of the store's folder
    verify: str  # when the digest of a stored file is checked
    memory: int | None  # limit in bytes of segments in memory; None for the engine's default
    date: str  # the date in chat templates, in ISO form; "" for the day of each prompt
    code: str  # digest of the code and its location

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
    """The state of a running studio."""

    terms: Terms  # its terms at the start
    device: str  # device of the model
    dtype: str  # format of weights and segments: fp32, bf16 or fp16
    fingerprint: str  # digest of the model's files and its quantization
    endings: str  # `endings` of the loaded model
    store: str  # `folder_stamp` of the opened store

    def serves(self, wanted: Terms) -> bool:
        """Returns whether it has the wanted model and store."""
        return (self.terms.model, self.terms.cache_dir) == (wanted.model, wanted.cache_dir)

    def refusal(self, wanted: Terms) -> str:
        """Returns why a run with these terms would differ here; "" if it would not."""
        own = self.terms
        if own.code != wanted.code:
            return "it runs another version of this program"
        if wanted.device not in (own.device, self.device):
            return f"it runs on {self.device}"
        if wanted.dtype not in (own.dtype, self.dtype):
            return f"it computes in {self.dtype}"
        if wanted.quantize != own.quantize:
            return f"it was started with --quantize {own.quantize}"
        if wanted.weights != own.weights:
            return f"it was started with --weights {own.weights}"
        if wanted.verify != own.verify:
            return f"it was started with --verify {own.verify}"
        if wanted.memory is not None and wanted.memory != own.memory:
            return "it was started with another --memory"
        if wanted.date != own.date:
            return f"its date is {own.date or 'today'}"
        if self.store != folder_stamp(own.cache_dir):
            return "its cache folder was deleted or recreated after its start"
        if not self._unchanged():
            return "the files of its model were changed or moved after its start"
        return ""

    def _unchanged(self) -> bool:
        """Whether the model's files are unchanged since loading."""
        name = self.terms.model
        if name.startswith(RANDOM):
            return True
        folder = _folder(name)
        if folder is None:
            return False
        try:
            digest = fingerprint(Checkpoint.of(name, folder), user_cache() / "fingerprints.json")
            same = endings(name) == self.endings
        except (PromptCacheError, OSError):
            return False
        return same and quantized_fingerprint(digest, self.terms.quantize) == self.fingerprint


def endings(model: str) -> str:
    """Returns a digest of a model's end-token configuration; "" if its files are missing.

    Args:
        model: a folder, "demo", or the id of a model in the hub's cache.
    """
    folder = None if model.startswith(RANDOM) else _folder(model)
    if folder is None:
        return ""
    if folder.is_file():
        return "none"  # a GGUF file contains it and is fingerprinted as a whole
    try:
        return digest_of(folder / _ENDINGS, None)
    except FileNotFoundError:
        return "none"
    except OSError:
        return ""


def folder_stamp(path: str) -> str:
    """Returns an identifier of a folder that changes if it is replaced; "" without a folder."""
    try:
        status = Path(path).stat()
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def _folder(model: str) -> Path | None:
    """The folder or file of a model on this machine; fetches nothing."""
    if (folder := local_folder(model)) is not None:
        return folder
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    from engine.checkpoint.hub import parted

    owner_and_name, file = parted(model)
    try:
        cached = try_to_load_from_cache(owner_and_name, file or "config.json")
    except HFValidationError:
        return None
    if not isinstance(cached, str):
        return None
    return Path(cached) if file else Path(cached).parent


def code_stamp() -> str:
    """Returns a digest of the program's files, their location, the libraries and the Python version."""
    root = Path(__file__).resolve().parents[2]
    whole = xxhash.xxh3_128(f"{root}\0{sys.prefix}\0{sys.version}".encode())
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        status = path.stat()
        whole.update(f"\0{path}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    for library in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            whole.update(f"\0{library}\0{importlib.metadata.version(library)}".encode())
    return whole.hexdigest()
