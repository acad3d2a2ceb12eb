"""How far a model is exact: tokens at far positions, lowered thresholds, and a longer pass where it is cheap.

Positions are only numbers, so the end of the context costs no more than its beginning. What begins with a
count of tokens (a window, a sparse attention) would cost as many; its threshold is lowered instead.
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
COARSE = 0.15  # in bf16 and fp16, or
TYPICAL = 0.03  # where an expert that a rounded score picks changes a few rows by more
NOISE = 2.0  # times what the model's own logits change when all its positions change
LOWERED = 5
HEAD, MIDDLE, NEAR = 4, 8, 3  # how the tokens are parted at far positions, and where the first stands
SHORTEST = 32
LONG, LONG_COST = 512, 1_000_000_000  # tokens of the longer pass, and tokens times parameters
SIZES = re.compile(  # names of what is no threshold: dimensions, counts of parts, tokens
    r"(^|_)(num|n|d|max|vocab|hidden|intermediate|dim|embd|rank|ids?|heads?|layers?|experts?|kernel|seed)(_|$)"
)
DECLARED = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
UNDECLARED = 1 << 20


def declared_length(config: Any) -> int:
    """Returns the context length in tokens that a configuration declares; 2 ** 20 where it declares none."""
    return next((int(v) for name in DECLARED if (v := getattr(config, name, None))), UNDECLARED)


@dataclass(frozen=True)
class Ruler:
    """Compares segments with the model's own pass at any distance.

    Attributes:
        network: the network on the path and with the rotary embeddings that are in question.
        tokens: a dozen tokens.
        spread: the spread of the model's logits.
        apart: whether the first tokens stand far before the others.
        windows: numbers of the configuration that are windows, and are taken away while tokens stand apart.
        relocatable: whether segments are encoded at 0, and not at their place.
    """

    network: Network
    tokens: tuple[int, ...]
    spread: float
    apart: bool
    windows: tuple[str, ...]
    relocatable: bool

    def miss(self, end: int) -> float:
        """The greatest difference where the last token stands at `end - 1`, of the spread of the logits.

        Raises:
            UnfitError: the model's code fails there.
        """
        places = self._places(end)
        with self._widened():
            return self._difference(self._read(places), self._own(places))

    def exact(self, end: int) -> bool:
        """Whether what is read differs from the model's own by rounding.

        In fp32 that is the tolerance, and so it is for segments in their places. Beyond it, and in bf16 and
        fp16, what most rows differ by is compared with what the model's own passes differ by when all
        positions change by a few.
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
        """Returns the last exact one of the ends in question, 0 if none is.

        These are powers of two, the numbers of the configuration, and `length`.
        """
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
        """Logits of the last tokens over two segments, the second of which saw the first."""
        head = self._segment(0, HEAD, places, ())
        middle = self._segment(HEAD, MIDDLE, places, (head,))
        kv = self.network.kv_cache([self._placed(head, places[0]), self._placed(middle, places[HEAD])], 12)
        new = self.tokens[MIDDLE:]
        with network_code():
            return self.network.forward(new, places[MIDDLE:], kv, keep=len(new))

    def _segment(self, lo: int, hi: int, places: Sequence[int], context: tuple[Segment, ...]) -> Segment:
        start = 0 if self.relocatable else places[lo]
        before = [self._placed(one, places[0] - places[lo] + start) for one in context]
        kv = self.network.kv_cache(before, hi - lo)
        with network_code():
            self.network.forward(self.tokens[lo:hi], range(start, start + hi - lo), kv)
        return Segment("probe", self.tokens[lo:hi], *kv.tail)

    def _placed(self, segment: Segment, start: int) -> Placement:
        return Placement(segment, 0, segment.tokens, start)


def agree(one: Tensor, other: Tensor, spread: float, noise: float = 0.0) -> bool:
    """Whether logits [tokens, vocabulary] differ by no more than rounding in their number format.

    Args:
        one: logits.
        other: logits of the same tokens.
        spread: of the logits.
        noise: as of `own_noise`.
    """
    tolerance = LOGIT_TOLERANCE.get(one.dtype)
    furthest = float((one.float() - other.float()).abs().max()) / spread
    if tolerance is not None:
        return furthest <= tolerance
    return furthest <= COARSE or typical(one, other) <= max(TYPICAL * spread, NOISE * noise)


def own_noise(network: Network, tokens: Sequence[int], own: Tensor) -> float:
    """Returns what most rows of a model's own logits differ by when all positions change by a few; 0 in fp32.

    Args:
        network: one whose attention depends on distances only.
        tokens: a dozen tokens.
        own: its logits for them, [tokens, vocabulary].
    """
    if own.dtype in LOGIT_TOLERANCE:
        return 0.0
    moved = (network.own_logits(tokens, range(by, by + len(tokens))) for by in (1, NEAR))
    return max(typical(one, own) for one in moved)


def typical(one: Tensor, other: Tensor) -> float:
    """Returns the root mean square difference of most rows, [..., rows, channels]."""
    return float((one.float() - other.float()).square().mean(-1).sqrt().median())


def _named_numbers(held: Any) -> Iterator[int]:
    """Every whole number in a configuration, however deep."""
    if isinstance(held, dict):
        held = list(held.values())
    if isinstance(held, (list, tuple)):
        for one in held:
            yield from _named_numbers(one)
    elif isinstance(held, int) and not isinstance(held, bool):
        yield held


def thresholds(config: Any, length: int, tokens: int) -> dict[str, int]:
    """Numbers of a configuration that may be thresholds which `tokens` tokens do not cross, by name."""
    return {
        name: value
        for name, value in vars(config).items()
        if type(value) is int and tokens <= value < length and not SIZES.search(name)
    }


@contextlib.contextmanager
def changed(network: Network, name: str, number: int) -> Iterator[None]:
    """Sets a number of the configuration, there and in every module that has copied it."""
    value = getattr(network.config, name)
    held: list[tuple[Any, str]] = [(network.config, name)]
    for module in network.module.modules():
        for key, copied in vars(module).items():
            if type(copied) is int and copied == value and not SIZES.search(key):
                held.append((module, key))
    try:
        for owner, key in held:
            setattr(owner, key, number)
        yield
    finally:
        for owner, key in held:
            setattr(owner, key, value)


def unapplied(network: Network, tokens: Sequence[int], length: int) -> dict[str, int]:
    """Thresholds beyond which the model's own attention follows a rule that the path does not apply.

    Returns:
        Name in the configuration → how many tokens stay below it.
    """
    found = {}
    candidates = thresholds(network.config, length, len(tokens))
    plain = network.own_logits(tokens) if candidates else None
    for name, value in candidates.items():
        with changed(network, name, LOWERED):
            try:
                own = network.own_logits(tokens)
            except UnfitError:  # the model cannot be built so: no threshold
                continue
            if plain is not None and not torch.equal(own, plain) and not _follows(network, tokens, own):
                found[name] = value - 1
    return found


def _follows(network: Network, tokens: Sequence[int], own: Tensor) -> bool:
    """Whether a segment of the first tokens in its place, and then the others, give these logits."""
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
    """How many tokens, of as many as are cheap, give the model's own logits; None where all do.

    Not asked of bf16 and fp16, where the greatest of many roundings says nothing.
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
