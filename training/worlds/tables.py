"""Reads the word and sentence tables that stand beside the grammars."""

from __future__ import annotations

import tomllib
from pathlib import Path

__all__ = ["tables"]


def tables(name: str) -> dict[str, list[str]]:
    """The lists in `<name>.toml`."""
    with (Path(__file__).parent / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)
