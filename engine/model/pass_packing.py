"""Whether texts, and rows of prompts, go through a network in one pass as each alone: shown on few tokens."""

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
    """Packs two parts of a text behind a text that neither sees; the second part sees the first.

    Args:
        network: set up as it was measured; on the path "segments".
        form: of its keys and values.
        token_ids: of the text.
        whole: its keys and values from one pass from position 0 on, [layers, kv_heads, tokens, head_dim].
        cut: where the second part begins.

    Returns:
        The root mean square difference of the token that differs most, in the layer where it does, by the
        spread of that layer's keys or values.

    Raises:
        UnfitError: the network cannot be read like this.
    """

    def text(tokens: Sequence[int], start: int, *placements: Placement) -> PackedText:
        return PackedText(empty_segment(form, "packed", tokens, network.device), start, placements)

    other, first = text(token_ids[cut:], 0), text(token_ids[:cut], 0)
    second = text(token_ids[cut:], cut, Placement(first.segment, 0, cut, 0))
    network.encode([other, first, second])
    misses = []
    for index, states in enumerate(whole):
        parts = [(one.segment.keys, one.segment.values)[index] for one in (first, second)]
        for part, wanted in zip(parts, (states[:, :, :cut], states[:, :, cut:]), strict=True):
            for layer, alone in zip(part, wanted, strict=True):
                spread = float(alone.float().std()) or 1.0
                apart = (layer.float() - alone.float()).square().mean(-1).sqrt()
                misses.append(float(apart.max()) / spread)
    return max(misses)


def batched_logits(
    network: Network, token_ids: Sequence[int], whole: tuple[Tensor, Tensor], cut: int, shift: int
) -> tuple[Tensor, list[int]]:
    """Runs two prompts over a segment, a text's beginning: what follows it, and in another pass a token each.

    Args:
        network: set up as it was measured; on the path "segments".
        token_ids: of the text, of which each prompt takes as many as it needs.
        whole: its keys and values from one pass from position 0 on, [layers, kv_heads, tokens, head_dim].
        cut: where the segment ends.
        shift: where the segment stands in the second prompt.

    Returns:
        Logits [rows, vocabulary] of all rows, and of which of the text's tokens they are.

    Raises:
        UnfitError: the network cannot be read like this.
    """
    segment = Segment("batched", tuple(token_ids[:cut]), *(states[:, :, :cut] for states in whole))
    batch, found, numbers, at = network.batch_cache(), list[Tensor](), list[int](), [cut, cut]
    caches = [network.kv_cache([Placement(segment, 0, cut, start)], 3) for start in (0, shift)]
    for counts in ((2, 1), (1, 1)):
        members = []
        for place, (kv, start, count) in enumerate(zip(caches, (0, shift), counts, strict=True)):
            tokens = range(at[place], at[place] + count)
            ids, positions = [token_ids[one] for one in tokens], [start + one for one in tokens]
            members.append(Member(kv, Rows(ids, positions, count)))
            numbers += tokens
            at[place] += count
        found += network.forward_batch(members, batch)
    return torch.cat(found), numbers
