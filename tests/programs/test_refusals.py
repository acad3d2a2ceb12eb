"""What is refused says the true reason, the line, and a remedy that works when it is followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.programs import ProgramError, compile_source
from engine.programs.source.constants import Budget
from tests.drawing import EVERY
from tests.programs.checks import both, file_of, written
from tests.programs.sources import run
from tests.tables import rows

WRAPPED = "import functools\n@functools.cache\ndef shout(text): return text.upper()"
ODD = "class City(Enum):\n    ROME = 'rome'\n    def __str__(self): return 'Roma'"


@pytest.mark.parametrize(
    ("above", "statements", "says", "remedy"), rows(Path(__file__).with_name("refusals.tsv"))
)
def test_a_remedy_works(above: str, statements: str, says: str, remedy: str) -> None:
    source = file_of(statements, above)
    if says:
        with pytest.raises(ProgramError, match=says) as caught:
            compile_source(source, "trip.py").schema()
        assert caught.value.line > 4
        assert "\n" not in str(caught.value)
    if remedy:
        for flag in (False, True):
            written(both(file_of(remedy, above)), flag=flag, a="z")


@pytest.mark.parametrize(
    ("above", "parameters", "statements", "says"),
    [
        (ODD, "c: City", "pass", r"City is an Enum \(line 5\) that defines __str__, .* remove __str__"),
        (
            "from cities import City",
            "c: City",
            "pass",
            "City comes from cities in line 5, .* write its value here",
        ),
        ("from cities import NAME", "a: Arg[2] = None", "p.text(NAME)", "NAME comes from cities in line 5"),
        (
            "import os\nNAME = os.environ['X']",
            "a: Arg[2] = None",
            "p.text(NAME)",
            "NAME is set in line 6, .*os comes from os in line 5",
        ),
        (
            "if True:\n    NAME = 'x'",
            "a: Arg[2] = None",
            "p.text(NAME)",
            "NAME is set by the statement in line 5",
        ),
        (
            "NAMES = ['x']\nNAMES.append('y')",
            "a: Arg[2] = None",
            "p.text(*NAMES)",
            "NAMES is changed in line 6, .* write the whole value",
        ),
        ("D = {'x': 'y'}\nD['z'] = 'w'", "a: Arg[2] = None", "p.text(D['x'])", "D is changed in line 6"),
        (WRAPPED, "a: Arg[2] = None", "p.text(shout('x'))", r"shout has the decorator @functools\.cache"),
        (
            "class C:\n    def __init__(self): self.x = 'a'\nONE = C()",
            "a: Arg[2] = None",
            "p.text(ONE.x)",
            "ONE is set in line 7.*make C a dataclass",
        ),
        ("", "a: list", "pass", "the annotation of a must be bool"),
        ("", "a: float", "pass", r"a is a number, but a prompt takes text; write a: Arg\[5\]"),
        (
            "@dataclass\nclass Trip:\n    city: str",
            "t: Trip",
            "pass",
            "instead of a Trip, make each field a parameter",
        ),
        ("", "a: Undefined", "pass", "names Undefined, which is not defined; import it"),
    ],
)
def test_what_a_file_that_is_read_does_not_tell(
    above: str, parameters: str, statements: str, says: str
) -> None:
    with pytest.raises(ProgramError, match=says):
        compile_source(file_of(statements, above, parameters), "trip.py").schema()


@pytest.mark.parametrize(
    "statements",
    [
        "p.text('x' * 10 ** 9)",
        "p.text(len([0] * 10 ** 12))",
        "p.text(2 ** 10 ** 9)",
        "p.text(1 << 10 ** 9)",
        "x = 10 ** 3000\nfor i in range(1000): x = x * x",
        "x = 'ab'\nfor i in range(99): x = x + x\np.text(x)",
        pytest.param("x = ['ab']\nfor i in range(99): x = [x, x]\np.text(f'{x}')", marks=pytest.mark.long),
        "x = ['ab']\nfor i in range(99): x = x + x\np.text(len(x))",
        "for i in range(10 ** 9): pass",
        "for i in range(10 ** 12): p.text(i)",
        "for i in range(1000):\n    for j in range(1000):\n        for k in range(1000): pass",
        "p.text(sum(i for i in range(99999) for j in range(99999)))",
        "p.text(''.join(str(i) for i in range(10 ** 8)))",
        "def f(t): return f(t)\np.text(f('x'))",
        "def f(n): return f(n - 1) + f(n - 1) if n else 'x'\np.text(f(39))",
        "p.text('%1000000000d' % 1)",
        "p.text('%*d' % (10 ** 9, 1))",
        "p.text(('%(' * 1_000_000) % {'a': 1})",
        "p.text('%(a(b))9999999999d' % {'a(b)': 1})",
        "p.text('%(a)s' * 9999 % {'a': 'x' * 1_000_000})",
        "x = list(range(99_999))\nfor i in x:\n    for j in x: break",
        "x = list(range(99_999))\nfor i in x:\n    if -1 in x: pass",
        "x = list(range(99_999))\nfor i in x: y = max(x)",
        pytest.param("x = ['y'] * 99_999\nfor i in x: y = f'{x}'", marks=pytest.mark.long),
        pytest.param("x = 'y' * 4_000_000\nfor i in range(99_999): y = x.count('z')", marks=pytest.mark.long),
        "p.text('{:1000000000}'.format(1))",
        "p.text(f'{1:{10 ** 9}}')",
        "p.text('x'.center(10 ** 9), 'x'.zfill(10 ** 9))",
        "x = 'x' * 4_000_000\np.text(x.replace('x', 'yy' * 1000))",
        "x = '\\t' * 1_000_000\np.text(x.expandtabs(10 ** 6))",
        "p.text(('x' * 1000).join(['y'] * 90_000))",
        "p.text(('{0}' * 100_000).format('x' * 1000))",
        "p.text(round(1, -10 ** 9))",
        "p.text(sum([['x'] * 1000 for i in range(9999)], []))",
        "x = [('y' * 4_000_000) + str(i) for i in range(99_999)]",
        "\n".join(f"if a == '{i}':\n    if flag: return" for i in range(40)),
    ],
)
def test_what_would_not_end_is_refused(statements: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not EVERY:
        monkeypatch.setattr(Budget, "steps", 20_000)
    with pytest.raises(ProgramError):
        compile_source(file_of(statements), "trip.py").schema()
    above = "X = 'x' * 10 ** 9\nY = [0] * 10 ** 12\nZ = [one for one in range(10 ** 9)]"
    assert compile_source(file_of("pass", above)).schema().name == "program"


def test_nothing_of_a_class_is_run() -> None:
    above = """
        RAN = []
        class Loud(str):
            def upper(self): RAN.append("upper"); return "no"
            def __format__(self, form): RAN.append("format"); return "no"
            def __eq__(self, other): RAN.append("eq"); return True
            def __bool__(self): RAN.append("bool"); return True
            def __iter__(self): RAN.append("iter"); return iter(())
            def __len__(self): RAN.append("len"); return 1
            def __repr__(self): RAN.append("repr"); return "no"
            def __getitem__(self, key): RAN.append("item"); return "no"
            __hash__ = None
        class Held:
            loud = Loud("x")
            def __getattr__(self, name): RAN.append(name); return "no"
        LOUD, HELD = Loud("x"), Held()
    """
    for statement in (
        "p.text(LOUD)",
        "p.text(f'{LOUD}')",
        "p.text(LOUD.upper())",
        "if LOUD: p.text('x')",
        "p.text(LOUD + 'x')",
        "if LOUD == 'x': p.text('x')",
        "for x in LOUD: p.text('x')",
        "p.text(len(LOUD))",
        "p.text(LOUD[0])",
        "p.text(HELD.other)",
        "p.text(HELD.loud)",
        "if a == LOUD: p.text('x')",
        "p.text(*[LOUD])",
        "p.text(not LOUD)",
        "p.text('x'.join([LOUD]))",
        "if a in [LOUD]: p.text('x')",
        "with p.module(LOUD): p.text('x')",
        "x = LOUD\nx += 'y'",
        "p.text({'k': 1}[LOUD])",
        "p.text(str(LOUD), repr(LOUD))",
        "p.text('x', end=LOUD)",
        "match LOUD:\n    case 'x': pass",
    ):
        names = run(file_of(statement, above))
        with pytest.raises(ProgramError):
            names["program"].schema()
        assert names["RAN"] == [], statement


def test_a_program_that_is_hidden_is_told_from_none() -> None:
    inner = (
        file_of("pass")
        .replace("@schema\ndef program(p", "def make():\n  @schema\n  def program(p")
        .replace("    pass", "      pass")
    )
    with pytest.raises(
        ProgramError, match=r"program \(line 8\) is not a readable program: .* top level of the file"
    ):
        compile_source(inner).schema()
    ours = "from engine.programs import Arg, schema"
    other = file_of("pass").replace(ours, "from other import Arg, schema")
    with pytest.raises(ProgramError, match=r"@schema must be imported from engine\.programs"):
        compile_source(other).schema()
    with pytest.raises(ProgramError, match="there is no program trip; the file has program"):
        compile_source(file_of("pass"), name="trip")
