"""Small talk, and questions that no prompt of the corpus answers."""

from __future__ import annotations

import random

from training.worlds.example import Turn
from training.worlds.tables import tables
from training.worlds.words import ADJECTIVES, COUNTRIES, COUNTS, NOUNS, PLURALS, invented

TABLES = tables("chat")
NOT_STATED = "is not stated in the documents."
UNSTATED = f"That {NOT_STATED}"
ANSWERS = {
    "greetings": "Hello. Ask me about what you have picked.",
    "thanks": "You are welcome.",
    "farewells": "Goodbye.",
    "who": "I am a small model made to show prompt caching. I know only what this prompt tells me.",
    "abilities": "I answer questions about documents, plan trips and lessons, and write short programs.",
}


def off_topic(r: random.Random) -> str:
    """A question that has nothing to do with any prompt."""
    text = r.choice(TABLES["off_topic"])
    for slot, table in (
        ("{c}", COUNTRIES),
        ("{n}", NOUNS),
        ("{p}", PLURALS),
        ("{a}", ADJECTIVES),
        ("{d}", COUNTS),
    ):
        while slot in text:
            text = text.replace(slot, r.choice(table), 1)
    return text.replace("{i}", invented(r))


def small_talk(r: random.Random) -> Turn:
    """A greeting, thanks, or a question about the model itself."""
    kind = r.choice(list(ANSWERS))
    return Turn(r.choice(TABLES[kind]), ANSWERS[kind], "chat")
