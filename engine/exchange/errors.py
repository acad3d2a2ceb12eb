"""What can be wrong with an export or an import."""

from __future__ import annotations

from engine.errors import StudioError


class ExchangeError(StudioError):
    """A document that another form cannot hold, or a source that cannot be read as one."""
