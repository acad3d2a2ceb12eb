"""Reading an open file by its descriptor, each way as well as the system can."""

from __future__ import annotations

import contextlib
import mmap
import os

import torch
from torch import Tensor

_PIECE = 8 << 20


def read_at(descriptor: int, count: int, at: int) -> bytes:
    """Reads bytes from a place; fewer where the file ends.

    Args:
        descriptor: a file that nobody else reads through it meanwhile: without `pread` its position moves.
        count: how many bytes to read.
        at: the offset of the first one.

    Raises:
        OSError: it cannot be read.
    """
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, at)
    os.lseek(descriptor, at, os.SEEK_SET)
    return os.read(descriptor, count)


def read_whole(descriptor: int, size: int) -> bytearray:
    """Reads the first bytes of a file; what comes after its end stays zero.

    Raises:
        OSError, MemoryError: it cannot be read.
    """
    content, at = bytearray(size), 0
    view = memoryview(content)
    while at < size and (count := _read_into(view[at : at + _PIECE], descriptor, at)):
        at += count
    return content


def _read_into(target: memoryview, descriptor: int, at: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], at)
    piece = read_at(descriptor, len(target), at)
    target[: len(piece)] = piece
    return len(piece)


def mapped(descriptor: int, size: int) -> Tensor:
    """Maps a file's first bytes; what is written into the tensor stays in memory.

    Where the system has no name for a descriptor the file stays open for as long as the tensor is used, and
    Windows deletes no file that is mapped.

    Returns:
        uint8 of shape [size].

    Raises:
        OSError: it cannot be mapped.
    """
    place = f"/dev/fd/{descriptor}"
    try:
        if not os.path.exists(place):  # noqa: PTH110
            return in_memory(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY))
        storage = torch.UntypedStorage.from_file(place, False, size)
        return torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[arg-type]
    except (RuntimeError, ValueError) as error:  # torch's and mmap's words for a file that cannot be mapped
        raise OSError(str(error)) from error


def in_memory(content: bytearray | mmap.mmap) -> Tensor:
    """The bytes as a tensor, where they lie.

    Returns:
        uint8 of shape [bytes].

    Raises:
        OSError: there are none, or torch has no room for them.
    """
    try:
        return torch.frombuffer(content, dtype=torch.uint8)
    except RuntimeError as error:
        raise OSError(str(error)) from error


def expect(descriptor: int, at: int, count: int) -> None:
    """Has the operating system read bytes ahead, where it takes such hints."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, at, count, os.POSIX_FADV_WILLNEED)
