"""What a traveller may add to a trip: budget, season and company with an advice each, and an interest."""

from __future__ import annotations

import random
from dataclasses import dataclass

from training.worlds.example import Turn, mixed, paragraph
from training.worlds.tables import tables
from training.worlds.words import MONTHS, filler

TABLES = tables("travel")


@dataclass(frozen=True)
class Trait:
    """One trait of a traveller: the text of its module, and the advice that a plan should follow."""

    name: str
    text: str
    advice: str

    @property
    def line(self) -> str:
        """The words with which a plan ends."""
        return f"For the {self.name}: {self.advice}."


def trait(r: random.Random, name: str, most: int) -> Trait:
    """A trait with up to `most` sentences of prose."""
    manner = f"{r.choice(TABLES['trait_manners'])} " if r.random() < 0.7 else ""
    advice = f"{r.choice(TABLES['trait_verbs'])} {manner}{r.choice(TABLES['trait_things'])}"
    state = r.choice(TABLES[f"{name}_states"]).format(m=r.choice(MONTHS), s=r.choice(TABLES["seasons"]))
    facts = [state, r.choice(TABLES["trait_frames"]).format(v=advice)]
    return Trait(name, paragraph(r, mixed(r, facts, lambda: filler(r), r.randint(0, most))), advice)


def traits(r: random.Random, size: int) -> list[Trait]:
    """The traits of a traveller in the order of a plan; none for most short prompts."""
    if r.random() > (0.15, 0.5, 0.7, 0.7)[size]:
        return []
    names = TABLES["traits"]
    chosen = r.sample(names, r.randint(1, len(names)))
    return [trait(r, name, (0, 1, 2, 4)[size]) for name in names if name in chosen]


def interest(r: random.Random, topic: str) -> str:
    """The text of a module that names what the traveller wants to see."""
    sentence = r.choice(TABLES["interest_frames"]).format(k=topic)
    return paragraph(r, mixed(r, [sentence], lambda: filler(r), r.randint(0, 2)))


def trait_turn(r: random.Random, found: Trait) -> Turn:
    """Asks for the advice of one trait."""
    return Turn(r.choice(TABLES["trait_questions"]).format(t=found.name), found.line, "trait")
