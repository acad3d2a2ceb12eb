"""Reads an open file by its descriptor, in the best way of the system."""

from __future__ import annotations

import contextlib
import mmap
import os

import torch
from torch import Tensor

_PIECE = 8 << 20


def read_at(descriptor: int, count: int, at: int) -> bytes:
    """Reads bytes at an offset; fewer at the end of the file.

    The file must not have concurrent readers, because without `pread` its position moves.

    Raises:
        OSError: it cannot be read.
    """
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, at)
    os.lseek(descriptor, at, os.SEEK_SET)
    return os.read(descriptor, count)


def read_whole(descriptor: int, size: int) -> bytearray:
    """Reads the first bytes of a file, padded with zeros; may raise OSError or MemoryError."""
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
    """Maps a file's first bytes as uint8 [size]; writes to the tensor stay in memory.

    On systems without paths for descriptors the file stays open while the tensor is used. Windows cannot
    delete mapped files.

    Raises:
        OSError: it cannot be mapped.
    """
    place = f"/dev/fd/{descriptor}"
    try:
        if not os.path.exists(place):  # noqa: PTH110
            return in_memory(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY))
        storage = torch.UntypedStorage.from_file(place, False, size)
        return torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[arg-type]
    except (RuntimeError, ValueError) as error:  # raised by torch or mmap
        raise OSError(str(error)) from error


def in_memory(content: bytearray | mmap.mmap) -> Tensor:
    """Returns the bytes as a tensor, uint8 [bytes], without a copy; raises OSError if there are none."""
    try:
        return torch.frombuffer(content, dtype=torch.uint8)
    except RuntimeError as error:
        raise OSError(str(error)) from error


def expect(descriptor: int, at: int, count: int) -> None:
    """Makes the operating system read bytes ahead, if it supports such hints."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, at, count, os.POSIX_FADV_WILLNEED)
