"""The rows of many token paths after one prompt, as trees that fit into forward passes.

Paths that begin with the same tokens share rows: the options of a question, and questions with the same first
words. A row sees the prompt and its own path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

ROOT = -1


@dataclass(frozen=True)
class Path:
    """The tokens after the prompt that one label needs.

    Attributes:
        token_ids: the tokens of the question and of the label, without the label's last one.
        positions: their positions, ascending.
        scored: the tokens to score, and the number of rows before each of them.
    """

    token_ids: tuple[int, ...]
    positions: tuple[int, ...]
    scored: tuple[tuple[int, int], ...]

    def after(self, count: int) -> Path:
        """Returns the path without its first rows, which come before those that score a token."""
        scored = tuple((rows - count, token) for rows, token in self.scored)
        return Path(self.token_ids[count:], self.positions[count:], scored)


@dataclass
class RowTree:
    """The rows of some paths in one pass.

    Attributes:
        token_ids: the token of each row, in order of insertion.
        positions: the position of each row.
        parents: the row before each row on its path, ROOT for the first.
        paths: for each path its index and its rows.
    """

    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    paths: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    _known: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.token_ids)

    def missing(self, path: Path) -> int:
        """Returns the number of rows that a path would add."""
        parent = ROOT
        for place, row in enumerate(zip(path.token_ids, path.positions, strict=True)):
            found = self._known.get((parent, *row))
            if found is None:
                return len(path.token_ids) - place
            parent = found
        return 0

    def add(self, index: int, path: Path) -> None:
        """Adds a path under its index."""
        rows, parent = [], ROOT
        for token, position in zip(path.token_ids, path.positions, strict=True):
            row = self._known.setdefault((parent, token, position), len(self))
            if row == len(self):
                self.token_ids.append(token)
                self.positions.append(position)
                self.parents.append(parent)
            rows.append(row)
            parent = row
        self.paths.append((index, tuple(rows)))

    def by_position(self) -> tuple[list[int], Tensor]:
        """Returns the rows in ascending order of position, and what each of them does not see.

        Returns:
            The rows, and bool [rows, rows] in that order, true where a row does not see another.
        """
        order = sorted(range(len(self)), key=self.positions.__getitem__)
        place = {row: index for index, row in enumerate(order)}
        unseen = torch.ones(len(order), len(order), dtype=torch.bool)
        for index, row in enumerate(order):
            if self.parents[row] != ROOT:
                unseen[index] = unseen[place[self.parents[row]]]
            unseen[index, index] = False
        return order, unseen


def packed(paths: Mapping[int, Path], most: int) -> Iterator[RowTree]:
    """Packs paths, in order, into trees of at most `most` rows; a longer path has a tree of its own."""
    tree = RowTree()
    for index, path in paths.items():
        if len(tree) and len(tree) + tree.missing(path) > most:
            yield tree
            tree = RowTree()
        tree.add(index, path)
    if tree.paths:
        yield tree
