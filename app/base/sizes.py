"""Formats numbers of bytes."""

from __future__ import annotations


def size(count: int) -> str:
    """Formats a number of bytes: `512 B`, `1.5 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
