"""The identity of a checkpoint: what is in its files, not what it is called.

Small files are read whole. Of a weight file beyond `WHOLE` bytes the header, the size and blocks spread
evenly over it are read: a changed checkpoint differs in practically all of them, but a change to a few
values between the sampled blocks would go unseen.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

WHOLE = 64 << 20  # bytes
BLOCK = 1 << 20
BLOCKS = 64

_PARTS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tokenizer.model",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
)  # generation_config.json says how to sample, not what keys and values are


def fingerprint_folder(folder: Path) -> str:
    """Returns a digest (32 hexadecimal digits) of a checkpoint's weights, config and tokenizer.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for name in _PARTS:
        path = folder / name
        if path.is_file():
            digest.update(f"{name}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        _update_with_file(digest, path)
    return digest.hexdigest()[:32]


def _update_with_file(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE:
            while chunk := file.read(BLOCK):
                digest.update(chunk)
            return
        for index in range(BLOCKS):  # the first block holds the header
            file.seek((size - BLOCK) * index // (BLOCKS - 1))
            digest.update(file.read(BLOCK))
