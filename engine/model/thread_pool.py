"""The threads with which torch computes on the processor: given up by a thread that computes no more.

GNU's OpenMP library, which torch's wheels for Linux bring along, keeps a pool for each thread of the program
that has computed, for as long as that thread lives. Once there are more threads in all pools than processors,
none of them waits actively for its next piece any more (`config/linux/wait.h` of libgomp); a step then takes
1.3 to 1.9 times as long. A pool is set up again within 0.1 ms.
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
    """Gives up the pool of the calling thread, which its next step sets up again.

    Does nothing with another library of threads, and in a child of a fork, whose pool has no threads.
    """
    pause = _pause()
    if pause is not None and os.getpid() == _loaded_by:
        pause(_SOFT)


@cache
def _pause() -> Callable[[int], int] | None:
    """The function that gives a pool up; None where torch does not compute with GNU's library."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            # What is loaded already is asked for, so that this is the library whose pools are meant.
            found: Callable[[int], int] = ctypes.CDLL(os.fspath(path), mode=os.RTLD_NOLOAD)[_PAUSE]
        except (OSError, AttributeError):
            continue
        return found
    log.info("pools of threads are kept: torch computes with another library than GNU's OpenMP")
    return None
