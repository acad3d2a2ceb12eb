"""What prompt authors write: loops, early returns, names set anew, Enums, dataclasses, and functions."""

from __future__ import annotations

import itertools

import pytest

from tests.programs.checks import both, file_of, paths_of, written

ALL = [dict(zip(("flag", "other"), pair, strict=True)) for pair in itertools.product((False, True), repeat=2)]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("for city in ('Rome', 'Oslo'): p.text(city)", "Rome\nOslo\n"),
        (
            "for i, (name, days) in enumerate([('a', 1), ('b', 2)], start=1): p.text(i, name, days)",
            "1a1\n2b2\n",
        ),
        ("for i in range(3):\n    if i == 1: continue\n    p.text(i)", "0\n2\n"),
        ("for i in range(9):\n    if i == 2: break\n    p.text(i)\nelse: p.text('all')", "0\n1\n"),
        ("for i in range(2):\n    for j in range(2):\n        if j: break\n        p.text(i, j)", "00\n10\n"),
        ("for i in (): p.text(i)\nelse: p.text('none')", "none\n"),
        ("for i in range(2): pass\np.text(i)", "1\n"),
        ("text = 'a'\ntext += 'b'\ntext += a\np.text(text)", "ab\n"),
        ("n = 1\nn += 2\nn *= 5\np.text(n)", "15\n"),
        ("x = 'a'\nx = x + 'b'\np.text(x)", "ab\n"),
        ("x, y = 'a', 'b'\nx, y = y, x\np.text(x, y)", "ba\n"),
        ("x = y = 'a'\np.text(x, y)", "aa\n"),
        ("x: str = 'a'\np.text(x)", "a\n"),
        ("p.text('a')\nreturn\np.text('b')", "a\n"),
        ("p.text('a')\nreturn None", "a\n"),
        ("for i in range(5):\n    p.text(i)\n    if i == 1: return", "0\n1\n"),
        ("with p.module('m'):\n    p.text('a')\n    return\np.text('b')", "a\n"),
        ("p.text(*[f'- {x}' for x in ('a', 'b') if x != 'a'])", "- b\n"),
        ("p.text('\\n'.join(f'{k}={v}' for k, v in {'x': 1, 'y': 2}.items()))", "x=1\ny=2\n"),
        ("p.text(f'{[1, \"a\"]} {(1,)} { {1: 2} }')", "[1, 'a'] (1,) {1: 2}\n"),
        ('p.text(f\'{3.14159:.2f}|{"x":>3}|{"y"!r}\')', "3.14|  x|'y'\n"),
        ("p.text('abc'[1:], 'abc'[-1], 'a,b'.split(',')[1], (7 // 2) ** 2 % 5)", "bccb4\n"),
        (
            "p.text(max(len(x) for x in ('a', 'bb')), sum([1, 2]), sorted({'b', 'a'})[0], str(1.5))",
            "23a1.5\n",
        ),
        ("p.text('%s-%03d' % ('a', 7), '{}{x}'.format(1, x='y'), ' t '.strip().title())", "a-0071yT\n"),
        (
            "match 2:\n    case 1: p.text('one')\n    case 2: p.text('two')\n    case _: p.text('many')",
            "two\n",
        ),
        (
            "for k in ('a', 'b'):\n    match k:\n        case 'a': p.text('a1')\n        case _: p.text(k)",
            "a1\nb\n",
        ),
        (
            "def f(q):\n    for i in range(2): q.text(i)\n    return\n    q.text('x')\nf(p)\np.text('end')",
            "0\n1\nend\n",
        ),
        ("x = 'a'\ndef f(q): q.text(x)\nx = 'b'\nf(p)", "b\n"),
        ("x = 'a'\ndef f(q):\n    x = 'c'\n    q.text(x)\nf(p)\np.text(x)", "c\na\n"),
        ("def dash(t): return f'- {t}'\np.text(dash('x'), dash(t=a))", "- x- \n"),
    ],
)
def test_what_is_known_is_computed_while_compiling(statements: str, expected: str) -> None:
    assert written(both(file_of(statements))) == expected


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("if flag: return\np.text('x')", ["not-flag"]),
        ("if not flag: return\np.text('x')", ["flag"]),
        ("if flag:\n    p.text('x')\n    return\np.text('y')", ["flag", "not-flag"]),
        ("if flag: p.text('x')\nelse: return\np.text('y')", ["flag"]),
        ("if flag: return\nif other: return\np.text('x')", ["not-flag", "not-flag/not-other"]),
        (
            "if flag:\n    if other: return\n    p.text('x')\np.text('y')",
            ["flag", "flag/not-other", "not-flag"],
        ),
        ("if flag: return\nelif other: p.text('x')\np.text('y')", ["other", "otherwise"]),
        ("for i in range(3):\n    if flag: break\n    p.text(i)\np.text('end')", None),
        ("for i in range(3):\n    if flag and i: continue\n    p.text(i)\np.text('end')", None),
        ("for i in range(2):\n    if flag: return\n    p.text(i)\np.text('end')", None),
        (
            "for i in (1, 2):\n    if flag:\n        if other: break\n        p.text(3)\n"
            "    p.text(i)\nelse: p.text(9)",
            None,
        ),
        ("match a:\n    case 'x': return\n    case 'y': p.text('y')\np.text('end')", None),
        ("for i in range(2):\n    if flag: continue\n    if other: break\n    p.text(i)\np.text('e')", None),
        ("for i in range(2):\n    if flag: break\n    if other: return\n    p.text(i)\np.text('e')", None),
        ("for i in range(2):\n    if flag: continue\n    if other: return\n    p.text(i)\np.text('e')", None),
        (
            "for i in range(3):\n    for j in (4, 5):\n        if flag: break\n        p.text(i, j)\n"
            "    else:\n        if other: continue\n        break\n    p.text('n')\np.text('e')",
            None,
        ),
        (
            "for i in (1, 2):\n    for j in (4, 5): pass\n    else: break\n    p.text(7)\nelse: p.text(8)",
            None,
        ),
        ("x = 'a'\ndef f(q): q.text(x)\nif flag: return\nx = 'b'\nf(p)\np.text(x)", None),
        ("x = 'a'\nif flag:\n    x = 'b'\n    p.text(x)\nx = 'c'\np.text(x)", None),
        ("x = 'a'\ndef f(q): q.text(x)\nif flag:\n    x = 'b'\n    f(p)", None),
        ("def f(q):\n    if flag: return\n    q.text('in')\nf(p)\np.text('end')", None),
    ],
)
@pytest.mark.parametrize("given", ALL, ids=str)
def test_leaving_early_chooses_modules(
    statements: str, expected: list[str] | None, given: dict[str, bool]
) -> None:
    program = both(file_of(statements))
    for text in ("", "x", "y"):
        written(program, a=text, **given)
    if expected is not None:
        assert paths_of(program) == expected


SEASONS = """
    class Season(Enum):
        SPRING = "spring"
        AUTUMN = "autumn"
    class Grade(IntEnum):
        LOW = 1
        HIGH = 2
    class Tone(StrEnum):
        CALM = auto()
        LOUD = auto()
"""


@pytest.mark.parametrize(
    ("statements", "parameters", "names"),
    [
        (
            "match s:\n    case Season.SPRING: p.text('x')\n    case Season.AUTUMN: p.text('y')",
            "s: Season",
            ["spring", "autumn"],
        ),
        ("if s == Season.SPRING: p.text('x')", "s: Season", ["spring"]),
        ("if s is Season.SPRING: p.text('x')", "s: Season = Season.SPRING", ["spring"]),
        (
            "if s in (Season.SPRING, Season.AUTUMN): p.text('x')",
            "s: Season | None = None",
            ["spring-or-autumn"],
        ),
        (
            "match s.value:\n    case 'spring': p.text('x')\n    case _: p.text('y')",
            "s: Season",
            ["spring", "otherwise"],
        ),
        ("if s.name == 'AUTUMN': p.text('x')", "s: 'Season'", ["AUTUMN"]),
        (
            "for one in Season:\n    if s == one: p.text(one.value, one.name)",
            "s: Season",
            ["spring", "autumn"],
        ),
    ],
)
def test_an_enum_is_a_choice(statements: str, parameters: str, names: list[str]) -> None:
    program = both(file_of(statements, SEASONS, parameters))
    assert paths_of(program) == names
    for value in ("spring", "autumn"):
        written(program, s=value)


def test_members_of_enums_are_constants() -> None:
    statements = "p.text(Season.SPRING.value, Tone.LOUD, f'{Tone.CALM}', Grade.HIGH.value, len(Season))"
    assert written(both(file_of(statements, SEASONS))) == "springloudcalm22\n"


@pytest.mark.parametrize(
    "above",
    [
        "City = Literal['tokyo', 'rome']",
        "City = Literal['tokyo', 'rome'] | None",
        "City = Optional[Literal['tokyo', 'rome']]",
        "Names = Literal['tokyo', 'rome']\nCity = Names",
    ],
)
def test_an_alias_is_what_it_stands_for(above: str) -> None:
    program = both(
        file_of("if c == 'rome': p.text(t)", f"{above}\nText = Arg[3]", "t: Text, c: City = 'rome'")
    )
    assert written(program, t="x") == "x\n"


STOPS = """
    @dataclass(frozen=True)
    class Stop:
        name: str
        days: int = 2
        tags: tuple = field(default=("sea",))
        KIND = "stop"

        @property
        def title(self):
            return f"{self.name} ({self.days})"

        def line(self, mark="-"):
            return mark + " " + self.title

        @staticmethod
        def rule(n):
            return "=" * n

    class Pair(NamedTuple):
        left: str
        right: str = "r"

    STOPS = [Stop("Lyon"), Stop("Metz", days=3)]
    PAIR = Pair("l")
"""


def test_fields_of_dataclasses_are_constants() -> None:
    statements = """
        for stop in STOPS:
            p.text(stop.line(), stop.tags[0], Stop.KIND, Stop.rule(2))
        p.text(PAIR.left, PAIR[1], [x.name for x in STOPS if x.days > 2][0])
    """
    expected = "- Lyon (2)seastop==\n- Metz (3)seastop==\nlrMetz\n"
    assert written(both(file_of(statements, STOPS))) == expected


def test_names_of_a_file_are_known_as_python_knows_them() -> None:
    above = """
        import json
        A, B = "a", "b"
        C = D = A + B
        C += "!"
        TEXTS = {key: key.upper() for key in (A, B)}
        SHOWN = json.dumps({"k": [1, 2]}, indent=1)
        LONG = "-" * 3
        def twice(text, times=2): return text * times
        TWICE = twice(C)
    """
    program = both(file_of("p.text(A, B, C, D, TEXTS['a'], SHOWN, LONG, TWICE)", above))
    assert written(program) == 'abab!abA{\n "k": [\n  1,\n  2\n ]\n}---ab!ab!\n'


@pytest.mark.parametrize("head", ["async def", "def"])
def test_an_async_function_is_a_program(head: str) -> None:
    source = file_of(
        "p.text('for ', a)\npart(p, a)\nif flag: return", "@schema\ndef part(q, x: Arg[2]): q.text(x)"
    )
    program = both(source.replace("def program", f"{head} program").replace("def part", f"{head} part"))
    assert written(program, a="x") == "for x\nx\n"
