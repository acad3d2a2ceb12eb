"""Interrupts an unwanted long pass between two layers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

WORTH_ROWS = 32  # a shorter pass ends soon


class InterruptedPassError(Exception):
    """A pass was interrupted between two layers. None of its rows count."""


@contextlib.contextmanager
def left_early(module: Any, layers: int, unwanted: Callable[[], bool]) -> Iterator[None]:
    """Makes a network check before each of its layers if its passes are still wanted.

    Args:
        module: a network of transformers; without a separate list of its layers, passes run to the end.
        layers: the number of layers.
        unwanted: whether to interrupt a pass; called on the thread that makes it.

    Raises:
        InterruptedPassError: from the interrupted pass.
    """

    def look(*_: Any) -> None:
        if unwanted():
            raise InterruptedPassError

    lists = (part for part in module.modules() if isinstance(part, nn.ModuleList) and len(part) == layers)
    hooks = [layer.register_forward_pre_hook(look) for layer in next(lists, ())]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
