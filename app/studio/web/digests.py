"""Digests of texts, to match results with documents."""

from __future__ import annotations

import hashlib
from typing import Any

from engine.pml import Schema, reads_files
from engine.pml.tree.tree import Module, Param, Role, Text, Union


def digest(text: str) -> str:
    """Returns a short digest of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def digest_of_schema(source: str, tree: Schema | None) -> str:
    """Returns a short digest of a schema's text and of the files that it reads.

    Args:
        source: its text.
        tree: the parsed schema, or None.
    """
    if tree is None or not reads_files(source):
        return digest(source)
    return digest("\0".join((source, *_content(tree), *(repr(group.modules) for group in tree.scaffolds))))


def _content(tree: Schema) -> list[str]:
    """Returns a schema's content: each node, and its end, regardless of the source file."""
    content: list[str] = []
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        match node:
            case str():
                content.append(node)
                continue
            case Text():
                content.append(node.text)
                continue
            case Param():
                content.append(repr((node.name, node.length, node.default, node.scaffold, node.repeats)))
                continue
            case Module():
                content.append(repr((node.name, node.cache)))
            case Union():
                content.append(repr(node.scaffold))
            case Role():
                content.append(node.role)
        pending.append("</>")
        pending.extend(reversed(node.members if isinstance(node, Union) else node.children))
    return content
