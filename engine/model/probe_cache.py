"""What was measured on a model, remembered: a known model starts without its probe.

A measurement is kept under everything that it depends on: the bytes of the checkpoint, number format, device,
versions, and the code that measured. What is remembered is never simply believed: three short passes show
that it reproduces the model's own logits before anything is computed with it, and after a month all of it is
measured again. What does not agree is forgotten, said, and measured.
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
_CODE = ("model", "attention", "kv_cache", "base/segment.py")  # what measures, and what attends


@dataclass(frozen=True)
class Memory:
    """Measurements of earlier starts, in one file. A damaged or foreign file is an empty memory.

    Attributes:
        path: the file.
        now: the clock, in seconds since 1970.
    """

    path: Path
    now: Callable[[], float] = time.time

    def probed(self, network: Network, name: str, fingerprint: str) -> Probe:
        """Returns what was measured on a network: remembered where it still holds, else measured now.

        Args:
            network: of which the module is measured, whatever its own setup is.
            name: of the model, for messages.
            fingerprint: digest of weights, configuration and tokenizer.

        Raises:
            ModelError: neither path reproduces it.
        """
        key = _key(network, fingerprint)
        known = self._get(key, network)
        if known is not None and holds(network, known):
            return known
        if known is not None:
            log.warning(
                "what was remembered of model %s does not reproduce it; it is forgotten and measured again",
                name,
            )
        try:
            found = probe(network, name)
        except ModelError:
            self._put(key, None)
            raise
        self._put(key, found)
        return found

    def _get(self, key: str, network: Network) -> Probe | None:
        row = self._rows().get(key)
        if row is None or not 0 <= self.now() - row["measured"] < VALID_SECONDS:
            return None
        found = _read(row["probe"])
        return found if found is not None and found.form.layers == network.layers else None

    def _put(self, key: str, found: Probe | None) -> None:
        """Writes a measurement, or takes it away; what other processes wrote in the meantime stays."""
        rows = self._rows()
        if rows.pop(key, None) is None and found is None:
            return
        if found is not None:
            rows[key] = {"measured": self.now(), "probe": (told := _written(found)), "digest": _digest(told)}
        kept = {"format": _FORMAT, "probes": dict(list(rows.items())[-KEPT:])}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.writing(self.path.parent, self.path.name) as file:
                file.write(json.dumps(kept).encode())
        except OSError as error:
            log.info("what was measured was not remembered in %s: %s", self.path, error)

    def _rows(self) -> dict[str, dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                held: Any = json.loads(file.read(LARGEST))
        except (OSError, ValueError, RecursionError):
            return {}
        rows = held.get("probes") if isinstance(held, dict) and held.get("format") == _FORMAT else None
        return {key: row for key, row in rows.items() if _sound(row)} if isinstance(rows, dict) else {}


def _key(network: Network, fingerprint: str) -> str:
    """Everything that decides what is measured."""
    device = network.device
    runs_on = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    parts = (
        *(fingerprint, str(network.dtype), str(device), runs_on, torch.backends.cpu.get_cpu_capability()),
        *bf16_upcast.told_by(),
        *(version("torch"), version("transformers"), _code()),
    )
    return xxhash.xxh3_128_hexdigest("\0".join(parts).encode())


def _code() -> str:
    """A digest of the code that measures and attends."""
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
        case {"measured": int() | float(), "probe": dict() as told, "digest": str() as digest}:
            return digest == _digest(told)
    return False


def _written(found: Probe) -> dict[str, Any]:
    """A probe as JSON: each rotary embedding once, and which one each layer has."""
    distinct = list({id(one): one for one in found.setup.rotaries if one is not None}.values())
    places = {id(one): place for place, one in enumerate(distinct)}
    return {
        "path": found.setup.path,
        "carried": found.setup.carried,
        "rotaries": [[one.inverse_frequency.tolist(), one.interleaved] for one in distinct],
        "layers": [None if one is None else places[id(one)] for one in found.setup.rotaries],
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
    """The probe of what `_written` returned; None of anything else."""
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
