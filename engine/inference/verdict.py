"""What a measurement of reuse found, and what to do about it, in words. Numbers and texts only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# At most sqrt(KL / 2) of the probability lies on other tokens (Pinsker): 7% at worst, 2% on average.
FAITHFUL_WORST = 1e-2  # nats
FAITHFUL_MEAN = 1e-3  # nats per token; over an answer they add up


@dataclass(frozen=True)
class Flip:
    """A token of the answer where the cached side finds another one likeliest.

    Attributes:
        position: of the token in the answer, from 0.
        uncached: text of the token that the uncached side wrote there.
        cached: text of the one that the cached side would write.
        before: the end of the uncached answer's text up to there.
        kl: of the token's distribution, in nats.
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
        path: of the module, "" for anonymous text.
        tokens: of it that are read from the cache.
        dependence: KL of the answer from the answer with the module hidden, in nats per token.
        key_deviation: distance of its keys from those of a full pass ÷ their length, mean over layers.
        value_deviation: the same of its values.
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


@dataclass(frozen=True)
class Remedy:
    """Something that was tried, with what it leaves of the difference.

    Attributes:
        what: in words.
        repair: the setting, for a repair; "" for a scaffold.
        scaffold: paths of the modules, for a scaffold.
        flips: how many tokens of the answer still flip.
        kl_worst: of the worst token, in nats.
        kl_mean: in nats per token.
        answer_agreement: share of the answer's tokens that both sides find likeliest.
        computed: tokens that each run computes more than without it.
    """

    what: str
    repair: str
    scaffold: tuple[str, ...]
    flips: int
    kl_worst: float
    kl_mean: float
    answer_agreement: float
    computed: int


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
        worst_position: of that token in the answer, from 0.
        tokens_read: of the answer.
        read_to_end: whether the answer ended within them.
        flips: every token where the cached side finds another one likeliest.
        modules: in the order of the prompt.
        remedies: what was tried, the best first: fewest flips, then the smallest worst KL.
        advice: in a sentence or two.
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

    @property
    def faithful(self) -> bool:
        """Whether there is nothing to mend: no token flips, and none differs by much, nor all by a little."""
        return not self.flips and self.kl_worst <= FAITHFUL_WORST and self.kl_mean <= FAITHFUL_MEAN

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)


def advice(found: Fidelity, *, scope: str) -> str:
    """What is wrong with an answer and what to do, in a sentence or two.

    Args:
        found: without its advice.
        scope: that was measured.
    """
    if found.faithful:
        far = "" if found.read_to_end else f" in its first {found.tokens_read} tokens, as far as it was read"
        return (
            f"The cached answer is as good as the uncached one{far}: no token flips, and the KL is "
            f"{found.kl_worst:.2g} at worst. There is nothing to mend."
        )
    return f"{_difference(found)} {_remedy(found, scope)}"


def _difference(found: Fidelity) -> str:
    if not found.flips:
        return (
            "No token flips, so the likeliest answer is the same, but the distributions differ by a KL of "
            f"{found.kl_worst:.2g} at token {found.worst_position + 1} and {found.kl_mean:.2g} per token: a "
            "sampled answer may differ."
        )
    first, count = found.flips[0], len(found.flips)
    where = f"the cached side finds {first.cached!r} likelier than {first.uncached!r}"
    more = f"{count} tokens flip, the first of them token" if count > 1 else "One token flips, token"
    return f"{more} {first.position + 1}: {where} (KL {first.kl:.2g})."


def _remedy(found: Fidelity, scope: str) -> str:
    if scope == "scaffold":
        return (
            "Under the scope scaffold only rounding is left; where a token flips, the two are equally good."
        )
    if not found.modules:
        return "The prompt reads no module; the difference is rounding."
    worst = max(found.modules, key=lambda module: (module.mends, module.harm))
    name = f"Module {worst.path!r}" if worst.path else "The anonymous text"
    suffers = f"{name} suffers most from reuse"
    helping = [r for r in found.remedies if not r.flips and r.kl_worst <= found.kl_worst / 2]
    free, cheap = [r for r in helping if r.scaffold], [r for r in helping if r.repair]
    flips = "leave no flip and " if found.flips else ""
    if free:
        best = min(free, key=lambda remedy: (len(remedy.scaffold), remedy.kl_worst))
        return (
            f"{suffers}. Encoded together, {_listed(best.scaffold)} {flips}bring the worst KL from "
            f"{found.kl_worst:.2g} to {best.kl_worst:.2g}, and a run computes nothing more for it."
        )
    if cheap:
        best = min(cheap, key=lambda remedy: remedy.computed)
        flips = "leaves no flip and " if found.flips else ""
        return (
            f"{suffers}. Repair {best.repair} {flips}brings the worst KL from {found.kl_worst:.2g} to "
            f"{best.kl_worst:.2g}, for {best.computed} more computed tokens."
        )
    goal = "removes every flip and halves" if found.flips else "halves"
    return (
        f"{suffers}. Nothing that was tried {goal} the worst KL; the scope scaffold removes the difference."
    )


def _listed(paths: Sequence[str]) -> str:
    names = [repr(path) for path in paths]
    return f"{', '.join(names[:-1])} and {names[-1]}"
