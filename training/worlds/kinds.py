"""What notes can be about: kinds of subjects, their attributes, and how facts are told and asked for."""

from __future__ import annotations

import random
from collections.abc import Callable

from training.worlds.tables import tables
from training.worlds.words import MONTHS, invented, person

Maker = Callable[[random.Random], str]
TABLES = tables("documents")
JOBS = TABLES["jobs"]
DEVICES = TABLES["devices"]
BUILDINGS = TABLES["buildings"]
PETS = TABLES["pets"]
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
    return f"{r.choice(COLOURS)} {r.choice(PETS)}"


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
                "{n} lives in {v}.",
            ),
            "job": (
                one_of(JOBS),
                "{n} works as a {v}.|By trade {n} is a {v}.|{n} has been a {v} for years.",
                "What is the job of {n}?|What does {n} do for work?",
                "{n} works as a {v}.",
            ),
            "pet": (
                pet,
                "{n} keeps a {v}.|At home {n} has a {v}.|A {v} shares the house with {n}.",
                "Which pet does {n} keep?|What pet does {n} have?",
                "{n} keeps a {v}.",
            ),
            "food": (
                one_of(DISHES),
                "The favourite dish of {n} is {v}.|For dinner {n} likes {v}.",
                "What does {n} like to eat?|What is the favourite dish of {n}?",
                "{n} likes to eat {v}.",
            ),
            "friend": (
                person,
                "A close friend of {n} is {v}.|{n} often travels with a friend, {v}.",
                "Who is a friend of {n}?",
                "A friend of {n} is {v}.",
            ),
            "born": (
                year,
                "{n} was born in {v}.|The year of birth of {n} is {v}.",
                "When was {n} born?|In which year was {n} born?",
                "{n} was born in {v}.",
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
                "{n} plays the {v}.",
            ),
            "speaks": (
                one_of(LANGUAGES),
                "{n} speaks {v}.|Besides the mother tongue, {n} speaks {v}.",
                "Which language does {n} speak?",
                "{n} speaks {v}.",
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
                "{n} is based in {v}.",
            ),
            "founder": (
                person,
                "{n} was founded by {v}.|The founder of {n} is {v}.",
                "Who founded {n}?|Who is the founder of {n}?",
                "{n} was founded by {v}.",
            ),
            "since": (
                year,
                "{n} was founded in {v}.|{n} opened its doors in {v}.",
                "When was {n} founded?|In which year was {n} founded?",
                "{n} was founded in {v}.",
            ),
            "makes": (
                one_of(GOODS),
                "{n} makes {v}.|The factory of {n} turns out {v}.",
                "What does {n} make?",
                "{n} makes {v}.",
            ),
            "staff": (
                number(12, 980),
                "{n} employs {v} people.|Today {v} people work for {n}.",
                "How many people work for {n}?|How many people does {n} employ?",
                "{n} employs {v} people.",
            ),
            "head": (
                person,
                "The director of {n} is {v}.|{n} is led by {v}.",
                "Who leads {n}?|Who is the director of {n}?",
                "{n} is led by {v}.",
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
                "{n} lies on the river {v}.",
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
                "{n} has {v} inhabitants.",
            ),
            "famed": (
                one_of(FAMED),
                "{n} is known for its {v}.|Traders praise the {v} of {n}.",
                "What is {n} known for?",
                "{n} is known for its {v}.",
            ),
            "festival": (
                one_of(MONTHS),
                "The festival of {n} takes place in {v}.|Every {v} there is a festival in {n}.",
                "When is the festival of {n}?|In which month is the festival of {n}?",
                "The festival of {n} is in {v}.",
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
                "{n} is made by {v}.",
            ),
            "price": (
                number(8, 990, " euros"),
                "{n} costs {v}.|The price of {n} is {v}.",
                "How much is {n}?|What does {n} cost?",
                "{n} costs {v}.",
            ),
            "weight": (
                number(2, 40, " kilograms"),
                "{n} weighs {v}.|The weight of {n} is {v}.",
                "How heavy is {n}?|What does {n} weigh?",
                "{n} weighs {v}.",
            ),
            "colour": (
                one_of(COLOURS),
                "{n} comes in {v}.|The colour of {n} is {v}.",
                "What colour is {n}?|In which colour does {n} come?",
                "{n} comes in {v}.",
            ),
            "warranty": (
                number(1, 12, " years"),
                "{n} has a warranty of {v}.|The warranty of {n} lasts {v}.",
                "How long is the warranty of {n}?",
                "{n} has a warranty of {v}.",
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
                "{n} was designed by {v}.",
            ),
            "opened": (
                year,
                "{n} was opened in {v}.|{n} has been open since {v}.",
                "When was {n} opened?|In which year was {n} opened?",
                "{n} was opened in {v}.",
            ),
            "stands": (
                invented,
                "{n} stands in {v}.|You can see {n} in the town of {v}.",
                "Where is {n}?|In which town is {n}?",
                "{n} stands in {v}.",
            ),
            "height": (
                number(4, 300, " metres"),
                "{n} is {v} high.|The height of {n} is {v}.",
                "How high is {n}?",
                "{n} is {v} high.",
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
                "{n} sails from {v}.",
            ),
            "cargo": (
                one_of(GOODS),
                "{n} carries {v}.|The cargo of {n} is {v}.",
                "What does {n} carry?",
                "{n} carries {v}.",
            ),
            "crew": (
                number(3, 90),
                "{n} has a crew of {v}.|There are {v} people in the crew of {n}.",
                "How large is the crew of {n}?",
                "{n} has a crew of {v}.",
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
COMPARED = {
    "born": "year of birth",
    "job": "job",
    "home": "home",
    "since": "year of founding",
    "staff": "size",
    "makes": "products",
    "people": "number of inhabitants",
    "festival": "month of the festival",
    "mayor": "mayor",
    "price": "price",
    "weight": "weight",
    "warranty": "warranty",
    "colour": "colour",
    "height": "height",
    "opened": "year of opening",
    "crew": "crew",
    "port": "home port",
}


def asked(r: random.Random, kind: str, key: str, name: str) -> str:
    """A question for an attribute of a subject."""
    return r.choice(KINDS[kind][1][key][2].split("|")).format(n=name)


def told(r: random.Random, kind: str, key: str, name: str, value: str) -> str:
    """A sentence that states a fact."""
    return r.choice(KINDS[kind][1][key][1].split("|")).format(n=name, v=value)


def answered(kind: str, key: str, name: str, value: str) -> str:
    """The sentence that answers a question for a fact."""
    return KINDS[kind][1][key][3].format(n=name, v=value)
