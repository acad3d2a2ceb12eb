"""The size and number of a network's weights, and the free memory of a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.quantize.packed_weights import PackedLinear
from engine.quantize.quantized_weights import QuantizedLinear

MEMINFO = Path("/proc/meminfo")
GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


@dataclass(frozen=True)
class WeightSizes:
    """The number of a network's weights (shared ones count once), and their bytes with scales."""

    count: int
    bytes: int


def weight_sizes(module: Any) -> WeightSizes:
    """Returns the sizes of a transformers network's weights; some of its layers may be packed or rounded."""
    count = size = 0
    seen: set[int] = set()
    for part in module.modules():
        if isinstance(part, (PackedLinear, QuantizedLinear)):
            count += part.in_features * part.out_features
        if isinstance(part, PackedLinear):
            size += part.in_features * part.out_features * part.dtype.itemsize
        tensors = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
        for name, tensor in tensors:
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            size += tensor.nbytes
            if name in part._parameters and not (isinstance(part, QuantizedLinear) and name == "codes"):
                count += tensor.numel()
    return WeightSizes(count, size)


@dataclass(frozen=True)
class Free:
    """The memory of a device, in bytes: free now, and in total."""

    free: int
    total: int


def free_memory(device: str) -> Free | None:
    """Returns the memory of a device as torch names it; None if the system does not report it."""
    if device.startswith("cuda"):
        import torch

        free, total = torch.cuda.mem_get_info(torch.device(device))
        return Free(free, total)
    try:
        rows = dict(line.split(":", 1) for line in MEMINFO.read_text(encoding="ascii").splitlines())
        free, total = (int(rows[name].split()[0]) << 10 for name in ("MemAvailable", "MemTotal"))
    except (OSError, ValueError, LookupError):
        return None
    for most, used in GROUPS:  # the limit of a container may be lower than the machine's memory
        try:
            bound = int(most.read_text(encoding="ascii"))
            free = min(free, max(0, bound - int(used.read_text(encoding="ascii"))))
            total = min(total, bound)
        except (OSError, ValueError):  # "max" means no limit
            continue
    return Free(free, total)
