"""Invented names, and prose that says nothing in particular."""

from __future__ import annotations

import random

ONSETS = "b d f g h j k l m n p r s t v w y z br ch dr fl gr kl pr sh st th tr".split()
VOWELS = "a e i o u a e i o ai au ei ia io ou".split()
CODAS = ["", "", "", "", "n", "r", "l", "s", "m", "nd", "rk", "st", "k", "t", "ng"]
FIRST = (
    "Ada Amir Anna Ben Carla Carlos Chen Clara David Elena Emma Farid Fatima Grace Hana Henry Ines Ivan Jonas Julia Karim Lena Leo "
    "Lucia Maria Marta Mei Mina Nadia Nora Omar Oscar Paul Petra Rosa Samir Sara Simon Sofia Tariq Theo Tomas Vera Yusuf Zoe"
).split()
REAL_PLACES = (
    "Tokyo Rome Sydney Lisbon Cairo Lima Oslo Paris London Berlin Madrid Vienna Athens Dublin Prague Boston Chicago Miami Denver "
    "Seattle Toronto Montreal Havana Quito Bogota Santiago Nairobi Accra Lagos Tunis Fez Dakar Delhi Mumbai Hanoi Seoul Busan Osaka "
    "Kyoto Taipei Manila Jakarta Perth Auckland Wellington Naples Venice Florence Porto Seville Lyon Bruges Ghent Riga Tallinn"
).split() + ["Cape Town", "Buenos Aires", "New York", "Hong Kong", "San Juan", "Rio de Janeiro", "New Orleans", "Key West"]
REAL_REGIONS = "Maldives Amazon Sahara Alps Azores Andes Hebrides Bahamas Seychelles Dolomites Highlands Philippines Pyrenees".split()
COUNTRIES = (
    "Japan Italy Australia Argentina Portugal Spain France Greece Norway Peru Chile Brazil Egypt Kenya Morocco India Vietnam Korea "
    "Canada Mexico Ireland Iceland Cuba Ghana Thailand Finland Croatia Turkey Jordan Nepal"
).split() + ["South Africa", "New Zealand", "the United States", "the Indian Ocean"]
ADJECTIVES = (
    "quiet bright old young busy narrow wide gentle steep golden green blue white red dark warm cool soft rough plain rich simple "
    "famous hidden small large long short slow quick lively calm proud humble modern ancient royal wild tidy noisy friendly generous "
    "patient curious careful honest clever brave early late local foreign distant common rare fresh dry salty sweet smoky crowded "
    "empty sunny windy rainy misty shining wooden stone silver glass paper open closed broad deep shallow high low"
).split()
NOUNS = (
    "street river harbour garden market bridge hill valley tower window door kitchen table lamp letter book song story dream morning "
    "evening afternoon season summer winter journey road path train tram boat ferry bicycle suitcase ticket map photograph camera "
    "crowd neighbour family child friend stranger guide teacher student baker fisherman painter writer musician shop café bakery "
    "library school station square corner courtyard balcony roof wall stone brick wave island coast shore forest field lake cloud "
    "rain wind light shadow colour sound smell taste memory question answer idea plan habit custom festival holiday budget price"
).split()
PLURALS = (
    "streets rivers gardens markets bridges hills towers windows kitchens lamps letters books songs stories mornings evenings trains "
    "boats bicycles maps crowds families children friends visitors guides students bakers painters musicians shops libraries squares "
    "corners courtyards balconies roofs walls waves islands forests fields lakes clouds colours sounds memories questions ideas "
    "habits customs festivals holidays travellers locals people neighbours workers artists"
).split()
VERBS = (
    "remember notice enjoy describe carry follow share keep find leave paint cross watch love miss visit discover choose praise need "
    "want expect forget mention recommend prefer"
).split()
TIMES = (
    "in the morning|at night|before lunch|after dark|at sunset|early in the day|on most days|every year|for a while|at the weekend|"
    "in a single day|for hours|once in a while|when it rains|in good weather|since then|over the years|as a rule|all year round|"
    "from time to time|at first sight|in the end"
).split("|")
MONTHS = "January February March April May June July August September October November December".split()

FRAMES = (
    "The {a} {n} and the {a} {n} belong together.|Most {p} {v} the {a} {n} {t}.|{A} {p} {v} a {n} that looks {a} {t}.|"
    "Nobody can {v} every {n} {t}, and nobody has to.|There is always a {n}, a {n} and some {a} {p}.|It is {a} and {a} {t}.|"
    "What {p} {v} most is the {a} {n}.|If you {v} the {n}, you will {v} the {n} as well.|{T}, the {p} are {a} and the {n} is {a}.|"
    "Between the {n} and the {n} there is a {a} {n}.|Some {p} {v} it {t}; others {v} only the {a} {n}.|"
    "A {a} {n} can tell more than many {a} {p}.|You hear {p} and smell the {n} {t}.|The {n} is {a}, yet the {p} {v} it.|"
    "Not every {n} is {a}, but each has its {n}.|{T}, {p} and {p} meet near the {a} {n}.|The old and the new live side by side {t}.|"
    "Here the {n} meets the {n}, and {a} {p} {v} both.|It takes time to {v} a {n} like this.|Many {p} come back {t}.|"
    "Its {p} are {a}, its {n} is {a}, and its {n} is never far.|With a {a} {n} in hand, {p} {v} the way {t}.|"
    "Everything from the {n} to the {a} {n} has its own {n}.|That is why {a} {p} still {v} it {t}.|"
    "Even so, the {n} remains {a} and the {p} remain {a}.|Few things are as {a} as a {n} {t}.|"
    "The {p} here {v} their {a} {n}, and rightly so.|Whether {a} or {a}, a {n} is part of it.|"
    "It began as a {a} {n} and grew into something more {a}.|One {n} leads to another, and soon the {n} is {a}.|"
    "They say that a {n} without a {n} is like a {a} {n}.|Prices are {a}, {p} are {a}, and the {n} is {a} {t}.|"
    "For {a} {p} this is a {n} of its own.|The {n} offers {a} {p}, {a} {p} and a {a} {n}."
).split("|")


def syllable(r: random.Random) -> str:
    """One invented syllable."""
    return r.choice(ONSETS) + r.choice(VOWELS) + r.choice(CODAS)


def invented(r: random.Random) -> str:
    """One invented name."""
    return "".join(syllable(r) for _ in range(r.choice([1, 2, 2, 2, 3]))).capitalize()


def person(r: random.Random) -> str:
    """A full name, with an invented surname."""
    return f"{r.choice(FIRST) if r.random() < 0.6 else invented(r)} {invented(r)}"


def filler(r: random.Random) -> str:
    """One sentence of prose without a fact."""
    text = r.choice(FRAMES)
    for slot, table in (("{a}", ADJECTIVES), ("{n}", NOUNS), ("{p}", PLURALS), ("{v}", VERBS), ("{t}", TIMES)):
        while slot in text:
            word = r.choice(table) if r.random() < 0.9 else invented(r).lower()
            text = text.replace(slot, word, 1)
    text = text.replace("{A}", r.choice(ADJECTIVES).capitalize())
    time = r.choice(TIMES)
    return text.replace("{T}", time[:1].upper() + time[1:])
