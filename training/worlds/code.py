"""Python source files as modules, and a main that uses the classes that were asked for."""

from __future__ import annotations

import random

from training.worlds.example import Example, Turn, joined
from training.worlds.words import NOUNS, VERBS, invented

THINGS = (
    "unit map player game database board engine sensor robot queue ticket parser timer wallet camera shelf order customer planet rocket "
    "bridge tower garden recipe deck card dice clock mixer signal buffer router report invoice catalog library editor printer scanner"
).split()
ACTIONS = (
    "move draw attack heal load save open close start stop reset update render add remove find count list print send receive connect "
    "play pause shuffle sort build repair climb fly land scan parse run tick score join leave describe paint grow cook serve"
).split()
FIELDS = "name size level speed health width height colour weight price title owner score path items limit count power age label".split()
SYSTEM = (
    "You are a programmer. Use the source files.|You write short Python programs from the classes in the files.|You are an assistant for code. Answer "
    "with a main that uses the classes.|You complete a program. Read the files first."
).split("|")
LEADS = "These are the source files.|Here is the program so far.|The files of the project follow.|Read these files.".split("|")
ACKNOWLEDGEMENTS = "I have read the files.|I have read the code. What shall I write?|I know the classes now.".split("|")
QUESTIONS = (
    "Write a main that uses {c}.|Write a main with {c}.|Write a short program that uses {c}.|Create a main that uses {c}.|Give me a main for {c}."
).split("|")
CALLS = "Which file has the class {k}?|Where is the class {k}?|In which file is {k}?".split("|")
LISTS = "Which methods does {k} have?|What can {k} do?|List the methods of {k}.".split("|")
DOCS = "Keeps the {f} and the {g}.|A {n} with a {f}.|Part of the project.|Knows its {f}.|Holds everything about the {n}.".split("|")


def default(r: random.Random) -> str:
    """A default value of a field."""
    return r.choice([str(r.randint(0, 99)), "0", "1", f'"{invented(r).lower()}"', "None"])


def body(r: random.Random, fields: list[str], size: int) -> list[str]:
    """The statements of a method."""
    f = r.choice(fields)
    choices = [
        [f"return self.{f}"],
        [f"self.{f} = {f}_value" if r.random() < 0.2 else f"self.{f} = {default(r)}"],
        [f"print(self.{f})"],
        [f"if self.{f}:", f"    return self.{r.choice(fields)}", "return None"],
        [f"for item in self.{f}:", "    print(item)"],
        [f"self.{f} += {r.randint(1, 9)}", f"return self.{f}"],
    ]
    lines = list(r.choice(choices))
    if size > 1 and r.random() < 0.4:
        lines.insert(0, f'"""{r.choice(VERBS).capitalize()} the {r.choice(NOUNS)}."""')
    return lines


def source(r: random.Random, stem: str, name: str, methods: list[str], size: int) -> str:
    """The text of one source file."""
    fields = r.sample(FIELDS, r.randint(1, 3))
    lines = [f"# {stem}.py"]
    if size and r.random() < 0.3:
        lines.append(f"import {r.choice(['math', 'random', 'json', 'time'])}")
    lines += ["", f"class {name}:"] if r.random() < 0.5 else [f"class {name}:"]
    if r.random() < 0.5:
        doc = r.choice(DOCS).format(f=fields[0], g=fields[-1], n=stem)
        lines.append(f'    """{doc}"""')
    lines.append(f"    def __init__(self, {', '.join(f'{f}={default(r)}' for f in fields)}):")
    lines += [f"        self.{f} = {f}" for f in fields]
    for method in methods:
        if r.random() < 0.6:
            lines.append("")
        lines.append(f"    def {method}(self):")
        lines += [f"        {line}" for line in body(r, fields, size)]
    return "\n".join(lines)


def main_of(classes: list[tuple[str, str, list[str]]]) -> str:
    """The program that creates every class and calls its first method."""
    lines = [f"from {stem} import {name}" for stem, name, _ in classes]
    lines += ["", "def main():"]
    lines += [f"    {stem} = {name}()\n    {stem}.{methods[0]}()" for stem, name, methods in classes]
    return "\n".join([*lines, "", "main()"])


def code(r: random.Random, size: int, turns: int) -> Example:
    """Source files and `turns` questions; `size` 0..3 says how many and how long."""
    example = Example("code")
    count = (r.randint(1, 2), r.randint(1, 3), r.randint(2, 5), r.randint(3, 6))[size]
    if size or r.random() < 0.3:
        example.role("system")
        example.anonymous(r.choice(SYSTEM))
        example.close()
    example.role("user")
    example.anonymous(f"{r.choice(LEADS)} ")
    stems: dict[str, None] = {}
    while len(stems) < count:
        stems[r.choice(THINGS) if r.random() < 0.6 else invented(r).lower()] = None
    classes: list[tuple[str, str, list[str]]] = []
    for stem in stems:
        name = stem.capitalize()
        methods = r.sample(ACTIONS, (1, r.randint(1, 2), r.randint(2, 3), r.randint(2, 6))[size])
        if r.random() < 0.3:
            methods[0] = f"{methods[0]}_{r.choice(FIELDS)}"
        example.module(source(r, stem, name, methods, size), f"{stem}.py")
        classes.append((stem, name, methods))
    if r.random() < 0.3:
        example.open_user = True
    else:
        example.close()
        if r.random() < 0.7:
            example.role("assistant")
            example.anonymous(r.choice(ACKNOWLEDGEMENTS))
            example.close()
    for _ in range(turns):
        kind = r.random()
        if kind < 0.7:
            picked = r.sample(classes, min(len(classes), r.choice([1, 1, 2, 2, 3])))
            example.turns.append(Turn(r.choice(QUESTIONS).format(c=joined([n for _, n, _ in picked])), main_of(picked), "main"))
        elif kind < 0.85:
            stem, name, _ = r.choice(classes)
            example.turns.append(Turn(r.choice(CALLS).format(k=name), f"The class {name} is in {stem}.py.", "file"))
        else:
            _, name, methods = r.choice(classes)
            example.turns.append(Turn(r.choice(LISTS).format(k=name), f"{name} has the methods {joined(methods)}.", "methods"))
    return example
