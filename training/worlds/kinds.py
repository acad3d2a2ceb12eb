"""What notes can be about: kinds of subjects, their attributes, and how facts are told and asked for."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from training.worlds.chat import NOT_STATED
from training.worlds.tables import tables
from training.worlds.words import MONTHS, invented, person

Maker = Callable[[random.Random], str]
TABLES = tables("documents")
JOBS = TABLES["jobs"]
DEVICES = TABLES["devices"]
BUILDINGS = TABLES["buildings"]
PETS = TABLES["pets"]
COATS = TABLES["coats"]  # "a" goes before each of them
COLOURS = TABLES["colours"]
DISHES = TABLES["dishes"]
HOBBIES = TABLES["hobbies"]
INSTRUMENTS = TABLES["instruments"]
LANGUAGES = TABLES["languages"]
GOODS = TABLES["goods"]
FAMED = TABLES["famed"]


def year(r: random.Random) -> str:
    """A year."""
    return str(r.randint(1820, 2024))


def one_of(words: list[str]) -> Maker:
    """A maker that draws from a table."""
    return lambda r: r.choice(words)


def number(low: int, high: int, unit: str = "") -> Maker:
    """A maker of numbers with a unit."""
    return lambda r: f"{r.randint(low, high)}{unit}"


def pet(r: random.Random) -> str:
    """A pet and its colour."""
    return f"{r.choice(COATS)} {r.choice(PETS)}"


def company_name(r: random.Random) -> str:
    """A company."""
    return f"{invented(r)} {r.choice(['Works', 'Brothers', 'Company', 'Labs', 'Mills', 'Foundry'])}"


def device_name(r: random.Random) -> str:
    """A product with a model number."""
    return f"the {invented(r)} {r.choice(DEVICES)}"


def building_name(r: random.Random) -> str:
    """A building or bridge."""
    return f"the {invented(r)} {r.choice(BUILDINGS)}"


def ship_name(r: random.Random) -> str:
    """A ship."""
    return f"the ship {invented(r)}"


# kind → (name maker, {attribute: (value maker, statements, questions, answer)}); {n} the name, {v} the value
Attribute = tuple[Maker, str, str, str]
KINDS: dict[str, tuple[Maker, dict[str, Attribute]]] = {
    "person": (
        person,
        {
            "home": (
                invented,
                "{n} lives in {v}.|The home of {n} is the town of {v}.|You can find {n} in {v}.",
                "Where does {n} live?|In which town does {n} live?",
                "The home of {n} is {v}.",
            ),
            "job": (
                one_of(JOBS),
                "{n} works as a {v}.|By trade {n} is a {v}.|{n} has been a {v} for years.",
                "What is the job of {n}?|What does {n} do for work?",
                "The job of {n} is {v}.",
            ),
            "pet": (
                pet,
                "{n} keeps a {v}.|At home {n} has a {v}.|A {v} shares the house with {n}.",
                "Which pet does {n} keep?|What pet does {n} have?",
                "The pet of {n} is a {v}.",
            ),
            "food": (
                one_of(DISHES),
                "The favourite dish of {n} is {v}.|For dinner {n} likes {v}.",
                "What does {n} like to eat?|What is the favourite dish of {n}?",
                "The favourite dish of {n} is {v}.",
            ),
            "friend": (
                person,
                "A close friend of {n} is {v}.|{n} often travels with a friend, {v}.",
                "Who is a friend of {n}?",
                "The friend of {n} is {v}.",
            ),
            "born": (
                year,
                "{n} was born in {v}.|The year of birth of {n} is {v}.",
                "When was {n} born?|In which year was {n} born?",
                "The year of birth of {n} is {v}.",
            ),
            "hobby": (
                one_of(HOBBIES),
                "In free hours {n} enjoys {v}.|The hobby of {n} is {v}.",
                "What is the hobby of {n}?",
                "The hobby of {n} is {v}.",
            ),
            "plays": (
                one_of(INSTRUMENTS),
                "{n} plays the {v}.|{n} learned to play the {v} as a child.",
                "Which instrument does {n} play?",
                "The instrument of {n} is the {v}.",
            ),
            "speaks": (
                one_of(LANGUAGES),
                "{n} speaks {v}.|Besides the mother tongue, {n} speaks {v}.",
                "Which language does {n} speak?",
                "The language of {n} is {v}.",
            ),
        },
    ),
    "company": (
        company_name,
        {
            "seat": (
                invented,
                "{n} has its seat in {v}.|The offices of {n} are in {v}.",
                "Where is {n} based?|Where does {n} have its seat?",
                "The seat of {n} is {v}.",
            ),
            "founder": (
                person,
                "{n} was founded by {v}.|The founder of {n} is {v}.",
                "Who founded {n}?|Who is the founder of {n}?",
                "The founder of {n} is {v}.",
            ),
            "since": (
                year,
                "{n} was founded in {v}.|{n} opened its doors in {v}.",
                "When was {n} founded?|In which year was {n} founded?",
                "The year of founding of {n} is {v}.",
            ),
            "makes": (
                one_of(GOODS),
                "{n} makes {v}.|The factory of {n} turns out {v}.",
                "What does {n} make?",
                "The product of {n} is {v}.",
            ),
            "staff": (
                number(12, 980),
                "{n} employs {v} people.|Today {v} people work for {n}.",
                "How many people work for {n}?|How many people does {n} employ?",
                "The number of people at {n} is {v}.",
            ),
            "head": (
                person,
                "The director of {n} is {v}.|{n} is led by {v}.",
                "Who leads {n}?|Who is the director of {n}?",
                "The director of {n} is {v}.",
            ),
        },
    ),
    "town": (
        invented,
        {
            "river": (
                invented,
                "{n} lies on the river {v}.|The river {v} flows through {n}.",
                "Which river flows through {n}?|On which river does {n} lie?",
                "The river of {n} is {v}.",
            ),
            "mayor": (
                person,
                "The mayor of {n} is {v}.|{n} has a mayor called {v}.",
                "Who is the mayor of {n}?",
                "The mayor of {n} is {v}.",
            ),
            "people": (
                number(200, 99000),
                "{n} has {v} inhabitants.|About {v} people live in {n}.",
                "How many people live in {n}?|How many inhabitants does {n} have?",
                "The number of inhabitants of {n} is {v}.",
            ),
            "famed": (
                one_of(FAMED),
                "{n} is known for its {v}.|Traders praise the {v} of {n}.",
                "What is {n} known for?",
                "The pride of {n} is its {v}.",
            ),
            "festival": (
                one_of(MONTHS),
                "The festival of {n} takes place in {v}.|Every {v} there is a festival in {n}.",
                "When is the festival of {n}?|In which month is the festival of {n}?",
                "The month of the festival of {n} is {v}.",
            ),
        },
    ),
    "device": (
        device_name,
        {
            "maker": (
                company_name,
                "{n} is made by {v}.|{v} builds {n}.",
                "Who makes {n}?|Which company makes {n}?",
                "The maker of {n} is {v}.",
            ),
            "price": (
                number(8, 990, " euros"),
                "{n} costs {v}.|The price of {n} is {v}.",
                "How much is {n}?|What does {n} cost?",
                "The price of {n} is {v}.",
            ),
            "weight": (
                number(2, 40, " kilograms"),
                "{n} weighs {v}.|The weight of {n} is {v}.",
                "How heavy is {n}?|What does {n} weigh?",
                "The weight of {n} is {v}.",
            ),
            "colour": (
                one_of(COLOURS),
                "{n} comes in {v}.|The colour of {n} is {v}.",
                "What colour is {n}?|In which colour does {n} come?",
                "The colour of {n} is {v}.",
            ),
            "warranty": (
                number(1, 12, " years"),
                "{n} has a warranty of {v}.|The warranty of {n} lasts {v}.",
                "How long is the warranty of {n}?",
                "The warranty of {n} is {v}.",
            ),
        },
    ),
    "building": (
        building_name,
        {
            "architect": (
                person,
                "{n} was designed by {v}.|The architect of {n} is {v}.",
                "Who designed {n}?|Who is the architect of {n}?",
                "The architect of {n} is {v}.",
            ),
            "opened": (
                year,
                "{n} was opened in {v}.|{n} has been open since {v}.",
                "When was {n} opened?|In which year was {n} opened?",
                "The year of opening of {n} is {v}.",
            ),
            "stands": (
                invented,
                "{n} stands in {v}.|You can see {n} in the town of {v}.",
                "Where is {n}?|In which town is {n}?",
                "The place of {n} is {v}.",
            ),
            "height": (
                number(4, 300, " metres"),
                "{n} is {v} high.|The height of {n} is {v}.",
                "How high is {n}?",
                "The height of {n} is {v}.",
            ),
        },
    ),
    "ship": (
        ship_name,
        {
            "captain": (
                person,
                "The captain of {n} is {v}.|{n} sails under captain {v}.",
                "Who is the captain of {n}?",
                "The captain of {n} is {v}.",
            ),
            "port": (
                invented,
                "The home port of {n} is {v}.|{n} sails from {v}.",
                "What is the home port of {n}?|From which port does {n} sail?",
                "The home port of {n} is {v}.",
            ),
            "cargo": (
                one_of(GOODS),
                "{n} carries {v}.|The cargo of {n} is {v}.",
                "What does {n} carry?",
                "The cargo of {n} is {v}.",
            ),
            "crew": (
                number(3, 90),
                "{n} has a crew of {v}.|There are {v} people in the crew of {n}.",
                "How large is the crew of {n}?",
                "The size of the crew of {n} is {v}.",
            ),
        },
    ),
}
# attributes whose value may be another document's subject
REFERENCES = {
    "home": "town",
    "seat": "town",
    "stands": "town",
    "port": "town",
    "friend": "person",
    "founder": "person",
    "head": "person",
    "mayor": "person",
    "architect": "person",
    "captain": "person",
    "maker": "company",
}
# how a question names what such an attribute refers to
RELATIONS = {
    "home": "the home town of {n}|the town where {n} lives",
    "seat": "the town where {n} is based",
    "stands": "the town where {n} stands",
    "port": "the home port of {n}",
    "friend": "the friend of {n}",
    "founder": "the founder of {n}",
    "head": "the director of {n}",
    "mayor": "the mayor of {n}",
    "architect": "the architect of {n}",
    "captain": "the captain of {n}",
    "maker": "the maker of {n}",
}
# attributes whose value may be asked back for its subject
REVERSED = {
    "home": "Who lives in {v}?",
    "job": "Who works as a {v}?",
    "pet": "Who keeps a {v}?",
    "plays": "Who plays the {v}?",
    "speaks": "Who speaks {v}?",
    "hobby": "Whose hobby is {v}?",
    "seat": "Which company is based in {v}?",
    "makes": "Which company makes {v}?",
    "river": "Which town lies on the river {v}?",
    "famed": "Which town is known for its {v}?",
    "cargo": "Which ship carries {v}?",
    "port": "Which ship sails from {v}?",
}
# what two subjects of a kind may be compared by
# fmt: off
COMPARED = frozenset((
    "born", "job", "home", "since", "staff", "makes", "people", "festival", "mayor", "price",
    "weight", "warranty", "colour", "height", "opened", "crew", "port",
))
# fmt: on


def asked(r: random.Random, kind: str, key: str, name: str) -> str:
    """A question for an attribute of a subject."""
    return r.choice(KINDS[kind][1][key][2].split("|")).format(n=name)


def told(r: random.Random, kind: str, key: str, name: str, value: str) -> str:
    """A sentence that states a fact."""
    return r.choice(KINDS[kind][1][key][1].split("|")).format(n=name, v=value)


def answered(kind: str, key: str, name: str, value: str) -> str:
    """The sentence that answers a question for a fact."""
    return KINDS[kind][1][key][3].format(n=name, v=value)


def label(kind: str, key: str) -> str:
    """What an attribute is called, as in "the year of birth of …"."""
    return re.sub(r"^The | (of|at) \{n\}.*", "", KINDS[kind][1][key][3])


def missing(kind: str, key: str, name: str) -> str:
    """The sentence that answers a question for a fact that no note states.

    It begins like the one that states a fact, so that the model has looked for the value where it decides.
    """
    return KINDS[kind][1][key][3].partition("{n} is")[0] + f"{name} {NOT_STATED}"
