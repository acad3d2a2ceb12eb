"""What can be wrong with an export or an import."""

from __future__ import annotations

from engine.base.errors import PromptCacheError


class ExchangeError(PromptCacheError):
    """A document that another form cannot hold, or a source that cannot be read as one."""
