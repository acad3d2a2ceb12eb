"""The base class of releasable resources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Releasable(ABC):
    """A resource that is released by `with` or by `release`."""

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Releases it."""
        self.release()

    @abstractmethod
    def release(self) -> None:
        """Releases the resource; a second call does nothing."""
