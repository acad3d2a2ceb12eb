"""Schemas and prompts in other forms, and other forms as schemas and prompts.

`docs/exchange.md` says what each form can hold.
"""

from __future__ import annotations

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import Imported
from engine.exchange.folder.from_folder import FolderOptions
from engine.exchange.forms import FORMS, Exported, export
from engine.exchange.sources import KINDS, import_from

__all__ = [
    "FORMS",
    "KINDS",
    "ExchangeError",
    "Exported",
    "FolderOptions",
    "Imported",
    "export",
    "import_from",
]
