"""The identity of a checkpoint: what is in its files, not what it is called.

Small files are read whole. Of a weight file beyond `WHOLE` bytes the header, the size and blocks spread
evenly over it are read: a changed checkpoint differs in practically all of them, but a change to a few
values between the sampled blocks would go unseen.

Digests of large folders are remembered, by inode, size and both times of every file. A change that leaves all
of these as they were would go unseen; no ordinary tool can set the time of change.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

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


def fingerprint_folder(folder: Path, memory: Path | None = None) -> str:
    """Returns a digest (32 hexadecimal digits) of a checkpoint's weights, config and tokenizer.

    Args:
        folder: of the checkpoint.
        memory: a file that remembers the digests of large folders; None for none.

    Raises:
        OSError: a file cannot be read.
    """
    parts = [folder / name for name in _PARTS if (folder / name).is_file()]
    weights = sorted(folder.glob("*.safetensors"))
    if memory is None or sum(path.stat().st_size for path in weights) <= WHOLE:
        return _digest(parts, weights)
    place, seen = str(folder.resolve()), _signature([*parts, *weights])
    known = _remembered(memory)
    if known.get(place, [None])[0] == seen:
        return str(known[place][1])
    found = _digest(parts, weights)
    _remember(memory, {**_remembered(memory), place: [seen, found]})
    return found


def _digest(parts: Sequence[Path], weights: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in parts:
        digest.update(f"{path.name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for path in weights:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        _update_with_file(digest, path)
    return digest.hexdigest()[:32]


def _signature(paths: Sequence[Path]) -> str:
    stats = [(path.name, path.stat()) for path in paths]
    rows = [(name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in stats]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _remembered(memory: Path) -> dict[str, list[str]]:
    try:
        found = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    sound = isinstance(found, dict) and all(isinstance(v, list) and len(v) == 2 for v in found.values())
    return found if sound else {}


def _remember(memory: Path, known: dict[str, list[str]]) -> None:
    temporary = memory.with_name(f".{memory.name}.{uuid.uuid4().hex}")
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.replace(memory)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        log.info("the fingerprint was not remembered in %s: %s", memory, error)


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
