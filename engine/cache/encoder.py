"""Encodes tokens, in the context of others, as segments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from engine.base.segment import Placement, Segment
from engine.kv_cache.packed_kv_cache import PackedText, empty_segment
from engine.model.model import Model
from engine.prompt.recipe import Recipe

Rows = Callable[[], int | None]  # the most tokens of the next pass, at least one; None for no limit


def encode(model: Model, recipes: Sequence[Recipe], segments: Mapping[str, Segment]) -> list[Segment]:
    """Computes the keys and values of recipes in one pass; otherwise like `encode_in_parts`."""
    work = encode_in_parts(model, recipes, segments, lambda: None)
    try:
        next(work)
    except StopIteration as end:
        made: list[Segment] = end.value
        return made
    raise AssertionError("one pass has no pauses")


def encode_in_parts(
    model: Model, recipes: Sequence[Recipe], segments: Mapping[str, Segment], rows: Rows
) -> Generator[int, None, list[Segment]]:
    """Computes the keys and values of recipes (paper, section 3.3, for recipes without context).

    The context of a recipe precedes its `start`, for most models at negative positions. Its tokens begin at
    `start`, so the keys get local positions.

    Args:
        model: the model that reads the tokens.
        recipes: the recipes; several only if the model packs.
        segments: the segments of their contexts by key, without those of these recipes.
        rows: called before each pass. Models that do not pack or relocate use one pass in any case.

    Yields:
        The tokens computed so far, between two passes.

    Returns:
        Their segments, in order; keys and values [layers, kv_heads, tokens, head_dim].
    """
    device = model.network.device
    made = {item.key: empty_segment(model.form, item.key, item.token_ids, device) for item in recipes}

    def placed(recipe: Recipe) -> tuple[Placement, ...]:
        return tuple(
            Placement(made.get(seen.recipe.key) or segments[seen.recipe.key], seen.lo, seen.hi, seen.start)
            for seen in recipe.context
        )

    texts = [PackedText(made[item.key], item.start, placed(item)) for item in recipes]
    if not model.packs or not model.relocatable:
        model.network.encode(texts)
    else:
        left, done = _Left(texts), 0
        while piece := left.take(rows()):
            model.network.encode(piece)
            done += sum(text.segment.tokens for text in piece)
            if left:
                yield done
    return [made[item.key] for item in recipes]


class _Left:
    """Texts that are only partly computed. The rest of a text sees its computed part."""

    def __init__(self, texts: Sequence[PackedText]) -> None:
        self._texts, self._at = list(texts), 0  # offset in the first text

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, count: int | None) -> list[PackedText]:
        """Returns the next `count` tokens, or all that are left."""
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
    """Tokens `lo..hi` of a text after those before. Their keys and values are views of the text's."""
    whole = text.segment
    keys, values = whole.keys[:, :, lo:hi], whole.values[:, :, lo:hi]
    part = Segment(whole.key, whole.token_ids[lo:hi], keys, values)
    before = (Placement(whole, 0, lo, text.start),) if lo else ()
    return PackedText(part, text.start + lo, (*text.placements, *before))
