"""The command line `pml`: one file per command, words for every fault, JSON where a program reads."""

from __future__ import annotations

from app.cli.command import main

__all__ = ["main"]
