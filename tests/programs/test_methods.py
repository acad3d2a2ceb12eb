"""Programs that are methods: what they read of their object are constants."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from engine.pml import bind
from engine.pml.tree.conversation import conversation
from engine.programs import ProgramError, compile_source
from tests.programs.checks import IMPORTS
from tests.programs.sources import run

SOURCE = IMPORTS + textwrap.dedent('''
    @dataclass
    class Guide:
        city: str = "Rome"
        places: tuple = ("Forum", "Tiber")
        MARK = "*"

        @property
        def title(self):
            return f"A guide of {self.city}"

        def bullet(self, text):
            return f"{self.MARK} {text}"

        @schema("opening")
        def opening(self, q, tone: Arg[3] = "calm"):
            q.text(self.title, ", ", tone)

        @schema("guide")
        def guide(self, p, days: Arg[4], long: bool = False):
            """You know {city}."""
            self.opening(p, days)
            if not long:
                return
            for place in self.places:
                p.text(self.bullet(place))

        @schema("still")
        @staticmethod
        def still(p, x: Arg[2] = "s"):
            p.text("still ", x)

        @staticmethod
        @schema("other")
        def other(p, x: Arg[2] = "o"):
            p.text("other ", x)

        @schema("whole")
        @classmethod
        def whole(cls, p, x: Arg[2] = "w"):
            p.text(cls.MARK, cls.city, x)

        @schema("waits")
        async def waits(self, p, x: Arg[2] = "a"):
            p.text(self.city, x)
    ''')


def check(program: Any, **given: Any) -> str:
    bound = bind(program.schema(), program(**given))
    assert bound.ok
    assert conversation(bound.parts) == program.messages(**given)
    return str(program.text(**given))


def test_a_method_is_the_program_of_its_object() -> None:
    guide = run(SOURCE)["Guide"]
    text = "You know {city}.A guide of Oslo, two\n* Fjord\n"
    assert check(guide("Oslo", ("Fjord",)).guide, days="two", long=True) == text
    assert check(guide().guide, days="two") == "You know {city}.A guide of Rome, two\n"
    assert guide("Oslo").guide.schema() != guide().guide.schema()
    assert check(guide("Oslo").waits) == "Osloa\n"


def test_static_and_class_methods_are_programs_too() -> None:
    guide = run(SOURCE)["Guide"]
    for owner in (guide, guide("Oslo")):
        assert check(owner.still) == "still s\n"
        assert check(owner.other) == "other o\n"
        assert check(owner.whole) == "*Romew\n"


@pytest.mark.parametrize("name", ["guide", "opening", "still", "other", "whole", "waits"])
def test_a_method_in_a_file_that_is_read_has_the_defaults_of_its_class(name: str) -> None:
    live = getattr(run(SOURCE)["Guide"], name)
    for called in (name, f"Guide.{name}"):
        assert compile_source(SOURCE, name=called).schema() == live.schema()


def test_a_method_is_run_of_an_object() -> None:
    guide = run(SOURCE)["Guide"]
    assert bind(guide.guide.schema(), guide.guide("two")).ok
    with pytest.raises(ProgramError, match=r"write Guide\(…\)\.guide"):
        guide.guide.messages("two")


def test_what_only_an_object_has_is_no_constant_of_the_class() -> None:
    source = SOURCE.replace('city: str = "Rome"', "city: str").replace(
        'places: tuple = ("Forum", "Tiber")', "places: tuple = ()"
    )
    with pytest.raises(ProgramError, match="Guide sets no value for city, only its objects do"):
        compile_source(source, name="waits").schema()
    guide = run(source)["Guide"]
    with pytest.raises(ProgramError, match="add a default to the class"):
        guide.waits.schema()
    assert check(guide("Oslo").waits) == "Osloa\n"


def test_the_decorator_stands_above_classmethod() -> None:
    source = IMPORTS + "class A:\n    @classmethod\n    @schema\n    def f(cls, p): p.text('x')\n"
    with pytest.raises(ProgramError, match="write @schema above @classmethod"):
        compile_source(source).schema()
    swapped = source.replace("@classmethod\n    @schema", "@schema\n    @classmethod")
    assert compile_source(swapped).schema().name == "f"
    assert check(run(swapped)["A"].f) == "x\n"


def test_a_property_that_computes_more_is_refused() -> None:
    computed = SOURCE.replace('return f"A guide of {self.city}"', "x = self.city\n        return x")
    with pytest.raises(ProgramError, match="title does more than return one expression"):
        compile_source(computed, name="opening").schema()
