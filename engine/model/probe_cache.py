"""Stores the measurements of models, so that a known model starts without its probe.

A measurement's key has everything that it depends on: the bytes of the checkpoint, number format, device,
versions, and the measuring code. A stored measurement is verified by three short passes against the model's
own logits before use, and expires after a month. One that fails is logged, deleted and measured again.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import xxhash

from engine.attention import bf16_upcast
from engine.attention.rope import Rotaries, Rotary
from engine.base.errors import ModelError
from engine.base.segment import Form
from engine.files import atomic
from engine.model.hf_attention import ATTENTION_PATHS, AttentionSetup
from engine.model.network import Network
from engine.model.probe import Probe, holds, probe

log = logging.getLogger(__name__)

KEPT = 64  # models
LARGEST = 4 << 20  # bytes of the file
VALID_SECONDS = 30 * 86400.0
_FORMAT = 1
_CODE = ("model", "attention", "kv_cache", "base/segment.py")  # the code that measures and attends


@dataclass(frozen=True)
class Memory:
    """Measurements of earlier starts, in one file. A damaged or foreign file counts as empty.

    Attributes:
        path: the file.
        now: the clock, in seconds since 1970.
    """

    path: Path
    now: Callable[[], float] = time.time

    def probed(self, network: Network, name: str, fingerprint: str) -> Probe:
        """Returns the measurements of a network, stored ones if they still hold.

        Raises:
            ModelError: neither path reproduces the model.
        """
        key = _key(network, fingerprint)
        known = self._get(key, network)
        if known is not None and holds(network, known):
            return known
        if known is not None:
            log.warning(
                "the cached measurement of model %s does not reproduce it; measuring again",
                name,
            )
        try:
            measured = probe(network, name)
        except ModelError:
            self._put(key, None)
            raise
        self._put(key, measured)
        return measured

    def _get(self, key: str, network: Network) -> Probe | None:
        row = self._rows().get(key)
        if row is None or not 0 <= self.now() - row["measured"] < VALID_SECONDS:
            return None
        measured = _read(row["probe"])
        return measured if measured is not None and measured.form.layers == network.layers else None

    def _put(self, key: str, found: Probe | None) -> None:
        """Writes or removes a measurement; concurrent changes of other processes stay."""
        rows = self._rows()
        if rows.pop(key, None) is None and found is None:
            return
        if found is not None:
            rows[key] = {
                "measured": self.now(),
                "probe": (fields := _written(found)),
                "digest": _digest(fields),
            }
        content = {"format": _FORMAT, "probes": dict(list(rows.items())[-KEPT:])}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.writing(self.path.parent, self.path.name) as file:
                file.write(json.dumps(content).encode())
        except OSError as error:
            log.info("cannot save measurements in %s: %s", self.path, error)

    def _rows(self) -> dict[str, dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                content: Any = json.loads(file.read(LARGEST))
        except (OSError, ValueError, RecursionError):
            return {}
        rows = (
            content.get("probes") if isinstance(content, dict) and content.get("format") == _FORMAT else None
        )
        return {key: row for key, row in rows.items() if _sound(row)} if isinstance(rows, dict) else {}


def _key(network: Network, fingerprint: str) -> str:
    """A digest of everything that decides a measurement."""
    device = network.device
    runs_on = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    parts = (
        *(fingerprint, str(network.dtype), str(device), runs_on, torch.backends.cpu.get_cpu_capability()),
        *bf16_upcast.told_by(),
        *(version("torch"), version("transformers"), _code()),
    )
    return xxhash.xxh3_128_hexdigest("\0".join(parts).encode())


def _code() -> str:
    package = Path(__file__).resolve().parents[1]
    whole = xxhash.xxh3_128()
    for name in _CODE:
        place = package / name
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def _digest(told: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(told, sort_keys=True).encode())


def _sound(row: Any) -> bool:
    match row:
        case {"measured": int() | float(), "probe": dict() as fields, "digest": str() as digest}:
            return digest == _digest(fields)
    return False


def _written(found: Probe) -> dict[str, Any]:
    """A probe as JSON: each rotary embedding once, and its index for each layer."""
    distinct = list({id(rotary): rotary for rotary in found.setup.rotaries if rotary is not None}.values())
    places = {id(rotary): place for place, rotary in enumerate(distinct)}
    return {
        "path": found.setup.path,
        "carried": found.setup.carried,
        "rotaries": [[rotary.inverse_frequency.tolist(), rotary.interleaved] for rotary in distinct],
        "layers": [None if rotary is None else places[id(rotary)] for rotary in found.setup.rotaries],
        "form": [found.form.layers, found.form.heads, found.form.size, str(found.form.dtype)],
        "relocatable": found.relocatable,
        "positions": found.positions,
        "checks": dict(found.checks),
        "exact_up_to": found.exact_up_to,
        "limit": found.limit,
        "packs": found.packs,
        "alone": found.alone,
    }


def _read(told: dict[str, Any]) -> Probe | None:
    """The inverse of `_written`; None for other data."""
    try:
        made = [
            Rotary(torch.tensor(numbers, dtype=torch.float32), bool(style))
            for numbers, style in told["rotaries"]
        ]
        rotaries: Rotaries = tuple(None if place is None else made[place] for place in told["layers"])
        layers, heads, size, dtype = told["form"]
        form = Form(layers, heads, size, getattr(torch, dtype.removeprefix("torch.")))
        if told["path"] not in ATTENTION_PATHS:
            return None
        setup = AttentionSetup(told["path"], rotaries, bool(told["carried"]))
        names = ("relocatable", "positions", "checks", "exact_up_to", "limit", "packs", "alone")
        return replace(Probe(setup, form, True, ""), **{name: told[name] for name in names})
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
