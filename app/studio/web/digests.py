"""Short names for texts, by which the page knows whether a result belongs to them."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from engine.pml import Schema
from engine.pml.tree.tree import Module, Param, Role, Text, Union

_READS_FILES = re.compile(r"\bsrc\s*=")


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def reads_files(source: str) -> bool:
    """Whether a schema's text may take parts from other files."""
    return _READS_FILES.search(source) is not None


def digest_of_schema(source: str, tree: Schema | None) -> str:
    """A short name for a schema: for its text and, where that takes parts from files, for what these say.

    Args:
        source: its text.
        tree: what it was read as; None where that is nothing.
    """
    if tree is None or not reads_files(source):
        return digest(source)
    return digest("\0".join((source, *_content(tree), *(repr(one.modules) for one in tree.scaffolds))))


def _content(tree: Schema) -> list[str]:
    """What a schema says, wherever its parts are written: each node, and where it ends."""
    found: list[str] = []
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        match node:
            case str():
                found.append(node)
                continue
            case Text():
                found.append(node.text)
                continue
            case Param():
                found.append(repr((node.name, node.length, node.default, node.scaffold, node.repeats)))
                continue
            case Module():
                found.append(repr((node.name, node.cache)))
            case Union():
                found.append(repr(node.scaffold))
            case Role():
                found.append(node.role)
        pending.append("</>")
        pending.extend(reversed(node.members if isinstance(node, Union) else node.children))
    return found
