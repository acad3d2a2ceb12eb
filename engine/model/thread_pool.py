"""Releases torch's processor threads of a thread that stops computing.

GNU's OpenMP library, part of torch's Linux wheels, has a thread pool for each program thread that computes.
The pool lives as long as that thread. If all pools together have more threads than there are processors, no
thread waits actively for work (`config/linux/wait.h` of libgomp). A step then takes 1.3 to 1.9 times as long.
A new pool takes up to 0.1 ms.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

log = logging.getLogger(__name__)

_PAUSE = "omp_pause_resource_all"  # OpenMP 5.0, section 3.6
_SOFT = 1
_loaded_by = os.getpid()


def release_thread_pool() -> None:
    """Releases the pool of the calling thread; its next step makes a new one.

    Does nothing with another thread library, and in a forked child, whose pool has no threads.
    """
    pause = _pause()
    if pause is not None and os.getpid() == _loaded_by:
        pause(_SOFT)


@cache
def _pause() -> Callable[[int], int] | None:
    """The function that releases a pool; None if torch does not use GNU's library."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            # RTLD_NOLOAD finds the loaded library, which has the pools.
            pause: Callable[[int], int] = ctypes.CDLL(os.fspath(path), mode=os.RTLD_NOLOAD)[_PAUSE]
        except (OSError, AttributeError):
            continue
        return pause
    log.info("thread pools are not released: torch does not use GNU's OpenMP")
    return None
