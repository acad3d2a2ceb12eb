"""Python source files as modules, and a main that uses the classes that were asked for."""

from __future__ import annotations

import random

from training.worlds.example import Example, Turn, joined
from training.worlds.tables import tables
from training.worlds.words import ADJECTIVES, NOUNS, TIMES, VERBS, filler, invented

TABLES = tables("code")
THINGS = TABLES["things"]
ACTIONS = TABLES["actions"]
FIELDS = TABLES["fields"]
SYSTEM = TABLES["system"]
LEADS = TABLES["leads"]
ACKNOWLEDGEMENTS = TABLES["acknowledgements"]
QUESTIONS = TABLES["questions"]
CALLS = TABLES["calls"]
LISTS = TABLES["lists"]
DOCS = TABLES["docs"]


def default(r: random.Random) -> str:
    """A default value of a field."""
    return r.choice([str(r.randint(0, 99)), "0", "1", f'"{invented(r).lower()}"', "None"])


def body(r: random.Random, fields: list[str], size: int) -> list[str]:
    """The statements of a method."""
    f, g, word = r.choice(fields), r.choice(fields), r.choice(NOUNS)
    choices = [
        [f"return self.{f}"],
        [f"self.{f} = {default(r)}"],
        [f"print(self.{f})"],
        [f"if self.{f}:", f"    return self.{g}", "return None"],
        [f"for item in self.{f}:", "    print(item)"],
        [f"self.{f} += {r.randint(1, 9)}", f"return self.{f}"],
    ]
    if size > 1:
        choices += [
            [f"found = [item for item in self.{f} if item.{g}]", "return found"],
            [
                f"if self.{f} is None or self.{g} < {r.randint(0, 99)}:",
                f"    self.{g} = {default(r)}",
                f"return len(self.{f})",
            ],
            [f"{word} = min(self.{f}, {r.randint(1, 9)})", f"self.{g} -= {word}", f"return {word}"],
            [
                f"for {word} in range(self.{f}):",
                f"    self.{g} += {word}",
                f"    if {word} > {r.randint(1, 9)}:",
                "        return True",
                "return False",
            ],
            [f'return f"{{self.{f}}} {r.choice(VERBS)} {{self.{g}}}"'],
            [f"self.{f}.append({word})", f"return len(self.{f})"],
            [f"with open(self.{f}) as file:", f"    self.{g} = json.load(file)"],
            [f"return max((item.{f} for item in self.{g}), default=0)"],
            [f'self.{f}[{word}] = {{"{g}": {r.choice(NOUNS)}}}', f"self.{g} = set()"],
        ]
    return list(r.choice(choices))


def method_lines(r: random.Random, name: str, fields: list[str], size: int) -> list[str]:
    """A method with its statements, and a docstring at times."""
    more = "".join(
        f", {n}{r.choice(['', '=0', '=None', '=1'])}"
        for n in r.sample(NOUNS, r.choice([0, 0, 1, 2]) if size else 0)
    )
    lines = [f"    def {name}(self{more}):"]
    if size and r.random() < 0.4:
        lines.append(
            f'        """{r.choice(VERBS).capitalize()} the {r.choice(ADJECTIVES)} '
            f'{r.choice(NOUNS)} {r.choice(TIMES)}."""'
        )
    return lines + [f"        {line}" for line in body(r, fields, size)]


def source(r: random.Random, stem: str, name: str, methods: list[str], size: int) -> str:
    """The text of one source file."""
    fields = r.sample(FIELDS, r.randint(1, 3))
    lines = [f"# {stem}.py: the class {name} with {joined(methods)}" if r.random() < 0.8 else f"# {stem}.py"]
    if r.random() < 0.9:
        lines.append(f"# Example: {stem} = {name}(), then {stem}.{methods[0]}()")
    if size and r.random() < 0.3:
        lines.append(f"import {r.choice(['math', 'random', 'json', 'time'])}")
    lines += ["", f"class {name}:"] if r.random() < 0.6 else [f"class {name}:"]
    loose = r.random() < 0.6
    if r.random() < 0.6:
        doc = r.choice(DOCS).format(f=fields[0], g=fields[-1], n=stem) if r.random() < 0.5 else filler(r)
        lines += [f'    """{doc}"""', ""] if loose else [f'    """{doc}"""']
    lines.append(f"    def __init__(self, {', '.join(f'{f}={default(r)}' for f in fields)}):")
    lines += [f"        self.{f} = {f}" for f in fields]
    if size and r.random() < 0.5:
        lines.append(f"        self.{r.choice(NOUNS)} = {r.choice(['0', '[]', 'set()', 'None', '{}'])}")
    for method in methods:
        if loose:
            lines.append("")
        lines += method_lines(r, method, fields, size)
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
    example.anonymous(r.choice(LEADS))
    stems: dict[str, None] = {}
    while len(stems) < count:
        stems[r.choice(THINGS) if r.random() < 0.6 else invented(r).lower()] = None
    classes: list[tuple[str, str, list[str]]] = []
    for stem in stems:
        name = stem.capitalize()
        methods = r.sample(ACTIONS, (1, r.randint(1, 2), r.randint(2, 3), r.randint(3, 8))[size])
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
            example.turns.append(
                Turn(r.choice(QUESTIONS).format(c=joined([n for _, n, _ in picked])), main_of(picked), "main")
            )
        elif kind < 0.85:
            stem, name, _ = r.choice(classes)
            example.turns.append(
                Turn(r.choice(CALLS).format(k=name), f"The class {name} is in {stem}.py.", "file")
            )
        else:
            _, name, methods = r.choice(classes)
            example.turns.append(
                Turn(r.choice(LISTS).format(k=name), f"{name} has the methods {joined(methods)}.", "methods")
            )
    return example
