"""How much a test draws: a fifth in `make test`, all of it in `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

EVERY = os.environ.get("PML_ALL_TESTS") == "1"


def draws(number: int) -> int:
    """Returns how many of `number` examples this run tries."""
    return number if EVERY else max(number // 5, min(number, 10))


def thinned(values: Iterable[Any], fast: Iterable[Any]) -> list[Any]:
    """Returns parameters of a test; those that are not `fast` are long.

    A tuple has the values of several parameters.
    """
    chosen = [*fast]
    return [
        value
        if value in chosen
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in values
    ]
