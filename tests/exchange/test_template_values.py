"""Templates with variables that are set: an import spells what jinja2 renders, or says what it leaves out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jinja2 import Environment, nodes
from jinja2 import Template as BaseTemplate
from jinja2.exceptions import UndefinedError

from engine.exchange import ExchangeError
from engine.exchange.base.notes import Notes
from engine.exchange.templates.from_templates import TemplateTurn, read_turns
from engine.exchange.templates.reader import TemplateReader
from engine.pml import Argument, Import, Prompt, Schema, bind, parse_schema
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import write_schema
from engine.pml.tree.parts import part_text
from tests.drawing import draws

ENVIRONMENT = Environment(autoescape=False)
LOSSES = re.compile(r"left out|too many values|default in one place|several defaults")
GIVEN: tuple[dict[str, Any], ...] = tuple(
    {name: value for name, value in zip("abc", values, strict=True) if value is not None}
    for values in itertools.product((True, False), (True, None), ("x", "y", None))
)


def compiled(tests: tuple[nodes.Expr, ...]) -> BaseTemplate:
    """A template that writes "yes" where all conditions hold."""
    shown: nodes.Expr = nodes.Const("yes")
    for test in reversed(tests):
        shown = nodes.CondExpr(test, shown, nodes.Const(""))
    template = nodes.Template([nodes.Output([shown])])
    template.set_lineno(1, override=True).set_environment(ENVIRONMENT)
    return ENVIRONMENT.from_string(template)


def imports(schema: Schema, above: str, picked: set[str], given: Mapping[str, Any]) -> Iterator[Import]:
    for name, module in schema.index.members.get(above, {}).items():
        if module.path in picked:
            arguments = tuple(
                Argument(param.name, str(given[param.name]), NOWHERE)
                for param in module.params()
                if param.name in given
            )
            inner = tuple(imports(schema, module.path, picked, given))
            yield Import(name, arguments, inner, NOWHERE, NOWHERE)


class Read:
    """A template as it is imported, and its schema as a document."""

    def __init__(self, source: str) -> None:
        self.reader = TemplateReader(8)
        notes = Notes()
        found = read_turns((TemplateTurn(None, source),), "s", self.reader, notes)
        tree = parse_schema(write_schema(found)).tree
        assert tree == found
        self.schema = found
        self.tests: dict[str, BaseTemplate] = {}
        self.notes = (*self.reader.told(), *notes.told())

    def spelled(self, given: Mapping[str, Any]) -> str:
        """What the prompt says that picks what the template writes for these values."""
        if not self.tests:
            self.tests = {path: compiled(tests) for path, tests in self.reader.choices.written.items()}
        picked = {path for path, test in self.tests.items() if test.render(given) == "yes"}
        prompt = Prompt("s", tuple(imports(self.schema, "", picked, given)), NOWHERE)
        bound = bind(self.schema, prompt)
        assert bound.ok, bound.diagnostics
        return "".join(map(part_text, bound.parts))


def rendered(source: str, given: Mapping[str, Any]) -> str | None:
    try:
        return ENVIRONMENT.from_string(source).render(given)
    except (UndefinedError, TypeError):
        return None


# What is drawn

SET = st.sampled_from(("v", "w", "c"))
CONDITIONS = st.sampled_from(
    (
        *("a", "not a", "b", "a and b", "a or not b", "not (a and b)", "v", "not w", "c", "v and a"),
        *("c == 'x'", "'x' == c", "c != 'y'", "v == 'x'", "w != 'x'", "v == c", "c in ['x', 'z']", "a == b"),
        *(
            "c is defined",
            "v is undefined",
            "c|default('x') == 'x'",
            "(v if a else c) == 'y'",
            "true",
            "v or b",
        ),
        *("w in ['x', '3']", "b is defined and not a", "not not a", "c == 'x' or c == 'y'"),
        *("f", "not f", "f and c", "(f if a else v)"),
    )
)
VALUES = st.sampled_from(
    (
        *("'x'", "'y'", "''", "3", "none", "c", "v ~ '!'", "'p' ~ c", "v", "w", "c|default('d')", "c or 'd'"),
        *("'x' if a else 'y'", "c if b else 'z'", "'x' if b", "v|default('x')", "v|default('e', true)"),
        "'p' + v",
    )
)
SAID = st.sampled_from(
    (
        *("v", "w", "c", "c|default('d')", "'k' ~ v", "'k' ~ c ~ w", "'x' if a else v", "c if b", "3 ~ 'x'"),
        *("v|default('e')", "(c if a else w)|default('e')", "c or 'd'", "w or c", "v if v else 'n'"),
    )
)
WORDS = st.sampled_from(
    ("one ", "two\n", " three", "\n\nfour", "{# five #}6", "{% raw %}{{ 7 }}{% endraw %}")
)
OPEN, CLOSE = st.sampled_from(("{%", "{%-")), st.sampled_from(("%}", "-%}"))


def tag(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(OPEN, words, CLOSE).map(lambda one: f"{one[0]} {one[1]} {one[2]}")


def word(text: str) -> st.SearchStrategy[str]:
    return tag(st.just(text))


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


ASSIGNED = tag(st.tuples(SET, VALUES).map(lambda one: f"set {one[0]} = {one[1]}"))
FLAGS = st.sampled_from(("a and b", "not a", "c == 'x'", "f or b", "v", "not f", "true"))
FLAGGED = tag(FLAGS.map(lambda one: f"set f = {one}"))
WRITTEN = SAID.map(lambda one: f"<{{{{ {one} }}}}>")
SIMPLE = WORDS | WRITTEN | ASSIGNED | FLAGGED


def asking(kind: str) -> st.SearchStrategy[str]:
    return tag(CONDITIONS.map(f"{kind} {{}}".format))


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map("".join)
    elses = st.just("") | joined(word("else"), body)
    elifs = st.just("") | joined(asking("elif"), body)
    held = tag(st.tuples(SET, VALUES).map(lambda one: f"with {one[0]} = {one[1]}"))
    named = joined(word("set ns = namespace(n='x')"), asking("if"), word("set ns.n = v ~ 'y'"), word("endif"))
    return (
        joined(asking("if"), body, elifs, elses, word("endif"))
        | joined(held, body, word("endwith"))
        | named.map("{}({{{{ ns.n }}}})".format)
    )


CARRIED = st.lists(st.recursive(SIMPLE, nested, max_leaves=8), min_size=1, max_size=6).map("".join)
LOST = {
    "{% for x in c %}{% set v = x %}{{ x }}{% endfor %}": "{% for %}",
    "{% include 'v' %}": "{% include %}",
    "{% import 'x' as v %}": "{% import %}",
    "{% set v = f(c) %}": "{% set v %}",
    "{% set v = [c] %}": "{% set v %}",
    "{% set v = 1 + 2 %}{{ v }}": "{% set v %}",
    "{% set v, w = 1, 2 %}": "{% set %}",
    "{% set w %}text {{ v }}{% endset %}": "{% set %} of a block",
    "{% macro v(x) %}{{ x }}{% endmacro %}": "{% macro %}",
    "{% filter upper %}{% set v = 'f' %}{{ v }}{% endfilter %}": "{% filter %}",
    "{% call f() %}x{% endcall %}": "{% call %}",
    "{{ c|upper }}": "the filter upper",
    "{{ 2 + 3 }}": "computation",
    "{{ f(c) }}": "computation",
}
slow = settings(max_examples=draws(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
ABOUT_DEFAULTS = ("default in one place", "several defaults")
TOO_MANY = "too many values"


def read_of(source: str) -> Read | None:
    """The template as it is imported; None where it writes nothing at all."""
    try:
        return Read(source)
    except ExchangeError:
        assert not any((rendered(source, values) or "").strip() for values in GIVEN)
        return None


def compare(read: Read, source: str) -> None:
    for values in GIVEN:
        wanted = rendered(source, values)
        if wanted is not None:
            assert read.spelled(values) == wanted, values


@slow
@given(CARRIED)
@example("{% set v = 'x' %}{% if a %}{% set v = 'y' %}{% endif %}In a {{ v }} tone.")
@example(
    "{% if a %}{% set v = 'x' %}{% elif b %}{% set v = 'y' %}{% else %}{% set v = '' %}{% endif %}<{{ v }}>"
)
@example("{% if a %}1{% if not a %}2{% endif %}{% endif %}3{% if a %}4{% else %}5{% endif %}")
@example("{% set v = 'x' %}{% with v = 'y' %}{% set w = v %}{% endwith %}<{{ v }}{{ w }}>")
@example(
    "{% set v = 'x' %}{% block one %}{% set v = 'y' %}"
    "{% block two %}<{{ v }}>{% endblock %}{% endblock %}{{ v }}"
)
@example("{% set ns = namespace(n='x') %}{% block one %}{% set ns.n = 'y' %}{% endblock %}{{ ns.n }}")
@example("{% with v = 'x' if b %}{% if v == c %}1{% else %}2{% endif %}{% endwith %}")
def test_an_import_spells_what_the_template_renders(source: str) -> None:
    read = read_of(source)
    lost = [note for note in (read.notes if read else ()) if LOSSES.search(note)]
    assert all(any(words in note for words in (*ABOUT_DEFAULTS, TOO_MANY)) for note in lost), lost
    if read and not lost:
        compare(read, source)


@slow
@given(CARRIED, st.sampled_from(list(LOST)), CARRIED)
def test_what_an_import_leaves_out_is_named_with_its_line(before: str, lost: str, after: str) -> None:
    try:
        told: tuple[str, ...] = Read(f"{before}{{% if a %}}{lost}{{% endif %}}{after}").notes
    except ExchangeError as error:
        told = tuple(str(error).split("; "))
    line = before.count("\n") + 1
    assert any(f"line {line}: " in note and LOST[lost] in note and "left out" in note for note in told), told


def test_what_a_loop_makes_of_a_namespace_is_what_a_prompt_gives() -> None:
    source = "{% set ns = namespace(n='q') %}\n{% for x in c %}{% set ns.n = x %}{% endfor %}<{{ ns.n }}>"
    read = Read(source)
    assert any(
        "line 2: {% for %} is left out" in note and "a prompt gives ns.n" in note for note in read.notes
    )
    assert list(read.reader.parameters) == ["ns.n"]


def test_a_variable_that_is_no_longer_what_it_was_has_a_name_of_its_own() -> None:
    read = Read("<{{ c }}>\n{% set c = f(c) %}<{{ c }}>")
    assert list(read.reader.parameters) == ["c", "c-2"]
    assert any("line 2: {% set c %}" in note and "a prompt gives c-2" in note for note in read.notes)


@slow
@given(CARRIED)
def test_modules_of_one_condition_are_told_together(source: str) -> None:
    read = read_of(source)
    conditions: dict[str, list[str]] = {}
    for path, tests in read.reader.choices.written.items() if read else ():
        if tests:
            conditions.setdefault(repr(tests), []).append(path)
    for paths in conditions.values():
        if read and len(paths) > 1:
            assert any(all(f"{path} (" in note for path in paths) for note in read.notes), read.notes
