"""What a measurement of reuse means, and what to do about it, in a few sentences."""

from __future__ import annotations

from collections.abc import Sequence

from engine.fidelity.findings import Fidelity, nats

_SMALL = 0.1  # nats; at most 22% of the probability lies on other tokens


def advice(found: Fidelity, *, scope: str) -> str:
    """Returns a verdict in plain words, then its figures, and what to do.

    Args:
        found: the measurement, without its advice.
        scope: the scope that was measured.
    """
    if found.faithful:
        far = "" if found.read_to_end else f" in its first {found.tokens_read} tokens, as far as it was read"
        return (
            f"The cached answer is as good as the uncached one{far}. No token flips, and the KL "
            f"is {nats(found.kl_worst)} at worst. There is nothing to fix."
        )
    return f"{_summary(found)} {_difference(found)} {_remedy(found, scope)}"


def _summary(found: Fidelity) -> str:
    if found.flips:
        return f"{len(found.flips)} of {found.tokens_read} tokens differ{'s' * (len(found.flips) == 1)}."
    risk = "a small risk" if found.kl_worst <= _SMALL else "a risk"
    return f"Same words; {risk} if you sample."


def _difference(found: Fidelity) -> str:
    if not found.flips:
        return (
            f"The probabilities differ: the KL is {nats(found.kl_mean)} nats per token, and "
            f"{nats(found.kl_worst)} at worst, at token {found.worst_position + 1}."
        )
    first, count = found.flips[0], len(found.flips)
    where = f"the cached side prefers {first.cached!r} to {first.uncached!r}"
    begin = "The first flips at token" if count > 1 else "It flips at token"
    return f"{begin} {first.position + 1}: {where} (KL {nats(first.kl)})."


def _remedy(found: Fidelity, scope: str) -> str:
    if scope == "scaffold":
        return (
            "The scope scaffold leaves only rounding; if a token still flips, both tokens are equally likely."
        )
    if found.worst is None:
        return "The prompt reads no module; the difference is rounding."
    name = f"Module {found.worst!r}" if found.worst else "The fixed text"
    suffers = f"{name} suffers most from reuse"
    best = found.best
    if best is not None:
        s = "" if best.scaffold else "s"
        flips = f"leave{s} no flip and " if found.flips else ""
        cost = "and a run computes nothing more for it"
        if best.scope:
            fix = f"The scope {best.scope}"
        elif best.scaffold:
            fix = f"Encoded together, {_listed(best.scaffold)}"
        else:
            fix, cost = f"Repair {best.repair}", f"for {best.computed} more computed tokens"
        return (
            f"{suffers}. {fix} {flips}bring{s} the worst KL from {nats(found.kl_worst)} to "
            f"{nats(best.kl_worst)}, {cost}."
        )
    if not found.complete:
        return f"{suffers}, as far as it was measured. The measurement was stopped before it tried every fix."
    goal = "removes every flip and halves" if found.flips else "halves"
    return (
        f"{suffers}. Nothing that was tried {goal} the worst KL. "
        "Encoding these modules together removes the difference (scope scaffold)."
    )


def _listed(paths: Sequence[str]) -> str:
    names = [repr(path) for path in paths]
    return f"{', '.join(names[:-1])} and {names[-1]}"
