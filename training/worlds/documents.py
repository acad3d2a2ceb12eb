"""Notes about invented people, companies, towns and things, and questions they do or do not answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from training.worlds.chat import UNSTATED, off_topic
from training.worlds.example import Example, Turn, capital, joined, mixed, paragraph
from training.worlds.kinds import (
    COMPARED,
    KINDS,
    REFERENCES,
    RELATIONS,
    REVERSED,
    answered,
    asked,
    label,
    missing,
    told,
)
from training.worlds.tables import tables
from training.worlds.words import filler

TABLES = tables("documents")
SYSTEM = TABLES["system"]
LEADS = TABLES["leads"]
ACKNOWLEDGEMENTS = TABLES["acknowledgements"]
HEADS = TABLES["heads"]
SUMMARIES = TABLES["summaries"]
OVERVIEWS = TABLES["overviews"]
COMPARISONS = TABLES["comparisons"]
MOST_LISTED = 8  # subjects in one answer


@dataclass
class Note:
    """One document: what it is about, and the facts it tells in their order."""

    kind: str
    name: str
    place: int = 0
    facts: dict[str, str] = field(default_factory=dict)


def similar(r: random.Random, kind: str, name: str) -> str:
    """Another name of the kind that shares a word with `name`."""
    other = KINDS[kind][0](r)
    mine, others = name.split(), other.split()
    if len(mine) < 2 or len(mine) != len(others):
        return other
    at = 0 if kind == "person" and r.random() < 0.5 else len(mine) - (1 if kind == "person" else 2)
    others[at] = mine[at]
    return " ".join(others)


def notes_of(r: random.Random, count: int, facts: tuple[int, int]) -> list[Note]:
    """Draws what `count` notes are about and what they state; some names resemble each other."""
    kinds = r.choices([*KINDS, "person", "company", "town"], k=count)
    notes: list[Note] = []
    for place, kind in enumerate(kinds):
        name = KINDS[kind][0](r)
        alike = [n for n in notes if n.kind == kind]
        if alike and r.random() < 0.3:
            name = similar(r, kind, r.choice(alike).name)
        while any(n.name == name for n in notes):
            name = KINDS[kind][0](r)
        notes.append(Note(kind, name, place))
    for note in notes:
        attributes = KINDS[note.kind][1]
        chosen = r.sample(list(attributes), min(len(attributes), r.randint(*facts)))
        for key in chosen:
            value = attributes[key][0](r)
            others = [n.name for n in notes if n.kind == REFERENCES.get(key) and n is not note]
            if others and r.random() < 0.5:
                value = r.choice(others)
            note.facts[key] = value
    return notes


def text_of(r: random.Random, note: Note, most: int) -> str:
    """A note's text with up to `most` sentences that say nothing."""
    short = note.name.split()[0] if note.kind == "person" else note.name
    facts: list[str] = []
    for key, value in note.facts.items():
        called = note.name if not facts or r.random() < 0.75 else short
        facts.append(capital(told(r, note.kind, key, called, value)))
    body = mixed(r, facts, lambda: filler(r), r.randint(most // 2, most))
    head = r.choice(HEADS).format(i=note.place + 1, n=note.name)
    return paragraph(r, [head, *body] if head else body)


def plain(r: random.Random, notes: list[Note]) -> Turn:
    """Asks for a fact that a note states."""
    note = r.choice(notes)
    key = r.choice(list(note.facts))
    answer = answered(note.kind, key, note.name, note.facts[key])
    return Turn(capital(asked(r, note.kind, key, note.name)), capital(answer), "stated", note.place)


def hop(r: random.Random, notes: list[Note]) -> Turn | None:
    """Asks for a fact about whom or what another note names."""
    named = {n.name: n for n in notes}
    links = [
        (n, key, named[v]) for n in notes for key, v in n.facts.items() if key in RELATIONS and v in named
    ]
    if not links:
        return None
    first, key, second = r.choice(links)
    wanted = r.choice(list(second.facts))
    relation = r.choice(RELATIONS[key].split("|")).format(n=first.name)
    question = asked(r, second.kind, wanted, relation)
    answer = answered(second.kind, wanted, second.name, second.facts[wanted])
    return Turn(capital(question), capital(answer), "two documents", second.place)


def reverse(r: random.Random, notes: list[Note]) -> Turn | None:
    """Asks which subject a value belongs to; only for values that one note states."""
    facts = [(n, key, v) for n in notes for key, v in n.facts.items() if key in REVERSED]
    alone = [f for f in facts if sum(f[2] == v for n in notes for v in n.facts.values()) == 1]
    if not alone:
        return None
    note, key, value = r.choice(alone)
    answer = answered(note.kind, key, note.name, value)
    return Turn(REVERSED[key].format(v=value), capital(answer), "reversed", note.place)


def compared(r: random.Random, notes: list[Note]) -> Turn | None:
    """Asks for the same fact about two subjects of a kind."""
    pairs = [
        (a, b, key)
        for a in notes
        for b in notes
        if a is not b and a.kind == b.kind
        for key in a.facts
        if key in b.facts and key in COMPARED
    ]
    if not pairs:
        return None
    first, second, key = r.choice(pairs)
    question = r.choice(COMPARISONS).format(a=first.name, b=second.name, k=label(first.kind, key))
    one, other = (answered(n.kind, key, n.name, n.facts[key]).removesuffix(".") for n in (first, second))
    if other.startswith("The "):
        other = "t" + other[1:]
    return Turn(question, capital(f"{one}, and {other}."), "comparison")


def summary(r: random.Random, notes: list[Note]) -> Turn:
    """Asks for the facts of one note in their order."""
    note = r.choice(notes)
    facts = [capital(answered(note.kind, k, note.name, v)) for k, v in note.facts.items()]
    return Turn(r.choice(SUMMARIES).format(n=note.name), " ".join(facts), "summary", note.place)


def overview(r: random.Random, notes: list[Note]) -> Turn | None:
    """Asks what all notes are about."""
    if len(notes) > MOST_LISTED:
        return None
    return Turn(r.choice(OVERVIEWS), f"The documents are about {joined([n.name for n in notes])}.", "list")


def unstated(r: random.Random, notes: list[Note]) -> Turn:
    """Asks for what no note states: another attribute, another subject, or something else entirely."""
    note, draw = r.choice(notes), r.random()
    kind, name, keys = note.kind, note.name, [k for k in KINDS[note.kind][1] if k not in note.facts]
    if draw < 0.15:
        kind = r.choice([k for k in KINDS if k != note.kind])
        # what another kind is asked for; not where the same words could mean an attribute of this one
        keys = [key for key in KINDS[kind][1] if key not in ("stands", "opened", "since")]
    elif draw > 0.6 or not keys:
        keys = list(KINDS[kind][1])
        while any(n.name == name for n in notes):
            name = similar(r, kind, note.name)
    if draw > 0.92:
        return Turn(off_topic(r), UNSTATED, "unstated")
    key = r.choice(keys)
    return Turn(capital(asked(r, kind, key, name)), missing(kind, key, name), "unstated")


def question(r: random.Random, notes: list[Note]) -> Turn:
    """One question to the notes, of a drawn kind."""
    kind = r.random()
    turn: Turn | None = None
    if kind < 0.28:
        turn = unstated(r, notes)
    elif kind < 0.44:
        turn = hop(r, notes)
    elif kind < 0.51:
        turn = reverse(r, notes)
    elif kind < 0.57:
        turn = compared(r, notes)
    elif kind < 0.61:
        turn = summary(r, notes)
    elif kind < 0.64:
        turn = overview(r, notes)
    return turn or plain(r, notes)


def shape(r: random.Random, size: int) -> tuple[int, tuple[int, int], int]:
    """How many notes, how many facts in each, and the most sentences of prose, for a size 0..3."""
    if size == 3 and r.random() < 0.4:
        return r.randint(7, 16), (2, 4), r.randint(0, 3)
    return (
        (r.randint(1, 2), (2, 3), 0),
        (r.randint(1, 4), (2, 4), 1),
        (r.randint(2, 7), (3, 5), 3),
        (r.randint(3, 9), (3, 6), r.randint(4, 12)),
    )[size]


def documents(r: random.Random, size: int, turns: int) -> Example:
    """Documents about different things, and `turns` questions; `size` 0..3 says how many and how long."""
    example = Example("documents")
    count, facts, most = shape(r, size)
    if size or r.random() < 0.3:
        example.role("system")
        example.anonymous(r.choice(SYSTEM))
        example.close()
    example.role("user")
    example.anonymous(r.choice(LEADS))
    notes = notes_of(r, count, facts)
    for note in notes:
        example.module(text_of(r, note, most), f"doc{note.place}")
    if r.random() < 0.4:
        example.open_user = True
    else:
        example.close()
        if r.random() < 0.6:
            example.role("assistant")
            example.anonymous(r.choice(ACKNOWLEDGEMENTS))
            example.close()
    example.turns += [question(r, notes) for _ in range(turns if size < 2 else 3 * turns)]
    return example
