"""Converts schemas and prompts to and from other forms.

`docs/exchange.md` lists what each form supports.
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
