"""Drawn programs: Python source, and arguments for it."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from engine.programs import Program
from tests.pml.trees import TEXTS

_NUMBERS = count()
CITIES = ("tokyo", "rome", "new york", 7)
CONSTANTS = 'GREETING = "Hello "\nLIMIT = 3\nPLACES = ("rome", "tokyo")\nDAYS = {"long": "a week"}\n'
HEAD = f"from typing import Literal\n\nfrom engine.programs import Arg, schema\n\n{CONSTANTS}\n"


@dataclass
class Source:
    """A program under way: its lines, and the parameters that can be used in it."""

    draw: Any
    lines: list[str] = field(default_factory=list)
    functions: int = 0

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)


def load(source: str, name: str = "program") -> Program:
    """The program of a drawn file."""
    return run(source)[name]


def run(source: str) -> dict[str, Any]:
    """Run a drawn file as an import would; the names in it."""
    filename = f"<drawn {next(_NUMBERS)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"__name__": "drawn"}
    exec(compile(source, filename, "exec", dont_inherit=True), names)
    return names


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The source of a file that ends with the function `program`.

    Its parameters are a, b (Arg), flag, other (bool), city (Literal), words (str).
    """
    source = Source(draw)
    docstring = draw(st.sampled_from(["", '"""Be kind.\n\n    And short.\n    """', '"A line."']))
    turns = draw(st.booleans())
    source.add(0, HEAD)
    source.add(0, '@schema("helper")\ndef helper(q, x: Arg[3] = None, on: bool = False):')
    statements(source, 1, "q", ("x",), ("on",), "", 1)
    source.add(0, '\n@schema("drawn")')
    parameters = (
        'a: Arg[5], b: Arg(4, name="b.b", scaffold="s") = "dflt", flag: bool = False, other: bool = True, '
        'city: Literal["tokyo", "rome", "new york", 7] | None = None, words: str = ""'
    )
    source.add(0, f"def program(p, {parameters}):")
    if docstring:
        source.add(1, docstring)
    if turns:
        for role in draw(
            st.lists(st.sampled_from(["system", "user", "assistant", ""]), min_size=1, max_size=3)
        ):
            if role:
                source.add(1, f"with p.{role}():")
            statements(source, 2 if role else 1, "p", ("a", "b"), ("flag", "other"), "city", 2)
        if draw(st.booleans()):
            source.add(1, "with p.user():")
            source.add(
                2, draw(st.sampled_from(["p.text('so', words)", "p.text(words, end=' ')", "p.text('x')"]))
            )
    else:
        statements(source, 1, "p", ("a", "b"), ("flag", "other"), "city", 3)
        if draw(st.booleans()):
            source.add(1, draw(st.sampled_from(["p.text('Q: ', words)", "p.text(words, 'R', end=' ')"])))
    return "\n".join(source.lines) + "\n"


def statements(
    source: Source, depth: int, p: str, slots: tuple[str, ...], flags: tuple[str, ...], city: str, room: int
) -> None:
    draw = source.draw
    kinds = ["text", "text", "text", "if", "else", "elif", "module", "pass"]
    kinds += ["match"] * bool(city) + ["call", "local"] * (p == "p")
    chosen = draw(st.lists(st.sampled_from(kinds), max_size=4))
    if not chosen or room == 0:
        source.add(depth, text(draw, p, slots))
        return
    inner = (p, slots, flags, city, room - 1)
    for kind in chosen:
        match kind:
            case "text":
                source.add(depth, text(draw, p, slots))
            case "pass":
                source.add(depth, "pass")
            case "module":
                number = next(_NUMBERS)
                source.add(depth, f'with {p}.module("m{number}", cache={draw(st.booleans())}):')
                statements(source, depth + 1, *inner)
            case "if" | "else" | "elif":
                source.add(depth, f"if {condition(draw, slots, flags, city)}:")
                statements(source, depth + 1, *inner)
                if kind == "elif":
                    source.add(depth, f"elif {condition(draw, slots, flags, city)}:")
                    statements(source, depth + 1, *inner)
                if kind == "else":
                    source.add(depth, "else:")
                    statements(source, depth + 1, *inner)
            case "match":
                source.add(depth, f"match {city}:")
                for case in ('"tokyo"', '"rome" | 7', "_" if draw(st.booleans()) else "None"):
                    source.add(depth + 1, f"case {case}:")
                    statements(source, depth + 2, *inner)
            case "call":
                argument = draw(st.sampled_from([*slots, '"const"', '""']))
                source.add(depth, f"helper({p}, {argument}, on={condition(draw, slots, flags, city)})")
            case "local":
                source.functions += 1
                name = f"local{source.functions}"
                source.add(depth, f'def {name}(r, y: Arg[2], z: str = "zz"):')
                source.add(depth + 1, text(draw, "r", ("y",)))
                source.add(depth + 1, f'r.text("in ", {slots[0]}, z)')
                source.add(depth, f'{name}({p}, "{name}" + {slots[-1]})')


def text(draw: Any, p: str, slots: tuple[str, ...]) -> str:
    pieces = st.sampled_from(
        [
            *slots,
            f'f"<{{{slots[0]}}}>"',
            f'"+" + {slots[-1]}',
            "GREETING",
            "DAYS['long']",
            "LIMIT",
            'f"{LIMIT:>3}"',
        ]
    ) | TEXTS.filter(lambda value: "\r" not in value).map(repr)
    parts = draw(st.lists(pieces, max_size=4))
    end = draw(st.sampled_from(["", ', end=""', ', end=" "'])) if parts else ""
    return f"{p}.text({', '.join(parts)}{end})"


def condition(draw: Any, slots: tuple[str, ...], flags: tuple[str, ...], city: str) -> str:
    simple = [*flags, *(f"not {flag}" for flag in flags), f'{slots[0]} == "x"', f'{slots[0]} != "3 days"']
    simple += [slots[0], "True", "LIMIT > 2"]
    if city:
        simple += [f'{city} == "tokyo"', f"{city} in PLACES", f"{city} is None", f'{city} not in ("rome", 7)']
    parts = draw(st.lists(st.sampled_from(simple), min_size=1, max_size=3))
    return f" {draw(st.sampled_from(['and', 'or']))} ".join(f"({part})" for part in parts)


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    given: dict[str, Any] = {"a": draw(st.sampled_from(["3 days", "x", "", "é & <b>"]) | TEXTS)}
    choices: dict[str, Any] = {
        "b": st.none() | TEXTS,
        "flag": st.booleans(),
        "other": st.booleans(),
        "city": st.sampled_from([*CITIES, None]),
        "words": TEXTS,
    }
    for name, values in choices.items():
        if draw(st.booleans()):
            given[name] = draw(values)
    return given
