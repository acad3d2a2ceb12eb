"""Leaving a long pass between two layers, where nobody wants it any more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

WORTH_ROWS = 32  # a pass of fewer is soon over


class InterruptedPassError(Exception):
    """A pass was left between two layers. None of its rows are counted."""


@contextlib.contextmanager
def left_early(module: Any, layers: int, unwanted: Callable[[], bool]) -> Iterator[None]:
    """Has a network ask before each of its layers whether its passes are still wanted.

    Args:
        module: a network of transformers; one whose layers stand in no list of their own runs to its end.
        layers: how many layers it has.
        unwanted: whether a pass is to be left; called on the thread that makes it.

    Raises:
        InterruptedPassError: from the pass, which is left.
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
