"""Tests with few tokens if one pass can take several texts, or rows of several prompts, each as if alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.base.segment import Form, Placement, Segment
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.packed_kv_cache import PackedText, empty_segment
from engine.kv_cache.protocol import Rows
from engine.model.network import Network


def packing_miss(
    network: Network, form: Form, token_ids: Sequence[int], whole: tuple[Tensor, Tensor], cut: int
) -> float:
    """Packs two parts of a text after an unrelated text; the second part sees the first.

    Args:
        network: set up by the probe, on the path "segments".
        form: of its keys and values.
        token_ids: of the text.
        whole: its keys and values from one pass from position 0 on, [layers, kv_heads, tokens, head_dim].
        cut: start of the second part.

    Returns:
        The root mean square difference of the worst token in the worst layer, divided by the spread of that
        layer's keys or values.

    Raises:
        UnfitError: the network does not fit this pass.
    """

    def text(tokens: Sequence[int], start: int, *placements: Placement) -> PackedText:
        return PackedText(empty_segment(form, "packed", tokens, network.device), start, placements)

    other, first = text(token_ids[cut:], 0), text(token_ids[:cut], 0)
    second = text(token_ids[cut:], cut, Placement(first.segment, 0, cut, 0))
    network.encode([other, first, second])
    misses = []
    for index, states in enumerate(whole):
        parts = [(packed.segment.keys, packed.segment.values)[index] for packed in (first, second)]
        for part, wanted in zip(parts, (states[:, :, :cut], states[:, :, cut:]), strict=True):
            for layer, alone in zip(part, wanted, strict=True):
                spread = float(alone.float().std()) or 1.0
                apart = (layer.float() - alone.float()).square().mean(-1).sqrt()
                misses.append(float(apart.max()) / spread)
    return max(misses)


def batched_logits(
    network: Network, token_ids: Sequence[int], whole: tuple[Tensor, Tensor], cut: int, shift: int
) -> tuple[Tensor, list[int]]:
    """Runs two prompts over a segment of a text's beginning: the continuation, then one more token each.

    The arguments are those of `packing_miss`. The segment ends at `cut`, and is at `shift` in the second
    prompt.

    Returns:
        Logits [rows, vocabulary] of all rows, and the index of each row's token in the text.

    Raises:
        UnfitError: the network does not fit this pass.
    """
    segment = Segment("batched", tuple(token_ids[:cut]), *(states[:, :, :cut] for states in whole))
    batch, logits, numbers, at = network.batch_cache(), list[Tensor](), list[int](), [cut, cut]
    caches = [network.kv_cache([Placement(segment, 0, cut, start)], 3) for start in (0, shift)]
    for counts in ((2, 1), (1, 1)):
        members = []
        for place, (kv, start, count) in enumerate(zip(caches, (0, shift), counts, strict=True)):
            tokens = range(at[place], at[place] + count)
            ids, positions = [token_ids[token] for token in tokens], [start + token for token in tokens]
            members.append(Member(kv, Rows(ids, positions, count)))
            numbers += tokens
            at[place] += count
        logits += network.forward_batch(members, batch)
    return torch.cat(logits), numbers
