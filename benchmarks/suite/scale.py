"""How much is measured: all that is to be published, or as little as shows that it works."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Size:
    """A model with drawn modules.

    Attributes:
        label: the name that the results give it.
        model: the name of the model.
        dtype: its number format.
        cached: tokens in all modules together.
        modules: how many there are.
        new: tokens behind them.
    """

    label: str
    model: str
    dtype: str
    cached: int = 4096
    modules: int = 8
    new: int = 32

    def of(self, cached: int, modules: int = 0) -> Size:
        """The same with another count of cached tokens."""
        return replace(self, cached=cached, modules=modules or self.modules)


@dataclass(frozen=True)
class Scale:
    """What every part measures.

    Attributes:
        name: of the scale.
        large: the large model.
        small: the small one, in two number formats.
        rounds: samples of a way that is soon done.
        some: samples of one that takes seconds.
        few: samples of one that takes the better part of a minute.
        lengths: counts of cached tokens for the small models; the part T2 has their own counts.
        large_lengths: the same for the large one, whose own count the part T1 has.
        module_counts: into how many modules the same tokens are split.
        answer_lengths: counts of tokens that an answer has.
        steps: tokens of an answer whose median step is timed.
        answered: tokens of an answer of which the mean is timed.
        decoded: cached tokens before them, for the large model; the small ones have all of theirs.
        quoting: how many prompts are asked whose answers quote their documents; None for all of the sample.
        quoted: tokens of each such answer, at most.
        segments: how many segments a store holds.
        edited: how many modules of how many tokens a schema has that is edited.
        many_modules: modules of a prompt in which all but the forward pass is timed.
        readers: prompts whose attention alone is timed, and tokens that each reads.
        crowd: of prompts that are answered at once: tokens that they share, that each has of its own, and
            of each answer.
        arrivals: how many of them arrive by themselves, tokens of each answer then, and rates by that of one
            answer after the other.
        parses: how often a schema is parsed.
        keys: how many keys are typed in a browser; 0 for no browser.
        starts: how often a program is started.
        with_studio: a studio is started too.
        own_process: every part has a process of its own.
        peers: other software takes turns with ours.
    """

    name: str
    large: Size
    small: tuple[Size, ...]
    rounds: int = 7
    some: int = 5
    few: int = 3
    lengths: tuple[int, ...] = (256, 1024)
    large_lengths: tuple[int, ...] = (256, 1024)
    module_counts: tuple[int, ...] = (1, 4, 8, 16, 64, 256)
    answer_lengths: tuple[int, ...] = (16, 64, 256)
    steps: int = 16
    answered: int = 64
    decoded: int = 512
    quoting: int | None = None
    quoted: int = 64
    segments: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000)
    edited: tuple[int, int] = (16, 64)
    many_modules: int = 50
    readers: tuple[int, int] = (32, 4096)
    crowd: tuple[int, int, int] = (2048, 64, 64)
    arrivals: tuple[int, int, tuple[float, ...]] = (48, 32, (1.5, 2.5, 4.0, 6.0))
    parses: int = 100
    keys: int = 60
    starts: int = 5
    with_studio: bool = True
    own_process: bool = True
    peers: bool = True


FULL = Scale(
    "full",
    Size("1.1B bf16", "random:tinyllama-1.1b", "bf16"),
    (
        Size("0.1B fp32", "random:llama-100m", "fp32"),
        Size("0.1B bf16", "random:llama-100m", "bf16"),
    ),
)
TINY = Scale(
    "tiny",
    Size("1.1B bf16", "demo", "fp32", 64, 4, 8),
    (Size("0.1B fp32", "demo", "fp32", 64, 4, 8), Size("0.1B bf16", "demo", "bf16", 64, 4, 8)),
    rounds=1,
    some=1,
    few=1,
    lengths=(16,),
    large_lengths=(16,),
    module_counts=(1, 8, 64),
    answer_lengths=(2, 4),
    steps=4,
    answered=4,
    decoded=32,
    quoting=1,
    quoted=8,
    segments=(10, 20),
    edited=(16, 4),
    many_modules=10,
    readers=(4, 64),
    crowd=(64, 8, 2),
    arrivals=(2, 4, (1.0,)),
    parses=2,
    keys=0,
    starts=1,
    with_studio=False,
    own_process=False,
    peers=False,
)
SCALES = {scale.name: scale for scale in (FULL, TINY)}
