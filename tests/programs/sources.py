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
LOOPS = (
    ("i{0}", "range(2)", True),
    ("i{0}, stop", "enumerate(STOPS)", False),
    ("i{0}", "[len(place) for place in PLACES]", True),
)
CONSTANTS = """GREETING = "Hello "
LIMIT = 3
PLACES = ("rome", "tokyo")
DAYS = {"long": "a week"}
Mood = Literal["calm", "loud"]
SHORT = [place for place in PLACES if len(place) < 5]


class Season(Enum):
    SPRING = "spring"
    AUTUMN = "autumn"


@dataclass(frozen=True)
class Stop:
    name: str
    days: int = 2

    @property
    def title(self):
        return f"{self.name}:"


STOPS = (Stop("Lyon"), Stop("Metz", 3))


def bullet(text, mark="-"):
    return f"{mark} {text}"
"""
HEAD = (
    "from dataclasses import dataclass\nfrom enum import Enum\nfrom typing import Literal\n\n"
    f"from engine.programs import Arg, schema\n\n{CONSTANTS}\n"
)


@dataclass
class Source:
    """A program under way: its lines, and the parameters that can be used in it."""

    draw: Any
    lines: list[str] = field(default_factory=list)
    functions: int = 0
    returns: bool = False

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

    Its parameters are a, b (Arg), flag, other (bool), city, mood (Literal), season (an Enum), words (str).
    """
    source = Source(draw)
    docstring = draw(st.sampled_from(["", '"""Be kind.\n\n    And short.\n    """', '"A line."']))
    turns = draw(st.booleans())
    source.add(0, HEAD)
    source.add(0, '@schema("helper")\ndef helper(q, x: Arg[3] = None, on: bool = False):')
    statements(source, 1, "q", ("x",), ("on",), "", 1, returns=True)
    source.returns = False
    source.add(0, '\n@schema("drawn")')
    parameters = (
        'a: Arg[5], b: Arg(4, name="b.b", scaffold="s") = "dflt", flag: bool = False, other: bool = True, '
        'city: Literal["tokyo", "rome", "new york", 7] | None = None, '
        'season: Season | None = None, mood: Mood = "calm", words: str = ""'
    )
    source.add(0, f"{draw(st.sampled_from(['', 'async ']))}def program(p, {parameters}):")
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
        statements(source, 1, "p", ("a", "b"), ("flag", "other"), "city", 3, returns=True)
        if draw(st.booleans()) and not source.returns:
            source.add(1, draw(st.sampled_from(["p.text('Q: ', words)", "p.text(words, 'R', end=' ')"])))
    return "\n".join(source.lines) + "\n"


def statements(
    source: Source,
    depth: int,
    p: str,
    slots: tuple[str, ...],
    flags: tuple[str, ...],
    city: str,
    room: int,
    loops: tuple[str, ...] = (),
    returns: bool = False,
    leaves: bool = False,
) -> None:
    """Draws statements.

    `loops` are the variables of the loops round them, `returns` says whether they may return early, and
    `leaves` whether they may leave the innermost loop.
    """
    draw = source.draw
    kinds = ["text", "text", "text", "if", "else", "elif", "module", "pass", "loop", "add"]
    kinds += ["match", "enum"] * bool(city) + ["call", "local"] * (p == "p")
    kinds += ["return"] * returns + ["leave"] * leaves
    chosen = draw(st.lists(st.sampled_from(kinds), max_size=4))
    if not chosen or room == 0:
        source.add(depth, text(draw, p, slots))
        return
    inner = (p, slots, flags, city, room - 1, loops, returns, leaves)
    kept = (p, slots, flags, city, room - 1, loops)
    for kind in chosen:
        match kind:
            case "text":
                source.add(depth, text(draw, p, slots))
            case "pass":
                source.add(depth, "pass")
            case "module":
                number = next(_NUMBERS)
                name = f"m{number}" + "".join(f"-{{{loop}}}" for loop in loops)
                source.add(depth, f'with {p}.module(f"{name}", cache={draw(st.booleans())}):')
                statements(source, depth + 1, *kept)
            case "loop":
                number = next(_NUMBERS)
                target, over, last = draw(st.sampled_from(LOOPS))
                source.add(depth, f"for {target.format(number)} in {over}:")
                below = (*kept[:4], room - 1, (*loops, f"i{number}"), returns and last, True)
                statements(source, depth + 1, *below)
            case "add":
                name = f"t{next(_NUMBERS)}"
                source.add(depth, f'{name} = "so "')
                source.add(depth, f"{name} += {draw(st.sampled_from([*slots, 'GREETING']))}")
                source.add(depth, f"{p}.text({name})")
            case "return" | "leave":
                word = "return" if kind == "return" else draw(st.sampled_from(["break", "continue"]))
                source.returns = source.returns or kind == "return"
                source.add(depth, f"if {condition(draw, slots, flags, city)}:")
                if draw(st.booleans()):
                    source.add(depth + 1, text(draw, p, slots))
                source.add(depth + 1, word)
            case "enum":
                source.add(depth, "match season:")
                for case in ("Season.SPRING", "None" if draw(st.booleans()) else "Season.AUTUMN"):
                    source.add(depth + 1, f"case {case}:")
                    statements(source, depth + 2, *inner)
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
            'bullet("x")',
            f"bullet({slots[0]}, mark=GREETING)",
            '", ".join(stop.name for stop in STOPS if stop.days > 2)',
            "STOPS[0].title + Season.SPRING.value",
            "SHORT[0].upper() if LIMIT > 2 else 'none'",
            '"{}-{}".format(LIMIT, "b") + "%s" % LIMIT',
            "*sorted({'b', 'a'})",
        ]
    ) | TEXTS.filter(lambda value: "\r" not in value).map(repr)
    parts = draw(st.lists(pieces, max_size=4))
    end = draw(st.sampled_from(["", ', end=""', ', end=" "'])) if parts else ""
    return f"{p}.text({', '.join(parts)}{end})"


def condition(draw: Any, slots: tuple[str, ...], flags: tuple[str, ...], city: str) -> str:
    simple = [*flags, *(f"not {flag}" for flag in flags), f'{slots[0]} == "x"', f'{slots[0]} != "3 days"']
    simple += [slots[0], "True", "LIMIT > 2"]
    if city:
        simple += [
            "season == Season.SPRING",
            "season is not None and season.value == 'autumn'",
            "mood == 'loud'",
        ]
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
        "season": st.sampled_from(["spring", "autumn", None]),
        "mood": st.sampled_from(["calm", "loud"]),
        "words": TEXTS,
    }
    for name, values in choices.items():
        if draw(st.booleans()):
            given[name] = draw(values)
    return given
