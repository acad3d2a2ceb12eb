"""Embeds texts: one prefill of the template's first part, then all texts in packed passes after it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.base.errors import ModelError, SettingsError
from engine.base.events import Event, Listener, Working
from engine.base.segment import Placement
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import SegmentCache, wanted
from engine.decisions.row_tree import Path, RowTree, packed
from engine.embeddings.templates import Template
from engine.inference.step_lock import Computing, Progress
from engine.kv_cache.protocol import KVCache
from engine.maps.reuse import MapReuse

Pooling = Literal["last", "mean"]
POOLINGS: tuple[Pooling, ...] = ("last", "mean")
MOST_ROWS = 512  # of a pass
Vectors: TypeAlias = NDArray[np.float32]


class TextError(SettingsError):
    """A text that cannot be embedded.

    Attributes:
        number: its index.
        why: the reason.
        tokens: its length if it exceeds the context window; else 0.
    """

    def __init__(self, number: int, why: str, tokens: int = 0) -> None:
        super().__init__(f"text {number + 1} {why}")
        self.number, self.why, self.tokens = number, why, tokens


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of texts, in order.

    Attributes:
        vectors: float32 [texts, dimensions].
        tokens: the number of tokens of each text in its template.
        mapped: for each text whether it was read with stored attention maps.
    """

    vectors: Vectors
    tokens: tuple[int, ...]
    mapped: tuple[bool, ...]


@dataclass(frozen=True)
class Embedder:
    """Embeds texts of one engine in one way. Made by `Engine.embedder`.

    Attributes:
        cache: segments and the model.
        computing: schedules steps.
        template: the tokens around each text.
        pooling: "last" for the last token, or "mean" over the text in the template's last place.
        dimensions: the number of leading dimensions to return; None for all.
        normalize: whether each embedding has the length 1.
        maps: stored attention maps that similar texts are read with, token by token and without segments;
            None for none.
    """

    cache: SegmentCache
    computing: Computing
    template: Template
    pooling: Pooling
    dimensions: int | None
    normalize: bool
    maps: MapReuse | None = None

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise SettingsError(f"pooling is {self.pooling!r}; it must be {' or '.join(POOLINGS)}.")
        if self.dimensions is not None and not (
            type(self.dimensions) is int and 1 <= self.dimensions <= self.hidden
        ):
            raise SettingsError(
                f"dimensions is {self.dimensions!r}; it must be a whole number from 1 to {self.hidden}."
            )

    @property
    def hidden(self) -> int:
        """The number of dimensions of the model's hidden states."""
        network = self.cache.model.network
        return int(getattr(network.module.get_output_embeddings(), "in_features", network.config.hidden_size))

    def embed(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        progress: Progress | None = None,
        listener: Listener | None = None,
    ) -> Embeddings:
        """Embeds texts. Lists of tokens are read as they are, without the template.

        Args:
            texts: the texts, or their tokens.
            progress: called with (done, total, label) before each pass.
            listener: asked during a step if the work is still wanted.

        Raises:
            CancelledError: the listener cancelled the work.
            ModelError: the model computes invalid numbers.
            TextError: a text is empty, exceeds the context window, or has tokens outside the vocabulary.
        """
        clock = Stopwatch()
        return self.computing.finish(self._steps(texts, clock), "cached", clock, progress, listener)

    def require(self, texts: Sequence[str]) -> None:
        """Raises TextError for the first text that cannot be embedded."""
        for number, text in enumerate(texts):
            self._row(number, text)

    def _steps(
        self, texts: Sequence[str | Sequence[int]], clock: Stopwatch
    ) -> Generator[Event, None, Embeddings]:
        rows = [self._row(number, text) for number, text in enumerate(texts)]
        pooled = yield from self._mapped(rows)
        others = [number for number in range(len(rows)) if number not in pooled]
        template = self.template if others and isinstance(texts[0], str) else None
        slices = template.slices if template else ()
        request = Request(self.template.prompt.schema.label, "anchored", sync=True)
        fetched = yield from self.cache.segments(wanted(slices), request, clock)
        with fetched:
            placements = fetched.place(slices)
            before = template.parts[0] if template else ()
            found = yield from self._pooled([rows[number] for number in others], before, placements)
        self.cache.note(fetched.served)
        pooled |= dict(zip(others, found, strict=True))
        vectors = torch.stack([pooled[number] for number in range(len(rows))]) if rows else found
        counts = tuple(len(row.token_ids) for row in rows)
        plain = {*others}
        mapped = tuple(number not in plain for number in range(len(rows)))
        return Embeddings(self._finished(vectors), counts, mapped)

    def _mapped(self, rows: Sequence[_Row]) -> Generator[Event, None, dict[int, Tensor]]:
        """The pooled states of rows that are similar to stored texts."""
        pooled: dict[int, Tensor] = {}
        for number, row in enumerate(rows if self.maps is not None else ()):
            assert self.maps is not None
            yield Working("cached", "texts with stored maps", number, len(rows))
            states = self.maps.states(row.token_ids)
            if states is not None:
                pooled[number] = states[row.pooled].float().mean(0).cpu()
        return pooled

    def _row(self, number: int, text: str | Sequence[int]) -> _Row:
        """The tokens of a text."""
        model = self.cache.model
        if isinstance(text, str):
            tokens, place = self.template.around(text)
        else:
            tokens, place = list(text), slice(0, len(text))
            if wrong := [token for token in tokens if not 0 <= token < model.unknown_tokens.known]:
                raise TextError(number, f"has the token {wrong[0]}, which the model does not know.")
        if place.start == place.stop:
            raise TextError(number, "is empty.")
        if len(tokens) > model.context_length:
            why = f"has {len(tokens)} tokens; {model.name!r} reads at most {model.context_length}."
            raise TextError(number, why, len(tokens))
        return _Row(tokens, place if self.pooling == "mean" else slice(len(tokens) - 1, len(tokens)))

    def _pooled(
        self, rows: Sequence[_Row], before: Sequence[int], placements: Sequence[Placement]
    ) -> Generator[Event, None, Tensor]:
        """The pooled states of texts that begin with the same tokens, some of which are in placements."""
        network, start = self.cache.model.network, len(before)
        read = {place for one in placements for place in range(one.start, one.start + one.tokens)}
        first = [place for place in range(start) if place not in read]
        longest = max((len(row.token_ids) - start for row in rows), default=0)
        kv = network.kv_cache(placements, len(first) + max(MOST_ROWS, longest))
        if first and rows:
            network.forward([before[place] for place in first], first, kv, keep=0)
        by_length = sorted(range(len(rows)), key=lambda number: len(rows[number].token_ids))
        paths = [
            Path(tuple(tokens[start:]), tuple(range(start, len(tokens))), ())
            for tokens in (rows[number].token_ids for number in by_length)
        ]
        together = network.setup.path == "segments" and not self.cache.model.alone
        vectors = torch.zeros(len(rows), self.hidden)
        done = 0
        for tree in packed(dict(enumerate(paths)), MOST_ROWS if together else 0):
            yield Working("cached", "texts", done, len(rows))
            pooled = {by_length[index]: own for index, own in tree.paths}
            kept = {number: own[_moved(rows[number].pooled, start)] for number, own in pooled.items()}
            states = self._states(tree, kv, sorted({row for own in kept.values() for row in own}))
            for number, own in kept.items():
                vectors[number] = torch.stack([states[row] for row in own]).mean(0)
            kv.truncate(len(first))
            done += len(tree.paths)
        return vectors

    def _finished(self, vectors: Tensor) -> Vectors:
        """The embeddings of pooled states [texts, hidden]."""
        if not vectors.isfinite().all():
            raise ModelError(
                "The model computed an invalid number. Use another number format (--dtype fp32 or bf16)."
            )
        vectors = vectors[:, : self.dimensions]
        made: Vectors = (nn.functional.normalize(vectors) if self.normalize else vectors).numpy()
        return made

    def _states(self, tree: RowTree, kv: KVCache, wanted: Sequence[int]) -> dict[int, Tensor]:
        """The final hidden states of rows of a tree."""
        network = self.cache.model.network
        with network.headless():
            if len(tree.paths) == 1:
                keep = torch.tensor(wanted, device=network.device)
                states = network.forward(tree.token_ids, tree.positions, kv, keep)
            else:
                order, unseen = tree.by_position()
                place = {row: index for index, row in enumerate(order)}
                tokens = [tree.token_ids[row] for row in order]
                positions = [tree.positions[row] for row in order]
                states = network.forward_tree(tokens, positions, kv, unseen, [place[row] for row in wanted])
        return dict(zip(wanted, states.float().cpu(), strict=True))


@dataclass(frozen=True)
class _Row:
    """A text in its template: the tokens, and those whose states are averaged."""

    token_ids: list[int]
    pooled: slice


def _moved(place: slice, by: int) -> slice:
    return slice(place.start - by, place.stop - by)
