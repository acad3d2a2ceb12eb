"""Errors of an export or an import."""

from __future__ import annotations

from engine.base.errors import PromptCacheError


class ExchangeError(PromptCacheError):
    """A document that another form does not support, or an unreadable source."""
