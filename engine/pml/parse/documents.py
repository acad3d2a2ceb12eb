"""Parsed documents: the cache of their trees, and the earlier versions of schemas."""

from __future__ import annotations

import re
import threading
from collections import deque
from pathlib import Path
from typing import Final

from cachetools import LRUCache, cached

from engine.pml.parse.prompt_parser import build_prompt
from engine.pml.parse.schema_parser import build_schema
from engine.pml.tree.tree import Parsed, Prompt, Schema
from engine.pml.xml.reader import read

_CACHED: Final = 64_000_000  # estimated bytes of the trees of schemas, and of those of prompts, in the cache
_TAG_BYTES: Final = 1000
_DIAGNOSTIC_BYTES: Final = 2000
_VERSIONS: Final = 64
_READS_FILES: Final = re.compile(r"\bsrc\s*=")


def parse_schema(source: str | bytes, *, base: Path | None = None) -> Parsed[Schema]:
    """Parses a schema, as far as possible, with every diagnostic.

    The same text has the same result, unless it reads other files.

    Args:
        source: the text, or the bytes of a file.
        base: the folder of `src` attributes.
    """
    if isinstance(source, bytes) or reads_files(source):
        return _schema(source, base)
    return _cached_schema(source)


def parse_prompt(source: str | bytes, *, base: Path | None = None) -> Parsed[Prompt]:
    """Parses a prompt, as far as possible, with every diagnostic that needs no schema.

    Args:
        source: the text, or the bytes of a file.
        base: the folder of a `src` attribute; without it, `bind` reports the attribute.
    """
    if isinstance(source, bytes) or (base is not None and reads_files(source)):
        return _prompt(source, base)
    return _cached_prompt(source)


def reads_files(source: str) -> bool:
    """Whether a document may read other files."""
    return "src" in source and _READS_FILES.search(source) is not None


class EarlierSchemas:
    """The last valid versions of schemas, for diagnostics that explain old names. Thread-safe."""

    def __init__(self) -> None:
        self._trees: deque[tuple[Path | None, Schema]] = deque(maxlen=_VERSIONS)
        self._lock = threading.Lock()

    def add(self, parsed: Parsed[Schema], folder: Path | None = None) -> None:
        """Adds a version if it has no errors."""
        if parsed.tree is None or not parsed.ok:
            return
        with self._lock:
            others = [version for version in self._trees if version[1] is not parsed.tree]
            self._trees.clear()
            self._trees.extend([*others, (folder, parsed.tree)])

    def of(self, schema: Schema, folder: Path | None = None) -> list[Schema]:
        """Returns the other versions of a schema, latest first."""
        with self._lock:
            trees = [tree for place, tree in reversed(self._trees) if place == folder]
        return [tree for tree in trees if tree is not schema and tree.name == schema.name]


def _schema(source: str | bytes, base: Path | None) -> Parsed[Schema]:
    document = read(source)
    return Parsed(build_schema(document, base), document.report.finish(), document.text)


def _prompt(source: str | bytes, base: Path | None) -> Parsed[Prompt]:
    document = read(source, prompt=True)
    return Parsed(build_prompt(document, base), document.report.finish(), document.text)


def _size(parsed: Parsed[Schema] | Parsed[Prompt]) -> int:
    """Estimates the bytes of a tree."""
    tags, text = parsed.source.count("<"), 4 * len(parsed.source)
    return text + _TAG_BYTES * tags + _DIAGNOSTIC_BYTES * len(parsed.diagnostics)


@cached(LRUCache(_CACHED, getsizeof=_size), lock=threading.Lock())
def _cached_schema(source: str) -> Parsed[Schema]:
    return _schema(source, None)


@cached(LRUCache(_CACHED, getsizeof=_size), lock=threading.Lock())
def _cached_prompt(source: str) -> Parsed[Prompt]:
    return _prompt(source, None)
