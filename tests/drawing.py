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


def each(values: Iterable[Any], *first: Any) -> list[Any]:
    """Returns `values` as parameters of a test; `make test` tries only `first`, `make test-all` tries all.

    A tuple has a value for each name.
    """
    every = [(value, value if isinstance(value, tuple) else (value,)) for value in values]
    return [pytest.param(*parts, marks=[] if value in first else pytest.mark.long) for value, parts in every]
