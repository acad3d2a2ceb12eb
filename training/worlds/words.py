"""Invented names, and prose that says nothing in particular."""

from __future__ import annotations

import random
import zlib

from training.worlds.tables import tables

TABLES = tables("words")
ONSETS = TABLES["onsets"]
VOWELS = TABLES["vowels"]
CODAS = TABLES["codas"]
FIRST = TABLES["first"]
REAL_PLACES = TABLES["real_places"]
REAL_REGIONS = TABLES["real_regions"]
COUNTRIES = TABLES["countries"]
ADJECTIVES = TABLES["adjectives"]
COUNTS = TABLES["counts"]
NOUNS = TABLES["nouns"]
PLURALS = TABLES["plurals"]
VERBS = TABLES["verbs"]
TIMES = TABLES["times"]
MONTHS = TABLES["months"]
FUNCTIONS = TABLES["functions"]
NAME_STARTS = TABLES["name_starts"]
NAME_ENDS = TABLES["name_ends"]

FRAMES = TABLES["frames"]


def syllable(r: random.Random) -> str:
    """One invented syllable."""
    return r.choice(ONSETS) + r.choice(VOWELS) + r.choice(CODAS)


class HeldOut(random.Random):
    """Draws only names that training never draws."""


def reserved(name: str) -> bool:
    """Whether a name is kept for evaluation: an eighth of those with at least five letters are."""
    return len(name) >= 5 and zlib.crc32(name.lower().encode()) % 8 == 0


def invented(r: random.Random) -> str:
    """One invented name, from the half of the world that `r` stands for."""
    while True:
        if r.random() < 0.12:
            name = (r.choice(NAME_STARTS) + r.choice(NAME_ENDS)).capitalize()
        else:
            name = "".join(syllable(r) for _ in range(r.choice([1, 2, 2, 2, 3]))).capitalize()
        if reserved(name) == isinstance(r, HeldOut):
            return name


def person(r: random.Random) -> str:
    """A full name, with an invented surname."""
    return f"{r.choice(FIRST) if r.random() < 0.6 else invented(r)} {invented(r)}"


def babble(r: random.Random) -> str:
    """Words in no order, so that what surrounds a fact need not read like any known sentence."""
    words: list[str] = []
    for _ in range(r.randint(5, 20)):
        kind = r.random()
        if kind < 0.4:
            words.append(r.choice(FUNCTIONS))
        elif kind < 0.75:
            words.append(r.choice(r.choice([NOUNS, ADJECTIVES, PLURALS, COUNTS])))
        else:
            words.append(invented(r) if kind > 0.98 else invented(r).lower())
        if r.random() < 0.08:
            words[-1] += ","
    text = " ".join(words).rstrip(",") + "."
    return text[0].upper() + text[1:]


def filler(r: random.Random) -> str:
    """One sentence of prose without a fact."""
    if r.random() < 0.25:
        return babble(r)
    text = r.choice(FRAMES)
    for slot, table in (
        ("{a}", ADJECTIVES),
        ("{n}", NOUNS),
        ("{p}", PLURALS),
        ("{v}", VERBS),
        ("{t}", TIMES),
        ("{d}", COUNTS),
    ):
        while slot in text:
            word = r.choice(table) if r.random() < 0.9 else invented(r).lower()
            text = text.replace(slot, word, 1)
    while "{i}" in text:
        text = text.replace("{i}", invented(r) if r.random() < 0.7 else r.choice(REAL_PLACES), 1)
    text = text.replace("{A}", r.choice(ADJECTIVES).capitalize())
    time = r.choice(TIMES)
    return text.replace("{T}", time[:1].upper() + time[1:])
