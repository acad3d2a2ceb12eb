"""What a program becomes, and what it must not hold."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Literal

import pytest

from engine.pml import Param, Text, bind
from engine.pml.tree.conversation import Message, conversation
from engine.programs import Arg, ProgramArgumentError, ProgramError, compile_source, schema, to_program
from tests.pml.documents import schema_tree
from tests.programs.sources import load

CITY = "Lyon"
HEAD = "from typing import Literal\nfrom engine.programs import Arg, schema\n"


@schema("budget")
def budget(p, amount: Arg[4] = "little"):
    """For people who read the code; no part of the text."""
    p.text(f"I can spend {amount}.")


@schema("travel")
def travel(
    p,
    duration: Arg[5],
    overseas: bool = False,
    city: Literal["tokyo", "rome"] | None = None,
    question: str = "",
):
    """You are a travel planner."""
    p.text(f"I leave {CITY} for ", duration, ".")
    if overseas:
        p.text("Foreign soil it is.")
        budget(p, "100 euros")
    match city:
        case "tokyo":
            p.text("Tokyo never sleeps.")
        case "rome":
            with p.module("roma", cache=False):
                p.text("Rome was not built in a day.")
    p.text(question, end="")


def test_the_schema_of_a_program() -> None:
    assert travel.schema().name == "travel"
    assert [module.path for module in travel.schema().modules()] == [
        *("duration", "overseas", "overseas/budget", "tokyo", "roma")
    ]
    assert travel.schema().union_of("tokyo") is travel.schema().union_of("roma")
    roma = travel.schema().module("roma")
    assert roma is not None
    assert not roma.cache
    source = travel.source()
    assert "<system>You are a travel planner.</system>" in source
    assert 'I leave Lyon for <param name="duration" len="5"/>.' in source
    assert "For people who read the code" not in source


def test_a_prompt_of_a_program() -> None:
    prompt = travel("3 days", overseas=True, city="rome", question="Where to?")
    bound = bind(travel.schema(), prompt)
    assert bound.imports == ("duration", "overseas", "overseas/budget", "roma")
    text = (
        "I leave Lyon for 3 days.\nForeign soil it is.\nI can spend 100 euros.\n"
        "Rome was not built in a day.\nWhere to?"
    )
    expected = (Message("system", "You are a travel planner."), Message("user", text))
    assert conversation(bound.parts) == expected
    assert travel.messages("3 days", overseas=True, city="rome", question="Where to?") == expected
    assert travel.text("3 days") == "You are a travel planner.I leave Lyon for 3 days.\n"


FIRST = 4
"""The line of the function in what `body` gives."""


def body(statements: str, parameters: str = "a: Arg[5] = None, flag: bool = False") -> str:
    lines = textwrap.indent(textwrap.dedent(statements).strip("\n"), "    ")
    return f"{HEAD}@schema\ndef program(p, {parameters}):\n{lines}\n"


def paths(statements: str, parameters: str = "a: Arg[5] = None, flag: bool = False") -> list[str]:
    program = compile_source(body(statements, parameters))
    assert program.schema() == load(body(statements, parameters)).schema()
    return [module.path for module in program.schema().modules()]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("if flag: p.text('x')", ["flag"]),
        ("if not flag: p.text('x')", ["not-flag"]),
        ("if 'b' < a: p.text('x')\nif a < 'b': p.text('y')", ["a-above-b", "a-below-b"]),
        ("if flag: p.text('x')\nelse: p.text('y')", ["flag", "not-flag"]),
        ("if a == 'x y!': p.text('x')", ["x-y"]),
        ("if a in ('x', 'y'): p.text('x')", ["x-or-y"]),
        ("if a not in ('x', 'y'): p.text('x')", ["not-x-or-y"]),
        ("if flag and a: p.text('x')", ["flag-and-a"]),
        ("if flag: p.text('x')\nelif a: p.text('y')\nelse: p.text('z')", ["flag", "a", "otherwise"]),
        ("if flag: p.text('x')\nif flag: p.text('y')", ["flag", "flag-2"]),
        ("if flag:\n    if flag: p.text('y')", ["flag", "flag/flag"]),
        ("if flag:\n    with p.module('unit.py'): p.text('y')", ["unit.py"]),
        ("with p.module('unit.py'): p.text('y')", ["unit.py"]),
        ("match a:\n    case 'user': p.text('y')\n    case _: p.text('z')", ["user-part", "otherwise"]),
        ("if True: p.text('x')\nif False: p.text('y')", []),
        ("def part(q): q.text('x')\npart(p)\npart(p)", ["part", "part-2"]),
        ("p.text('for ', a)", ["a"]),
        ("intro = 'Hi ' + a\np.text(intro)", ["a"]),
        ("if a == '🗼': p.text('x')", ["🗼"]),
        ("if a == '?!': p.text('x')", ["part"]),
    ],
)
def test_names_are_legible_valid_and_unique(statements: str, expected: list[str]) -> None:
    assert paths(statements) == expected


def test_a_called_program_keeps_its_own_names_and_lengths() -> None:
    statements = "budget(p, a)\nbudget(p, 'five')\nbudget(p)"
    source = f"{HEAD}@schema\ndef budget(q, amount: Arg(3, name='sum') = 'one'): q.text(amount)\n"
    program = compile_source(source + body(statements, "a: Arg[9] = 'two'"))
    children = [module.children for module in program.schema().modules()]
    assert [type(below[0]).__name__ for below in children] == ["Param", "Text", "Text"]
    slot = children[0][0]
    assert isinstance(slot, Param)
    assert (slot.name, slot.length, slot.default) == ("sum", 3, "two")
    assert [below[0].text for below in children[1:] if isinstance(below[0], Text)] == ["five\n", "one\n"]


@pytest.mark.parametrize(
    ("statements", "line", "says"),
    [
        ("while flag: p.text('x')", 1, "while cannot be compiled"),
        ("p.text(open('/etc/passwd').read())", 1, "compiling runs nothing"),
        ("print('x')", 1, "print writes to the terminal"),
        ("p.txt('x')", 1, "not a statement of a program"),
        ("p.text(unknown)", 1, "not a parameter or a name"),
        ("p.text(flag)", 1, "is a choice"),
        ("p.text(f'{a:>5}')", 1, "cannot be formatted"),
        ("p.text(a == 'x')", 1, "a condition is not text"),
        ("p.text('x' if flag else 'y')", 1, "write if and else"),
        ("if flag:\n    x = 'y'\n    p.text(x)\np.text(x)", 4, "x depends on the condition of line 5"),
        ("p.text('x', sep='')", 1, "no option sep"),
        ("p.text('\\x00')", 1, "documents cannot contain"),
        (
            "if flag:\n    with p.module('m'):\n        if flag:\n            with p.user(): p.text('x')",
            4,
            "a nested module",
        ),
        ("if flag:\n    with p.user(): p.text('x')\n    p.text('y')", 1, "whole turns and other content"),
        ("with p.module('user'): p.text('x')", 1, "a PML element"),
        ("with p.module('1'): p.text('x')", 1, "cannot name a module"),
        ("with p.module('m'): p.text('x')\nwith p.module('m'): p.text('x')", 2, "already names the module"),
        ("with p.module('m', src='../x'): p.include()", 1, r"contains '\.\.'"),
        ("with p.union(): p.text('x')", 1, "a union must contain"),
        ("def f(q): f(q)\nf(p)", 1, "calls itself endlessly"),
        ("def f(q, x: Arg[2]): q.text(x)\nf(p)", 2, "f needs x"),
        ("def f(q, x: Arg[2]): q.text(x)\nf(p, y='x')", 2, "no parameter y"),
        ("def f(q, x: bool): q.text('x')\nf(p, 'yes')", 2, "x cannot be 'yes'"),
        ("def f(q): q.text('x')\nf()", 2, "write f\\(p, …\\)"),
        ("match a:\n    case ['x']: p.text('x')", 2, "a case must be a value"),
        ("p.text('x' * 10_000_000)", 1, "multiplied|longer"),
        ("p.text(f'{1:>1000000000}')", 1, "wider than"),
        ("x = 'y' * 3_000_000\np.text(x + x)", 2, "longer than 5 MB"),
        (
            "\n".join(" " * i + "if flag:" for i in range(90)) + "\n" + " " * 90 + "p.text(1 < 'x')",
            91,
            "not supported",
        ),
        ("return 'x'", 1, "returns nothing; write p.text"),
        ("try:\n    p.text('x')\nfinally: pass", 1, "try cannot be compiled"),
        ("if (x := flag): p.text('x')", 1, "set it on the line before"),
        ("global CITY", 1, "cannot change globals"),
        ("if a is 'x': p.text('x')", 1, "'is' compares with None"),
    ],
)
def test_what_cannot_be_compiled_is_an_error_at_its_line(statements: str, line: int, says: str) -> None:
    with pytest.raises(ProgramError, match=says) as caught:
        compile_source(body(statements), "trip.py").schema()
    assert caught.value.line == FIRST + line
    assert str(caught.value).startswith(f"trip.py, line {FIRST + line}: ")


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ("a", "no annotation"),
        ("*a: Arg[2]", "cannot become parameters"),
        ("a: Arg", "has no length"),
        ("a: Arg[0]", "whole number of tokens"),
        ("a: Arg['x']", "whole number of tokens"),
        ("a: int", "a is a number, but a prompt takes text"),
        ("a: Literal[1.5]", "cannot be 1.5"),
        ("a: bool = 'yes'", "the default of a is 'yes'"),
        ("a: Arg(2, name='1')", "cannot name a parameter"),
        ("a: Arg(2, size=3)", "no option size"),
        ("a: Unknown[2]", "not defined"),
        ("a: str, /", "'/' is not supported"),
    ],
)
def test_what_cannot_be_a_parameter(parameters: str, says: str) -> None:
    with pytest.raises(ProgramError, match=says) as caught:
        compile_source(body("p.text('x')", parameters)).schema()
    assert caught.value.line == FIRST


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        ("p.text(words)\nif flag: p.text('x')", "only text can follow"),
        ("if flag: p.text(words)", "modules cannot contain"),
        ("with p.user(): p.text('x')\np.text(words)", "outside a turn"),
        ("with p.system(): p.text('x', words)", "in the user's turn"),
        (
            "with p.user(): p.text('x', words)\nwith p.assistant(): p.text('y')",
            "turns of the schema cannot follow",
        ),
    ],
)
def test_new_words_end_a_prompt(statements: str, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        compile_source(body(statements, "words: str, flag: bool = False")).schema()


def test_new_words_can_be_turns_of_their_own() -> None:
    statements = """
        with p.system(): p.text("s", end="")
        with p.user(): p.text(words, end=" ")
        with p.assistant(): p.text("Well, ", end="")
    """
    program = load(body(statements, "words: str"))
    assert "<user>" not in program.source()
    expected = (Message("system", "s"), Message("user", "w "), Message("assistant", "Well, "))
    assert program.messages("w") == expected
    assert conversation(bind(program.schema(), program("w")).parts) == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"durations": "x"}, "did you mean 'duration'"),
        ({}, "travel needs the argument 'duration'"),
        ({"duration": 3}, "it takes text of at most 5 tokens"),
        ({"duration": "x", "overseas": "yes"}, "True or False"),
        ({"duration": "x", "city": "paris"}, "one of 'tokyo', 'rome', None"),
        ({"duration": "\x00"}, "documents cannot contain"),
    ],
)
def test_arguments_are_checked(given: dict[str, object], says: str) -> None:
    with pytest.raises(ProgramArgumentError, match=says):
        travel(**given)


def test_an_argument_is_given_once() -> None:
    with pytest.raises(ProgramArgumentError, match="duration twice"):
        travel("x", duration="y")
    with pytest.raises(TypeError, match="takes 4 arguments"):
        travel("x", True, None, "q", "more")


def test_a_file_is_compiled_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = f"open({str(mark)!r}, 'w')\n{body('p.text(a)')}raise SystemExit\n"
    program = compile_source(source, "trip.py")
    assert program.schema().module("a") is not None
    assert not mark.exists()
    with pytest.raises(ProgramError, match="import it to run it"):
        program.messages()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def f(p): pass", "there is no program;"),
        ("def f(:", "not valid Python"),
        ("x = '\x00'", "not valid Python"),
        (f"{HEAD}@schema(1)\ndef f(p): pass", "cannot name a schema"),
        (f"{HEAD}@schema('s', scaffolds=['m'])\ndef f(p): pass", "not the path of a module"),
        (f"{HEAD}@schema('s', colour=1)\ndef f(p): pass", "not colour"),
        ("(" * 5000, "not valid Python"),
        (f"{HEAD}@schema\ndef f(p): p.text({'-' * 100_000}1)", "nested too deep|not valid Python"),
        (f"{HEAD}@schema\ndef f(p): p.text({' + '.join(['x'] * 3000)})", "x is not a parameter|too deep"),
        (f"{HEAD}@schema\ndef f(p): p.text({' + '.join(['x'] * 300)})", "x is not a parameter|too deep"),
    ],
)
def test_files_without_a_program(source: str, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        compile_source(source).schema()


def test_a_program_among_several_is_named() -> None:
    source = f"{HEAD}import engine.programs as e\n@e.schema\ndef one(p): pass\n@schema()\ndef two(p): pass\n"
    assert compile_source(source).schema().name == "two"
    assert compile_source(source, name="one").schema().name == "one"
    with pytest.raises(ProgramError, match="no program three"):
        compile_source(source, name="three")


def test_text_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "unit.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "trip.py").write_text(body("with p.module('unit.py', src='unit.py'): p.include()"), "utf-8")
    source = (tmp_path / "trip.py").read_text(encoding="utf-8")
    program = compile_source(source, base=tmp_path)
    module = program.schema().module("unit.py")
    assert module is not None
    assert module.src == "unit.py"
    assert compile_source(to_program(program.schema(), tmp_path), base=tmp_path).schema() == program.schema()
    command = "import trip; print(repr(trip.program.text()))"
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{root}"},
    )  # fmt: skip
    assert done.stdout == "'x = 1\\n'\n"


def test_a_schema_deeper_than_python_is_refused() -> None:

    depth = 120
    source = "<schema name='s'>" + "".join(f"<module name='m{i}'>" for i in range(depth)) + "x"
    tree = schema_tree(source + "</module>" * depth + "</schema>")
    with pytest.raises(ProgramError, match="flatten it"):
        to_program(tree)


def test_the_source_must_be_at_hand() -> None:
    names: dict[str, object] = {}
    exec(compile(body("p.text('x')"), "<nowhere>", "exec", dont_inherit=True), names)
    with pytest.raises(ProgramError, match="cannot be found"):
        names["program"].schema()  # type: ignore[attr-defined]


def test_programs_do_not_load_torch() -> None:
    code = "import sys, engine.programs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


def test_an_export_says_which_names_it_spells_in_another_way() -> None:
    names = ("self", "cls", "p", "class", "print", "unit.py", "unit_py", "trip-plan", "plain", "None", "_")
    source = "<schema name='s'>" + "".join(f"<module name='{name}'>x</module>" for name in names)
    tree = schema_tree(source + "</schema>")
    program = to_program(tree)
    assert to_program(tree) == program
    listed = dict(re.findall(r"^    (\w+): (\S+)$", program, re.M))
    assert listed == {
        "self_2": "self",
        "cls_2": "cls",
        "p_2": "p",
        "class_": "class",
        "print_2": "print",
        "unit_py": "unit.py",
        "unit_py_2": "unit_py",
        "trip_plan": "trip-plan",
        "None_": "None",
        "__": "_",
    }
    assert compile_source(program).schema() == tree
    assert set(load(program, "s").schema().index.by_path) == set(names)
    plain = schema_tree("<schema name='s'><module name='plain'>x</module></schema>")
    assert "spelled" not in to_program(plain)
