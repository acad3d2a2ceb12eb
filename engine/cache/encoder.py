"""Tokens in the sight of others → segments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from engine.base.segment import Placement, Segment
from engine.kv_cache.packed_kv_cache import PackedText, empty_segment
from engine.model.model import Model
from engine.prompt.recipe import Recipe

Rows = Callable[[], int | None]  # tokens of the next pass at most, one at least; None for all that there are


def encode(model: Model, recipes: Sequence[Recipe], segments: Mapping[str, Segment]) -> list[Segment]:
    """Computes the keys and values of recipes in one pass; all else as for `encode_in_parts`."""
    work = encode_in_parts(model, recipes, segments, lambda: None)
    try:
        next(work)
    except StopIteration as end:
        made: list[Segment] = end.value
        return made
    raise AssertionError("one pass has no pauses")


def encode_in_parts(
    model: Model, recipes: Sequence[Recipe], segments: Mapping[str, Segment], rows: Rows
) -> Generator[None, None, list[Segment]]:
    """Computes the keys and values of recipes (paper, section 3.3, where they see nothing else).

    What a recipe sees stands before its `start`, for most models at negative positions, and its tokens at
    `start` and after, so the keys come out at local positions.

    Args:
        model: the model that reads the tokens.
        recipes: the recipes; at least one, and several only of a model that packs.
        segments: the segments that they see, by key, but for those of these recipes.
        rows: asked before each pass. One pass, if it sets no bound; a model that does not pack, or that
            cannot relocate, takes no other.

    Yields:
        Nothing, between two passes.

    Returns:
        Their segments, in order; keys and values [layers, kv_heads, tokens, head_dim].
    """
    device = model.network.device
    made = {one.key: empty_segment(model.form, one.key, one.token_ids, device) for one in recipes}

    def placed(recipe: Recipe) -> tuple[Placement, ...]:
        return tuple(
            Placement(made.get(seen.recipe.key) or segments[seen.recipe.key], seen.lo, seen.hi, seen.start)
            for seen in recipe.context
        )

    texts = [PackedText(made[one.key], one.start, placed(one)) for one in recipes]
    if not model.packs or not model.relocatable:
        model.network.encode(texts)
    else:
        left = _Left(texts)
        while piece := left.take(rows()):
            model.network.encode(piece)
            if left:
                yield
    return [made[one.key] for one in recipes]


class _Left:
    """Texts of which a part is not computed yet. What is computed of one is seen by the rest of it."""

    def __init__(self, texts: Sequence[PackedText]) -> None:
        self._texts, self._at = list(texts), 0  # of the first of them

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, count: int | None) -> list[PackedText]:
        """The next so many tokens, or fewer where there are no more."""
        return list(self._taken(count))

    def _taken(self, count: int | None) -> Iterator[PackedText]:
        while self._texts and count != 0:
            text, at = self._texts[0], self._at
            tokens = text.segment.tokens
            end = tokens if count is None else min(tokens, at + max(1, count))
            yield _part(text, at, end) if end - at < tokens else text
            count = None if count is None else max(0, count - (end - at))
            if end == tokens:
                del self._texts[0]
            self._at = end % tokens if tokens else 0


def _part(text: PackedText, lo: int, hi: int) -> PackedText:
    """Tokens `lo..hi` of a text, which see those before them. They are written where the text's are."""
    whole = text.segment
    keys, values = whole.keys[:, :, lo:hi], whole.values[:, :, lo:hi]
    part = Segment(whole.key, whole.token_ids[lo:hi], keys, values)
    before = (Placement(whole, 0, lo, text.start),) if lo else ()
    return PackedText(part, text.start + lo, (*text.placements, *before))
