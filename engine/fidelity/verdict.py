"""What a measurement of reuse means, and what to do about it, in a sentence or two."""

from __future__ import annotations

from collections.abc import Sequence

from engine.fidelity.findings import Fidelity, nats


def advice(found: Fidelity, *, scope: str) -> str:
    """What is wrong with an answer and what to do, in a sentence or two.

    Args:
        found: the measurement, without its advice.
        scope: the scope that was measured.
    """
    if found.faithful:
        far = "" if found.read_to_end else f" in its first {found.tokens_read} tokens, as far as it was read"
        return (
            f"The cached answer is as good as the uncached one{far}: no token flips, and the KL is "
            f"{nats(found.kl_worst)} at worst. There is nothing to fix."
        )
    return f"{_difference(found)} {_remedy(found, scope)}"


def _difference(found: Fidelity) -> str:
    if not found.flips:
        return (
            "Without sampling, both answers have the same words. The probabilities of their tokens differ: "
            f"the KL is {nats(found.kl_mean)} nats per token, and {nats(found.kl_worst)} at worst, at token "
            f"{found.worst_position + 1}. A sampled answer may differ."
        )
    first, count = found.flips[0], len(found.flips)
    where = f"the cached side finds {first.cached!r} likelier than {first.uncached!r}"
    more = f"{count} tokens flip, the first of them token" if count > 1 else "One token flips, token"
    return f"{more} {first.position + 1}: {where} (KL {nats(first.kl)})."


def _remedy(found: Fidelity, scope: str) -> str:
    if scope == "scaffold":
        return (
            "Under the scope scaffold only rounding is left; where a token flips, the two are equally good."
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
        f"{suffers}. Nothing that was tried {goal} the worst KL; the scope scaffold removes the difference."
    )


def _listed(paths: Sequence[str]) -> str:
    names = [repr(path) for path in paths]
    return f"{', '.join(names[:-1])} and {names[-1]}"
