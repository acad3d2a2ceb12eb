"""What a measurement of reuse found. Numbers and texts only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

# At most sqrt(KL / 2) of the probability lies on other tokens (Pinsker): 7% at worst, 2% on average.
FAITHFUL_WORST = 1e-2  # nats
FAITHFUL_MEAN = 1e-3  # nats per token; over an answer they add up
CLEARLY_LESS = 0.9  # of the worst KL; a smaller gain is not worth a fix
SHOWN_FROM = 1e-3  # nats; what is less has no digits worth reading


def nats(value: float, promise: float = SHOWN_FROM) -> str:
    """Returns a KL divergence for people, in nats; a smaller limit shows more digits."""
    least = min(SHOWN_FROM, promise)
    return f"< {least:g}" if 0 < abs(value) < least else f"{value:.2g}"


@dataclass(frozen=True)
class Flip:
    """A token of the answer where the cached side finds another one likeliest.

    Attributes:
        position: the token's place in the answer, from 0.
        uncached: text of the token that the uncached side wrote there.
        cached: text of the one that the cached side would write.
        before: the end of the uncached answer's text up to there.
        kl: KL of the token's distribution, in nats.
    """

    position: int
    uncached: str
    cached: str
    before: str
    kl: float


@dataclass(frozen=True)
class ModuleFidelity:
    """One module of a prompt, or its anonymous text.

    Attributes:
        path: path of the module, "" for anonymous text.
        tokens: how many of its tokens are read from the cache.
        dependence: KL of the answer from the answer with the module hidden, in nats per token.
        key_deviation: distance of its keys from those of a full pass ÷ their length, mean over layers.
        value_deviation: distance of its values from those of a full pass ÷ their length, mean over layers.
        harm: how much of the answer's KL vanishes when this module alone is as in a full pass, in nats per
            token. Negative where its deviation makes up for another's.
        mends: how many flipped tokens vanish then; negative where more flip.
    """

    path: str
    tokens: int
    dependence: float
    key_deviation: float
    value_deviation: float
    harm: float
    mends: int


def worst_of(modules: Iterable[ModuleFidelity]) -> ModuleFidelity:
    """Returns the module that suffers most from reuse: it makes the most flips, then the most harm.

    One whose exact states add flips makes none: other modules and near ties decide those, and its harm alone
    says what it does to the answer.

    Args:
        modules: one at least.
    """
    return max(modules, key=lambda module: (max(module.mends, 0), module.harm))


@dataclass(frozen=True)
class Remedy:
    """Something that was tried, with what it leaves of the difference.

    Attributes:
        what: the remedy in words.
        repair: the setting of a repair; "" for a scaffold.
        scaffold: paths of the modules of a scaffold.
        scope: another scope; "" for a repair or a scaffold.
        flips: how many tokens of the answer still flip.
        kl_worst: KL of the worst token, in nats.
        kl_mean: mean KL over the tokens, in nats.
        answer_agreement: share of the answer's tokens that both sides find likeliest.
        computed: tokens that each run computes more than without it.
    """

    what: str
    repair: str
    scaffold: tuple[str, ...]
    scope: str
    flips: int
    kl_worst: float
    kl_mean: float
    answer_agreement: float
    computed: int


def _cost(remedy: Remedy) -> tuple[int, int, float]:
    """Orders fixes: another scope, then the smallest scaffold, then the repair that computes least."""
    kind = 0 if remedy.scope else 1 if remedy.scaffold else 2
    return kind, len(remedy.scaffold) or remedy.computed, remedy.kl_worst


@dataclass(frozen=True)
class Fidelity:
    """How faithful a cached answer is, and why.

    Both sides read the uncached side's greedy answer, so a token is compared after the same words. Where one
    flips, an answer of the cached side alone goes its own way from there.

    Attributes:
        kl_first_token: KL of the first token's distribution from the uncached one, in nats.
        first_token_agrees: both sides find the same token likeliest.
        answer_agreement: share of the answer's tokens that the cached side finds likeliest as well.
        kl_mean: mean KL over the tokens, in nats.
        kl_worst: KL of the worst token, in nats.
        worst_position: that token's place in the answer, from 0.
        tokens_read: how many tokens of the answer were read.
        read_to_end: whether the answer ended within them.
        flips: every token where the cached side finds another one likeliest.
        modules: the prompt's modules, in its order.
        remedies: what was tried, the best first: fewest flips, then the smallest worst KL.
        advice: the verdict, its figures, and what to do, in a few sentences.
        complete: false if the measurement was stopped before it had every module and every fix.
        scope: the scope that was measured, chosen by `reuse` or set; "" in measurements of earlier versions.
        repair: the repair that was measured, likewise.
        worst: path of the module that suffers most from reuse; None without modules.
        improvements: the fixes that leave fewer flips or a clearly smaller worst KL, and more of neither.
        best: the fix to choose: no token flips, and at most half of the worst KL; the cheapest of those.
    """

    kl_first_token: float
    first_token_agrees: bool
    answer_agreement: float
    kl_mean: float
    kl_worst: float
    worst_position: int
    tokens_read: int
    read_to_end: bool
    flips: tuple[Flip, ...]
    modules: tuple[ModuleFidelity, ...]
    remedies: tuple[Remedy, ...] = field(default=())
    advice: str = ""
    complete: bool = True
    scope: str = ""
    repair: str = ""
    worst: str | None = field(init=False)
    improvements: tuple[Remedy, ...] = field(init=False)
    best: Remedy | None = field(init=False)

    def __post_init__(self) -> None:
        """Finds the module that suffers most, the fixes that help, and the one to choose."""
        object.__setattr__(self, "worst", worst_of(self.modules).path if self.modules else None)
        better = tuple(fix for fix in self.remedies if self._improves(fix))
        object.__setattr__(self, "improvements", better)
        helping = [r for r in better if not r.flips and r.kl_worst <= self.kl_worst / 2]
        object.__setattr__(self, "best", min(helping, key=_cost, default=None))

    def _improves(self, fix: Remedy) -> bool:
        flips, worst = len(self.flips), self.kl_worst
        if fix.flips > flips or fix.kl_worst > worst:
            return False
        return fix.flips < flips or fix.kl_worst < worst * CLEARLY_LESS

    @property
    def faithful(self) -> bool:
        """Whether there is nothing to fix: no token flips, and none differs by much, nor all by a little."""
        return not self.flips and self.kl_worst <= FAITHFUL_WORST and self.kl_mean <= FAITHFUL_MEAN

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)
