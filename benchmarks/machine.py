"""Where figures were taken, in words."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from engine.model.model import Model


def machine(model: Model) -> dict[str, Any]:
    """Describes where figures were taken."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": model.device,
        "weights": model.weights,
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
