"""What stays until somebody lets go of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Releasable(ABC):
    """Something that stays until it is released, by `with` or by `release`."""

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
        """Lets go of it; a second time does nothing."""
