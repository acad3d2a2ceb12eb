"""Notes about invented people, companies, towns and things, and questions they do or do not answer."""

from __future__ import annotations

import random
from collections.abc import Callable

from training.worlds.example import Example, Turn, mixed, paragraph
from training.worlds.tables import tables
from training.worlds.words import MONTHS, filler, invented, person

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
SYSTEM = TABLES["system"]
LEADS = TABLES["leads"]
ACKNOWLEDGEMENTS = TABLES["acknowledgements"]
HEADS = TABLES["heads"]
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
UNSTATED = "That is not stated in the documents."


def upper(text: str) -> str:
    """First letter in upper case."""
    return text[:1].upper() + text[1:]


def documents(r: random.Random, size: int, turns: int) -> Example:
    """Documents about different things, and `turns` questions; `size` 0..3 says how many and how long."""
    example = Example("documents")
    count = (r.randint(1, 2), r.randint(1, 4), r.randint(2, 7), r.randint(3, 9))[size]
    if size or r.random() < 0.3:
        example.role("system")
        example.anonymous(r.choice(SYSTEM))
        example.close()
    example.role("user")
    example.anonymous(f"{r.choice(LEADS)} ")
    known: list[tuple[str, str, str, str]] = []
    unknown: list[tuple[str, str, str]] = []
    kinds = r.choices([*KINDS, "person", "company", "town"], k=count)
    names = [KINDS[kind][0](r) for kind in kinds]
    for index, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        attributes = KINDS[kind][1]
        short = name.split()[0] if kind == "person" else name
        chosen = r.sample(
            list(attributes),
            min(len(attributes), (r.randint(2, 3), r.randint(2, 4), r.randint(3, 5), r.randint(3, 6))[size]),
        )
        facts: list[str] = []
        for key in chosen:
            value = attributes[key][0](r)
            others = [n for k, n in zip(kinds, names, strict=True) if k == REFERENCES.get(key) and n != name]
            if others and r.random() < 0.4:
                value = r.choice(others)
            called = name if not facts or r.random() < 0.75 else short
            facts.append(upper(r.choice(attributes[key][1].split("|")).format(n=called, v=value)))
            known.append((kind, name, key, value))
        unknown += [(kind, name, key) for key in attributes if key not in chosen]
        most = (0, 1, 3, r.randint(4, 12))[size]
        body = mixed(r, facts, lambda: filler(r), r.randint(most // 2, most))
        head = r.choice(HEADS).format(i=index + 1, n=name)
        example.module(paragraph(r, [head, *body] if head else body), f"doc{index}")
    if r.random() < 0.4:
        example.open_user = True
    else:
        example.close()
        if r.random() < 0.6:
            example.role("assistant")
            example.anonymous(r.choice(ACKNOWLEDGEMENTS))
            example.close()
    for _ in range(turns if size < 2 else 2 * turns):
        if unknown and r.random() < 0.12:
            kind, name, key = r.choice(unknown)
            answer = UNSTATED
        else:
            kind, name, key, value = r.choice(known)
            answer = upper(KINDS[kind][1][key][3].format(n=name, v=value))
        question = upper(r.choice(KINDS[kind][1][key][2].split("|")).format(n=name))
        example.turns.append(Turn(question, answer, "unstated" if answer == UNSTATED else "stated"))
    return example
