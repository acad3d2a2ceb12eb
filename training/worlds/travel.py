"""Trips: a plan module with a duration, a place described at length, and questions about it."""

from __future__ import annotations

import random

from training.worlds.example import Example, Turn, capital, joined, mixed, paragraph
from training.worlds.tables import tables
from training.worlds.traits import Trait, interest, trait_turn, traits
from training.worlds.words import (
    ADJECTIVES,
    COUNTRIES,
    MONTHS,
    NOUNS,
    PLURALS,
    REAL_PLACES,
    REAL_REGIONS,
    HeldOut,
    filler,
    invented,
)

# topic as the text names it: (nouns its places are called by, other words a question may use)
TOPICS: dict[str, tuple[str, str]] = {
    "sights": (
        "Palace Castle Fountain Square Bridge Tower Gate Arch Statue Fort Temple Column Cathedral",
        "landmarks|main sights",
    ),
    "surf spots": ("Point Reef Bay Break Beach Bar", "surfing|surf|waves|surf beaches"),
    "beaches": ("Beach Bay Cove Sands Shore Lagoon", "swimming|the sea|beach time"),
    "museums": ("Museum Gallery Collection House Archive", "museum visits|art|history"),
    "markets": ("Market Bazaar Arcade Hall Street", "shopping|shops|market halls"),
    "temples": ("Temple Shrine Sanctuary Pagoda Church Mosque Basilica", "shrines|churches|religious places"),
    "parks": ("Park Garden Gardens Grove Wood Meadow", "gardens|green places|nature"),
    "viewpoints": ("Hill Terrace Tower Lookout Rock Rise Peak", "views|lookouts|photographs"),
    "walks": ("Trail Path Loop Promenade Walk Steps", "walking|hiking|hikes"),
    "dive sites": ("Reef Wall Wreck Lagoon Caves Channel", "diving|snorkelling"),
    "night spots": ("Bar Club Alley Cellar Theatre Lounge", "nightlife|going out|bars"),
    "wildlife spots": ("Reserve Island Valley Marsh Pan River Cliffs", "animals|wildlife|birds"),
}
TABLES = tables("travel")
TOPIC_FRAMES = TABLES["topic_frames"]
DISH_FRAMES = TABLES["dish_frames"]
AREA_FRAMES = TABLES["area_frames"]
SEASON_FRAMES = TABLES["season_frames"]
MOVE_FRAMES = TABLES["move_frames"]
OPENERS = TABLES["openers"]
MENTIONS = TABLES["mentions"]
COOKING = TABLES["cooking"]
FOODS = TABLES["foods"]
REAL_DISHES = TABLES["real_dishes"]
SEASONS = TABLES["seasons"]
REGION_NOUNS = TABLES["region_nouns"]
VEHICLES = TABLES["vehicles"]
NUMBERS = TABLES["numbers"]
SYSTEM = TABLES["system"]
TRIP_BEFORE = TABLES["trip_before"]
TRIP_AFTER = TABLES["trip_after"]
FAR = TABLES["far"]
NEAR = TABLES["near"]
ACKNOWLEDGEMENTS = TABLES["acknowledgements"]
PLAN_QUESTIONS = TABLES["plan_questions"]
TOPIC_QUESTIONS = TABLES["topic_questions"]
LIST_QUESTIONS = TABLES["list_questions"]
DISH_QUESTIONS = TABLES["dish_questions"]
AREA_QUESTIONS = TABLES["area_questions"]
SEASON_QUESTIONS = TABLES["season_questions"]
MOVE_QUESTIONS = TABLES["move_questions"]
TRIP_QUESTIONS = TABLES["trip_questions"]


def fill(r: random.Random, text: str, place: str = "") -> str:
    """Fills the slots of a frame about a place."""
    text = text.replace("{D}", capital(place)).replace("{d}", place)
    for slot, table in (("{a}", ADJECTIVES), ("{n}", NOUNS), ("{p}", PLURALS), ("{c}", COUNTRIES)):
        while slot in text:
            text = text.replace(slot, r.choice(table), 1)
    return text


def destination(r: random.Random) -> str:
    """A place to go to, real or invented, with an article at times."""
    kind = r.random() if not isinstance(r, HeldOut) else r.uniform(0.38, 1)
    if kind < 0.3:
        return r.choice(REAL_PLACES)
    if kind < 0.38:
        return "the " + r.choice(REAL_REGIONS)
    if kind < 0.46:
        return f"the {invented(r)} {r.choice(REGION_NOUNS)}"
    return f"{invented(r)} {invented(r)}" if kind < 0.58 else invented(r)


def spot(r: random.Random, nouns: list[str]) -> str:
    """The name of a place within a destination."""
    noun, name, kind = r.choice(nouns), invented(r), r.randrange(12)
    if kind < 4:
        return f"{name} {noun}"
    if kind < 6:
        return f"the {name} {noun}"
    if kind == 6:
        return f"the {noun} of {name}"
    if kind == 7:
        return f"the {r.choice(ADJECTIVES).capitalize()} {noun}"
    if kind == 8:
        return f"{name}-{invented(r).lower()} {noun}"
    if kind == 9:
        return f"the {noun} of the {r.choice(PLURALS).capitalize()}"
    if kind == 10:
        return name if r.random() < 0.5 else f"the {name}"
    return f"{r.choice(NOUNS).capitalize()} {noun}"


def dish(r: random.Random) -> str:
    """Something to eat."""
    kind = r.randrange(6)
    if kind == 0:
        return r.choice(REAL_DISHES)
    if kind == 1:
        return f"{invented(r).lower()} {r.choice(FOODS)}"
    if kind == 2:
        return f"{r.choice(FOODS)} with {r.choice(FOODS)}"
    if kind == 3:
        return invented(r).lower()
    return f"{r.choice(COOKING)} {r.choice(FOODS)}"


def distinct(r: random.Random, make: object, count: int) -> list[str]:
    """`count` different results of a generator."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[make(r)] = None  # type: ignore[operator]
    return list(found)


def duration(r: random.Random) -> tuple[str, int]:
    """How long, as it is written, and in days."""
    kind = r.random()
    if kind < 0.72:
        days = r.choice([2, 3, 3, 4, 4, 5, 5, 6, 7])
        return f"{days} days", days
    if kind < 0.8:
        return r.choice([("a weekend", 2), ("one week", 7), ("a week", 7), ("1 week", 7)])
    if kind < 0.86:
        return r.choice([("1 day", 1), ("one day", 1), ("a day", 1)])
    index = r.randrange(len(NUMBERS))
    return f"{NUMBERS[index]} days", index + 2


def plan(
    days: int, length: str, place: str, stops: list[str], dishes: list[str], note: str, wishes: list[Trait]
) -> str:
    """The plan that answers a question."""
    lines = [f"Here is your plan for {length} in {place}{note}."]
    for day in range(1, days + 1):
        verb = "start at" if day == 1 else "finish at" if day == days else "go on to"
        stop = f"{verb} {stops[day - 1]}" if day <= len(stops) else f"take a free day in {place}"
        lines.append(f"Day {day}: {stop}.")
    if dishes:
        lines.append(f"Try {joined(dishes)}.")
    lines += [wish.line for wish in wishes]
    return "\n".join(lines)


def travel(r: random.Random, size: int, turns: int) -> Example:
    """A trip with `turns` questions; `size` 0..3 says how much is written about the place."""
    example = Example("travel")
    place, (length, days) = destination(r), duration(r)
    example.subject, example.argument = place, length
    near = r.random() < 0.22
    others = r.sample(
        [k for k in TOPICS if k != "sights"],
        [r.randint(0, 1), r.randint(1, 2), r.randint(1, 4), r.randint(2, 5)][size],
    )
    items: dict[str, list[str]] = {
        k: distinct(r, lambda x, k=k: spot(x, TOPICS[k][0].split()), r.choice([2, 3, 3, 4]))
        for k in ["sights", *others]
    }
    if size == 0 and others and r.random() < 0.5:
        items.pop("sights")
    dishes = distinct(r, dish, r.choice([2, 2, 3])) if r.random() < 0.8 else []
    areas = distinct(r, invented, 2) if r.random() < (0.3, 0.5, 0.8, 0.9)[size] else []
    season = (
        (r.choice(SEASONS) if r.random() < 0.6 else r.choice(MONTHS))
        if r.random() < (0.3, 0.5, 0.8, 0.9)[size]
        else ""
    )
    vehicle = r.choice(VEHICLES) if r.random() < (0.2, 0.4, 0.7, 0.8)[size] else ""

    facts = [r.choice(TOPIC_FRAMES).format(k=k, l=joined(v)) for k, v in items.items()]
    if dishes:
        facts.append(r.choice(DISH_FRAMES).format(l=joined(dishes)))
    if areas:
        facts.append(r.choice(AREA_FRAMES).format(l=joined(areas), o=joined(areas, "or")))
    if season:
        facts.append(r.choice(SEASON_FRAMES).format(s=season))
    if vehicle:
        facts.append(r.choice(MOVE_FRAMES).format(m=vehicle))
    r.shuffle(facts)

    def prose() -> str:
        return fill(r, r.choice(MENTIONS), place) if r.random() < 0.2 and not near else filler(r)

    def padding(most: int) -> list[str]:
        return [filler(r) for _ in range(r.randint(0, most))]

    most = (0, 2, 8, r.randint(10, 45))[size]
    body = mixed(r, facts, prose, r.randint(most // 2, most))
    if size or r.random() < 0.3:
        example.role("system")
        example.anonymous(paragraph(r, [r.choice(SYSTEM), *padding((0, 0, 1, 2)[size])]))
        example.close()
    example.role("user")
    before = paragraph(r, [*padding((0, 1, 5, 26)[size]), r.choice(TRIP_BEFORE)])
    if r.random() < 0.4:
        example.anonymous(paragraph(r, ["Here is what I want.", *padding((0, 0, 1, 2)[size])]))
    after = paragraph(r, [r.choice(TRIP_AFTER), *padding((0, 1, 5, 26)[size])])
    example.module_with(f"{before} ", length, after if after.startswith(",") else f" {after}", "trip")
    if near:
        before = paragraph(r, [*padding(most // 4), r.choice(NEAR)])
        after = paragraph(r, ["." if r.random() < 0.5 else " this time.", *body])
        example.module_with(f"{before} ", place, after, "trip/near")
    else:
        if r.random() < 0.7:
            example.module(paragraph(r, [r.choice(FAR), *padding(most // 4)]), "trip/far")
        example.module(paragraph(r, [fill(r, r.choice(OPENERS), place), *body]), "trip/far/place")
    wishes, wanted = traits(r, size), ""
    for wish in wishes:
        example.module(wish.text, wish.name)
    if r.random() < (0.05, 0.3, 0.45, 0.45)[size]:
        wanted = r.choice(list(items))
        example.module(interest(r, wanted), "interest")
    if r.random() < 0.25:
        example.open_user = True
    else:
        example.close()
        if r.random() < 0.85:
            example.role("assistant")
            example.anonymous(r.choice(ACKNOWLEDGEMENTS))
            example.close()

    sights = items.get("sights", [])
    for _ in range(turns):
        kind = r.random()
        topic = r.choice(list(items)) if r.random() < 0.88 else r.choice(list(TOPICS))
        if r.random() < 0.35:
            topic = wanted or next(iter(items))  # what a request that names no topic is answered with
        words = [topic, topic, *TOPICS[topic][1].split("|")]
        if kind < 0.5:
            if topic in items:
                stops = items[topic] + (sights if topic != "sights" else [])
                question = r.choice(TOPIC_QUESTIONS).format(k=r.choice(words))
                if topic == (wanted or "sights") and r.random() < 0.7:
                    question = r.choice(PLAN_QUESTIONS)
                answer = plan(days, length, place, stops, dishes, f" with the {topic}", wishes)
            else:
                question = r.choice(TOPIC_QUESTIONS).format(k=topic)
                answer = f"The {topic} of {place} are not stated in the notes."
        elif kind < 0.64:
            question = r.choice(LIST_QUESTIONS).format(k=topic)
            answer = (
                f"The {topic} of {place} are {joined(items[topic])}."
                if topic in items
                else f"The {topic} of {place} are not stated in the notes."
            )
        elif kind < 0.74 and dishes:
            question, answer, topic = r.choice(DISH_QUESTIONS), f"In {place}, try {joined(dishes)}.", "dishes"
        elif kind < 0.81 and areas:
            question, answer, topic = (
                r.choice(AREA_QUESTIONS),
                f"In {place}, stay in {joined(areas, 'or')}.",
                "areas",
            )
        elif kind < 0.88 and season:
            question, answer, topic = (
                r.choice(SEASON_QUESTIONS),
                f"The best time for {place} is {season}.",
                "season",
            )
        elif kind < 0.90 and vehicle:
            question, answer, topic = (
                r.choice(MOVE_QUESTIONS),
                f"In {place}, get around by {vehicle}.",
                "transport",
            )
        elif kind < 0.96 and wishes:
            example.turns.append(trait_turn(r, r.choice(wishes)))
            continue
        else:
            question, answer, topic = r.choice(TRIP_QUESTIONS), f"You will spend {length} in {place}.", "trip"
        says: tuple[str, ...] = ()
        if answer.startswith("Here is your plan"):
            says = (place, length, f"Day {days}:", *(wish.advice for wish in wishes))
        example.turns.append(Turn(question, answer, topic, wanted=says))
    return example
