"""Schemas and prompts in other forms, and other forms as schemas and prompts.

`docs/exchange.md` says what each form can hold.
"""

from __future__ import annotations

from engine.exchange.errors import ExchangeError
from engine.exchange.forms import FORMS, Exported, export

__all__ = ["FORMS", "ExchangeError", "Exported", "export"]
