"""Describes the machine of a measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from engine.model.model import Model


def machine(model: Model) -> dict[str, Any]:
    """Describes where figures of a model were taken."""
    found = facts()
    return {
        **{name: found.pop(name) for name in ("processor", "cores", "threads")},
        "device": model.device,
        "weights": model.weights,
        **found,
    }


def facts() -> dict[str, Any]:
    """Describes the machine and what runs on it."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
