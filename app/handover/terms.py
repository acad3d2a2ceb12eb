"""What an answer depends on besides its documents and settings, as a studio has it and a command wants it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from engine.choices import Quantize
from engine.errors import PromptCacheError
from engine.model.checkpoint import Checkpoint, local_folder
from engine.model.fingerprint import fingerprint, quantized_fingerprint
from engine.places import user_cache

_PACKAGES = ("app", "engine")


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
    """

    terms: Terms
    device: str
    dtype: str
    fingerprint: str

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
        if not self._unchanged():
            return "the files of its model have changed since it was started"
        return ""

    def _unchanged(self) -> bool:
        """Whether the files of a model in a folder are those that it was loaded from."""
        folder = Path(self.terms.model)
        if not folder.is_absolute():
            return True
        try:
            found = fingerprint(Checkpoint.of(self.terms.model, folder), user_cache() / "fingerprints.json")
        except (PromptCacheError, OSError):
            return False
        return quantized_fingerprint(found, self.terms.quantize) == self.fingerprint


def code_stamp() -> str:
    """Returns a digest that changes with the program's files, their place, and the Python that runs them."""
    root = Path(__file__).resolve().parents[2]
    whole = xxhash.xxh3_128(f"{root}\0{sys.prefix}\0{sys.version}".encode())
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        found = path.stat()
        whole.update(f"\0{path}\0{found.st_size}\0{found.st_mtime_ns}".encode())
    return whole.hexdigest()
