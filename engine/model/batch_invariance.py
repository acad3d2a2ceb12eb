"""Measures how far a row's numbers depend on other rows in the same pass.

The order of sums decides the rounding of each row of a product, and may differ for one row and several. In
bf16 on a processor, products of two and of more rows add in the same order, but one row differs. A single row
therefore gets an idle row as company, and a measurement shows if all results are then bit-identical.
"""

from __future__ import annotations

import functools

import torch

from engine.kv_cache.protocol import Rowwise
from engine.model.network import Network

ROUNDING = {torch.float32: 2**-12, torch.bfloat16: 2**-4, torch.float16: 2**-7}  # of the spread of logits
OF_GREATEST = {
    torch.float32: 2**-18,
    torch.bfloat16: 2**-7,
    torch.float16: 2**-9,
}  # of the greatest logit, if that is more
LAYERS = 5  # measured layers; later ones have products of the same shapes
BEFORE = 4  # tokens before the rows


class RowRounding:
    """The rounding of one network; a single row needs `idle` extra rows to be rounded like one of several."""

    def __init__(self, network: Network) -> None:
        self._network = network
        bf16 = network.dtype == torch.bfloat16 and network.device.type == "cpu"
        self.idle = 1 if bf16 and network.setup.path == "segments" else 0

    @property
    def bound(self) -> float:
        """The most by which logits of a row depend on other rows, in units of their spread; 0 for not at all.

        Without proof of equality it is many times the measured value for the number format.
        """
        return 0.0 if self.idle and self._alike else ROUNDING[self._network.dtype]

    def of(self, logits: torch.Tensor) -> float:
        """The most by which each of these logits, [vocabulary] in fp32, depends on other rows."""
        if not self.bound:
            return 0.0
        far = OF_GREATEST[self._network.dtype] * float(logits.abs().max())
        return max(self.bound * float(logits.std()), far)

    @property
    def small(self) -> bool:
        """Whether the bound is so small that it hardly ever decides between two tokens."""
        return self.bound <= ROUNDING[torch.float32]

    @functools.cached_property
    def _alike(self) -> bool:
        """Whether 4 and 8 rows give the same numbers as single rows, in the first layers and the head."""
        network = self._network
        head = network.module.get_output_embeddings()
        if head is None:
            return False
        layer = min(LAYERS, network.layers - 1)
        generator = torch.Generator().manual_seed(2)
        drawn = torch.randint(0, int(network.config.vocab_size), (BEFORE + 8,), generator=generator)
        tokens: list[int] = drawn.tolist()
        kv = network.kv_cache((), len(tokens) + 1)
        network.forward_to(layer, tokens[:BEFORE], range(BEFORE), kv)

        def keys(rows: int) -> torch.Tensor:
            kv.truncate(BEFORE)
            for at in range(BEFORE, BEFORE + 8, rows):
                idle = self.idle if rows == 1 else 0
                places = range(at, at + rows + idle)
                ids = [*tokens[at : at + rows], *tokens[at : at + idle]]
                network.forward_to(layer, ids, places, kv, Rowwise(idle))
                kv.truncate(at + rows)
            return torch.stack(kv.layer_tail(layer))

        single = keys(1).clone()
        states = torch.randn(1, 8, network.config.hidden_size, generator=generator).to(network.dtype)
        with torch.inference_mode():
            logits = [
                torch.cat([head(states[:, at : at + rows]) for at in range(0, 8, rows)], 1)
                for rows in (2, 4, 8)
            ]
        same = all(torch.equal(several, logits[0]) for several in logits[1:])
        return same and all(torch.equal(keys(rows), single) for rows in (4, 8))
