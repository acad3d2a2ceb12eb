"""How much a test draws: a fifth in `make test`, all of it in `make test-all`."""

from __future__ import annotations

import os

EVERY = os.environ.get("PML_ALL_TESTS") == "1"


def draws(number: int) -> int:
    """Returns how many of `number` examples this run tries."""
    return number if EVERY else max(number // 5, min(number, 10))
