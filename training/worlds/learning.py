"""Learners with up to six traits, one module each, and the learning plan that follows from them."""

from __future__ import annotations

import random

from training.worlds.example import Example, Turn, mixed, paragraph
from training.worlds.tables import tables
from training.worlds.words import filler, invented

TABLES = tables("learning")
# trait → headings, and what may be said of a learner
TRAITS = {k: (TABLES[f"{k}_headings"], TABLES[f"{k}_states"]) for k in TABLES["traits"]}
VERBS = TABLES["verbs"]
MANNERS = TABLES["manners"]
MEANS = TABLES["means"]
TAILS = TABLES["tails"]
ADVICE_FRAMES = TABLES["advice_frames"]
STATEMENTS = TABLES["statements"]
SUBJECTS = TABLES["subjects"]
SYSTEM = TABLES["system"]
LEADS = TABLES["leads"]
ACKNOWLEDGEMENTS = TABLES["acknowledgements"]
QUESTIONS = TABLES["questions"]
SINGLE = TABLES["single"]


def advice(r: random.Random) -> str:
    """What a lesson should do: `use short proofs every week`."""
    manner, means = r.choice(MANNERS), r.choice(MEANS)
    kind = r.randrange(4)
    thing = (
        means
        if kind == 0
        else f"{manner} {means}"
        if kind < 3
        else f"{means} and {r.choice(MANNERS)} {r.choice(MEANS)}"
    )
    return f"{r.choice(VERBS)} {thing} {r.choice(TAILS)}".strip()


def learning(r: random.Random, size: int, turns: int) -> Example:
    """A learner with some traits, and `turns` questions; `size` 0..3 says how many and how much prose."""
    example = Example("learning")
    count = (r.randint(1, 2), r.randint(2, 4), r.randint(3, 6), r.choice([4, 5, 6, 6, 6]))[size]
    chosen = r.sample(list(TRAITS), count)
    keys = [k for k in TRAITS if k in chosen]
    if size or r.random() < 0.3:
        example.role("system")
        example.anonymous(r.choice(SYSTEM))
        example.close()
    example.role("user")
    lead = r.choice(LEADS)
    lines: dict[str, tuple[str, str]] = {}
    most = (0, 1, 4, 7)[size]
    for number, key in enumerate(keys, 1):
        heading = r.choice(TRAITS[key][0])
        predicate, counsel = r.choice(TRAITS[key][1]), advice(r)
        text = (f"{lead} " if number == 1 else "") + f"{number}. {heading}" + r.choice([" ", ": ", ". "])
        example.anonymous(text)
        facts = [r.choice(STATEMENTS).format(p=predicate), r.choice(ADVICE_FRAMES).format(v=counsel)]
        example.module(paragraph(r, mixed(r, facts, lambda: filler(r), r.randint(most // 2, most))), f"{key}")
        lines[heading] = (predicate, counsel)
    if r.random() < 0.3:
        example.open_user = True
    else:
        example.close()
        if r.random() < 0.7:
            example.role("assistant")
            example.anonymous(r.choice(ACKNOWLEDGEMENTS))
            example.close()
    for _ in range(turns):
        if r.random() < (0.5 if size < 2 else 0.7):
            subject = r.choice(SUBJECTS) if r.random() < 0.7 else invented(r)
            answer = "\n".join(
                [f"Learning plan for {subject}.", *(f"The learner {p}: {v}." for p, v in lines.values())]
            )
            wanted = (subject, *(v for _, v in lines.values()))
            example.turns.append(Turn(r.choice(QUESTIONS).format(s=subject), answer, "plan", wanted=wanted))
        else:
            heading = r.choice(list(lines))
            p, v = lines[heading]
            example.turns.append(
                Turn(
                    r.choice(SINGLE).format(t=heading[0].lower() + heading[1:]),
                    f"The learner {p}: {v}.",
                    "trait",
                )
            )
    return example
