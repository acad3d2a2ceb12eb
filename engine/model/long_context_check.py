"""Measures the exact length of a model: far positions, lowered thresholds, and a longer pass if it is cheap.

Positions are only numbers, so the end of the context costs no more than its beginning. A rule that starts at
a token count (a window, sparse attention) would need that many tokens; its threshold is lowered instead.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.base.segment import Placement, Segment
from engine.kv_cache.protocol import UnfitError
from engine.model.network import Network, network_code

LOGIT_TOLERANCE = {torch.float32: 2e-3}  # of the spread of the logits
COARSE = 0.15  # limit in bf16 and fp16
TYPICAL = 0.03  # alternative limit: an expert that a rounded score picks changes a few rows by more
NOISE = 2.0  # times the change of the model's own logits when all its positions change
LOWERED = 5
HEAD, MIDDLE, NEAR = 4, 8, 3  # split of the tokens at far positions, and position of the first
SHORTEST = 32
LONG, LONG_COST = 512, 1_000_000_000  # tokens of the longer pass; limit of tokens times parameters
SIZES = re.compile(  # names that are not thresholds: dimensions, counts of parts, tokens
    r"(^|_)(num|n|d|max|vocab|hidden|intermediate|dim|embd|rank|ids?|heads?|layers?|experts?|kernel|seed)(_|$)"
)
DECLARED = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
UNDECLARED = 1 << 20


def declared_length(config: Any) -> int:
    """Returns the context length in tokens that a configuration declares; 2 ** 20 without a declaration."""
    return next((int(v) for name in DECLARED if (v := getattr(config, name, None))), UNDECLARED)


@dataclass(frozen=True)
class Ruler:
    """Compares segments with the model's own pass at any distance.

    Attributes:
        network: the network with the path and rotary embeddings to test.
        tokens: a dozen tokens.
        spread: the spread of the model's logits.
        apart: whether the first tokens are far before the others.
        windows: names of configuration numbers that are windows; they are removed while tokens are apart.
        relocatable: whether segments are encoded at 0, not at their place.
    """

    network: Network
    tokens: tuple[int, ...]
    spread: float
    apart: bool
    windows: tuple[str, ...]
    relocatable: bool

    def miss(self, end: int) -> float:
        """Returns the greatest difference, in spreads, if the last token is at `end - 1`."""
        places = self._places(end)
        with self._widened():
            return self._difference(self._read(places), self._own(places))

    def exact(self, end: int) -> bool:
        """Whether segments differ from the model's own pass only by rounding.

        In fp32, and for segments in their places, the limit is the tolerance. Otherwise the difference of
        most rows is compared with the difference between the model's own passes after small changes of all
        positions.
        """
        places = self._places(end)
        try:
            with self._widened():
                own, read = self._own(places), self._read(places)
                within = agree(read, own, self.spread)
                if not self.relocatable or (within and self.network.dtype == torch.float32):
                    return within
                others = [self._own([place - by for place in places]) for by in (1, NEAR)]
        except UnfitError:
            return False
        return typical(read, own) <= NOISE * max(typical(other, own) for other in others)

    def reach(self, length: int) -> int:
        """Returns the largest exact one of powers of two, configuration numbers and `length`; or 0."""
        if length < SHORTEST or self.exact(length):
            return length
        named = set(_named_numbers(self.network.config.to_dict()))
        ladder = sorted(n for n in named.union(2**k for k in range(32)) if SHORTEST <= n < length)
        return ([0, *ladder])[bisect_left(ladder, True, key=lambda end: not self.exact(end))]

    def _difference(self, one: Tensor, other: Tensor) -> float:
        return float((one.float() - other.float()).abs().max()) / self.spread

    def _places(self, end: int) -> list[int]:
        count = len(self.tokens)
        head = NEAR if self.apart else end - count
        return [*range(head, head + HEAD), *range(end - count + HEAD, end)]

    @contextlib.contextmanager
    def _widened(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in self.windows if self.apart else ():
                stack.enter_context(changed(self.network, name, UNDECLARED))
            yield

    def _own(self, places: Sequence[int]) -> Tensor:
        return self.network.own_logits(self.tokens, places)[MIDDLE:]

    def _read(self, places: Sequence[int]) -> Tensor:
        """Logits of the last tokens over two segments, the second encoded in sight of the first."""
        head = self._segment(0, HEAD, places, ())
        middle = self._segment(HEAD, MIDDLE, places, (head,))
        kv = self.network.kv_cache([self._placed(head, places[0]), self._placed(middle, places[HEAD])], 12)
        new = self.tokens[MIDDLE:]
        with network_code():
            return self.network.forward(new, places[MIDDLE:], kv, keep=len(new))

    def _segment(self, lo: int, hi: int, places: Sequence[int], context: tuple[Segment, ...]) -> Segment:
        start = 0 if self.relocatable else places[lo]
        before = [self._placed(segment, places[0] - places[lo] + start) for segment in context]
        kv = self.network.kv_cache(before, hi - lo)
        with network_code():
            self.network.forward(self.tokens[lo:hi], range(start, start + hi - lo), kv)
        return Segment("probe", self.tokens[lo:hi], *kv.tail)

    def _placed(self, segment: Segment, start: int) -> Placement:
        return Placement(segment, 0, segment.tokens, start)


def agree(one: Tensor, other: Tensor, spread: float, noise: float = 0.0) -> bool:
    """Whether logits [tokens, vocabulary] differ by no more than rounding in their number format.

    `spread` is that of the logits, `noise` is from `own_noise`.
    """
    tolerance = LOGIT_TOLERANCE.get(one.dtype)
    furthest = float((one.float() - other.float()).abs().max()) / spread
    if tolerance is not None:
        return furthest <= tolerance
    return furthest <= COARSE or typical(one, other) <= max(TYPICAL * spread, NOISE * noise)


def own_noise(network: Network, tokens: Sequence[int], own: Tensor) -> float:
    """Returns how far most rows of own logits move after small changes of all positions; 0 in fp32.

    The network's attention must depend on distances only. `own` are its logits, [tokens, vocabulary].
    """
    if own.dtype in LOGIT_TOLERANCE:
        return 0.0
    moved = (network.own_logits(tokens, range(by, by + len(tokens))) for by in (1, NEAR))
    return max(typical(logits, own) for logits in moved)


def typical(one: Tensor, other: Tensor) -> float:
    """Returns the root mean square difference of most rows, [..., rows, channels]."""
    return float((one.float() - other.float()).square().mean(-1).sqrt().median())


def _named_numbers(held: Any) -> Iterator[int]:
    """All whole numbers in a nested configuration."""
    if isinstance(held, dict):
        held = list(held.values())
    if isinstance(held, (list, tuple)):
        for value in held:
            yield from _named_numbers(value)
    elif isinstance(held, int) and not isinstance(held, bool):
        yield held


def thresholds(config: Any, length: int, tokens: int) -> dict[str, int]:
    """Returns numbers of a configuration that may be thresholds beyond `tokens` tokens, by name."""
    return {
        name: value
        for name, value in vars(config).items()
        if type(value) is int and tokens <= value < length and not SIZES.search(name)
    }


@contextlib.contextmanager
def changed(network: Network, name: str, number: int) -> Iterator[None]:
    """Changes a number of the configuration, there and in every module that has copied it."""
    value = getattr(network.config, name)
    owners: list[tuple[Any, str]] = [(network.config, name)]
    for module in network.module.modules():
        for key, copied in vars(module).items():
            if type(copied) is int and copied == value and not SIZES.search(key):
                owners.append((module, key))
    try:
        for owner, key in owners:
            setattr(owner, key, number)
        yield
    finally:
        for owner, key in owners:
            setattr(owner, key, value)


def unapplied(network: Network, tokens: Sequence[int], length: int) -> dict[str, int]:
    """Finds thresholds beyond which the model's own attention follows a rule that the path does not apply.

    Returns:
        Name in the configuration → number of tokens below it.
    """
    limits = {}
    candidates = thresholds(network.config, length, len(tokens))
    plain = network.own_logits(tokens) if candidates else None
    for name, value in candidates.items():
        with changed(network, name, LOWERED):
            try:
                own = network.own_logits(tokens)
            except UnfitError:  # the model does not run with it: no threshold
                continue
            if plain is not None and not torch.equal(own, plain) and not _follows(network, tokens, own):
                limits[name] = value - 1
    return limits


def _follows(network: Network, tokens: Sequence[int], own: Tensor) -> bool:
    """Whether a segment of the first half in its place, then the other half, give these logits."""
    half, count = len(tokens) // 2, len(tokens)
    try:
        with network_code():
            first = network.kv_cache((), half)
            before = network.forward(tokens[:half], range(half), first, keep=half)
            segment = Segment("probe", tuple(tokens[:half]), *first.tail)
            kv = network.kv_cache([Placement(segment, 0, half, 0)], count - half)
            behind = network.forward(tokens[half:], range(half, count), kv, keep=count - half)
    except UnfitError:
        return False
    return agree(torch.cat([before, behind]), own, float(own.float().std()) or 1.0)


def long_reach(network: Network, length: int) -> int | None:
    """Returns the number of tokens, within a cheap limit, that give the model's own logits; None if all do.

    In bf16 and fp16 it returns None, because the greatest of many roundings is meaningless.
    """
    parameters = sum(parameter.numel() for parameter in network.module.parameters())
    count = min(length, LONG, LONG_COST // max(1, parameters))
    if network.dtype != torch.float32 or count < 2 * SHORTEST:
        return None
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, int(network.config.vocab_size), (count,), generator=generator).tolist()
    if _follows(network, tokens, network.own_logits(tokens)):
        return None

    def wrong(n: int) -> bool:
        return not _follows(network, tokens[:n], network.own_logits(tokens[:n]))

    return bisect_left(range(2, count), True, key=wrong) + 1
