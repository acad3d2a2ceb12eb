"""Chat templates render as transformers renders them, and none takes more time or memory than it may."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.prompt.template import budget
from engine.prompt.template.budget import TemplateError, TemplateLimitError
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.renderer import ChatTemplate
from engine.prompt.template.turns import ChatError
from tests.engine.tiny import CHATML

DAY = datetime.date(2026, 1, 31)
MESSAGES = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": " Why ' & <é>?"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSo."},
    {"role": "user", "content": "And?"},
]
DOUBLING = "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s OF n.s %}{% endfor %}"
TOO_MUCH = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a loop that writes": "{% for a in range(99999) %}{{ 'a' * 100 }}{% endfor %}",
    "a loop in a set block": "{% set x %}{% for a in range(99999) %}{{ 'a' * 90 }}{% endfor %}{% endset %}",
    "times": "{{ 'a' * 4000000000 }}",
    "times, the other way": "{{ 4000000000 * 'a' }}",
    "a list times": "{{ [1] * 4000000000 }}",
    "joining itself": DOUBLING.replace("OF", "~"),
    "adding itself": DOUBLING.replace("OF", "+"),
    "lists of itself": "{% set n = namespace(a=['a']) %}"
    "{% for i in range(40) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
    "depth": "{% set n = namespace(a=[]) %}{% for i in range(99) %}{% set n.a = [n.a] %}{% endfor %}",
    "powers": "{{ 9 ** 99999999 }}",
    "products": "{% set n = namespace(a=9) %}{% for i in range(99) %}{% set n.a = n.a * n.a %}{% endfor %}",
    "a width": "{{ '%999999999d' % 1 }}",
    "a width among the values": "{{ '%*d' % (999999999, 1) }}",
    "a width in a format": "{{ '{:>999999999}'.format(1) }}",
    "a nested width": "{{ '{:>{}}'.format(1, 999999999) }}",
    "the filter format": "{{ '%999999999d'|format(1) }}",
    "a format method taken by name": "{{ ('{:>999999999}'|attr('format'))(1) }}",
    "center": "{{ 'a'|center(10 ** 10) }}",
    "ljust": "{{ 'a'.ljust(10 ** 10) }}",
    "batch": "{{ [1]|batch(10 ** 10, 'x')|list }}",
    "slice": "{{ [1]|slice(10 ** 9)|list }}",
    "indent": "{{ 'a'|indent(10 ** 10) }}",
    "indent with a text": "{{ ('\n' * 9999)|indent('a' * 9999) }}",
    "replace": "{{ ('a' * 9999).replace('', 'x' * 9999) }}",
    "the filter replace": "{{ ('a' * 9999)|replace('a', 'x' * 9999) }}",
    "replace by keyword": "{{ ('a' * 9999)|replace(new='x' * 9999, old='a') }}",
    "join": "{{ ('x' * 9999).join(['a'] * 9999) }}",
    "the filter join": "{{ (['a'] * 9999)|join('x' * 9999) }}",
    "tojson": "{{ (['a'] * 99999)|tojson(indent=99999) }}",
    "round": "{{ 1.5|round(10 ** 9, 'ceil') }}",
    "sum": "{{ ([[1]] * 99999)|sum(start=[]) }}",
    "map": "{{ range(99999)|map('center', 9999)|list }}",
    "macros without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "loops that call themselves": "{% for i in range(99) recursive %}{{ loop(range(99)) }}{% endfor %}",
    "encode": "{{ 'a'.encode() }}",
    "translate": "{{ 'a'.translate({97: 'b' * 9}) }}",
}
REFUSED = {
    "include": ("{% include 'x' %}", "no loader"),
    "extends": ("{% extends 'x' %}", "no loader"),
    "raise": ("{{ raise_exception('only users') }}", "only users"),
    "an error of its own": ("{{ messages[0].content.foo.bar }}", "has no attribute 'foo'"),
    "Python": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "changing a list": ("{{ messages.append(1) }}", "unsafe"),
    "a namespace of itself": ("{% set n = namespace() %}{% set n.n = n %}", "cannot store"),
}
UNREADABLE = ["{% for %}", "{{ (" * 2000, "{{ 1" + "+1" * 30000 + " }}", "{{ 'x'|wordwrap(1) }}"]


def render(source: str) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES, invite=True, today=DAY)


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_takes_too_much_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_VALUE", budget.MAX_VALUE // 100)
    monkeypatch.setattr(budget, "MAX_WORK", budget.MAX_WORK // 100)
    with pytest.raises(TemplateLimitError):
        render(TOO_MUCH[name])


def test_time_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", 0.05)
    macros = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    with pytest.raises(TemplateLimitError, match=r"longer than 0\.05 seconds"):
        render(macros)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_template_raises_or_may_not_do_is_told(name: str) -> None:
    source, words = REFUSED[name]
    with pytest.raises(TemplateError, match=words) as caught:
        render(source)
    assert not isinstance(caught.value, TemplateLimitError)


@pytest.mark.parametrize("source", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_is_no_template_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match="cannot be read"):
        ChatTemplate(source, {})


def test_a_huge_template_is_not_read() -> None:
    with pytest.raises(TemplateLimitError, match="200,000 characters, and at most 100,000"):
        ChatTemplate("x" * 200_000, {})


PIECES = [
    CHATML,
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.last }}"
    "{% if not loop.last %}{{ loop.nextitem.role }}{% endif %}\n{% endfor %}",
    "{% for m in messages[1:] if m.role != 'system' %}{{ m['content']|trim }}{% else %}none{% endfor %}",
    "{% set n = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set n.last = loop.index0 %}{% endif %}{% endfor %}{{ n.last }}",
    "{%- for m in messages[::-1] -%}{%- if loop.first -%}{%- continue -%}{%- endif -%}"
    "{{- m.role -}}{%- endfor -%}",
    "{% for m in messages %}{% generation %}"
    "{{ m.content.split('</think>')[-1].lstrip('\n') }}{% endgeneration %}{% endfor %}",
    "{{ messages|tojson(indent=2) }}{{ messages[1]|tojson }}{{ messages|map(attribute='role')|join(', ') }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|length * 2 - 1 // 1 }}",
    "{% macro say(m, end='.') %}{{ m.role|upper }}: {{ m.content ~ end }}{% endmacro %}"
    "{% for m in messages %}{{ say(m, end='!') }}{% endfor %}",
    "{% set x %}  {{ messages[0].content }}  {% endset %}[{{ x }}]{{ x is string }}{{ tools is none }}",
    "{{ '%s is %05d' % ('a', 7) }}{{ '{:>5}|{a}'.format('b', a=1) }}{{ 'a\nb'|indent(2) }}"
    "{{ ['a'] + ['b'] }}",
    "{{ dict(a=1, b=[2])|items|list }}{{ {'a': {'b': 1}}.a.b }}{{ (1, 2)[0] }}"
    "{{ 'abc'[1:] }}{{ 'a' in 'abc' }}",
    "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ documents }}{{ add_generation_prompt }}",
    "{% for r, ms in messages|groupby('role') %}{{ r }}{{ ms|length }}{% endfor %}"
    "{{ messages|first|string }}",
    "{% macro outer() %}<{{ caller('in') }}>{% endmacro %}{% call(x) outer() %}{{ x }}{% endcall %}",
]


@pytest.mark.parametrize("source", PIECES, ids=range(len(PIECES)))
def test_it_renders_what_transformers_renders(source: str) -> None:
    made = byte_tokenizer()
    made.chat_template = source
    want = made.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    found = ChatTemplate(source, made.special_tokens_map).render(MESSAGES, invite=True, today=DAY)
    assert found == want


def test_long_texts_count_as_what_they_are() -> None:
    long = [{"role": "user", "content": "word " * 800_000}]
    assert len(ChatTemplate(CHATML, {"bos_token": ""}).render(long, invite=True, today=DAY)) > 4_000_000


def test_threads_have_bounds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_WORK", budget.MAX_WORK // 10)
    monkeypatch.setattr(budget, "MAX_VALUE", budget.MAX_VALUE // 10)
    good = ChatTemplate(CHATML, {"bos_token": ""})
    bad = ChatTemplate(TOO_MUCH["a loop that writes"], {})

    def work(turn: int) -> str:
        try:
            return (bad if turn % 4 == 0 else good).render(MESSAGES, invite=True, today=DAY)
        except TemplateLimitError:
            return "stopped"

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(work, range(40)))) == 2


def test_a_template_beyond_its_bounds_is_rendered_once_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = byte_tokenizer()
    made.chat_template = TOO_MUCH["loops in loops"]
    monkeypatch.setattr(budget, "MAX_WORK", 10_000)
    chat = ChatFormat(made)
    asked: list[bool] = []
    monkeypatch.setattr(ChatTemplate, "render", lambda *_, **__: asked.append(True))
    for _ in range(3):
        with pytest.raises(ChatError, match=r"exceeds a limit.*10,000 steps.*another model"):
            chat.turns(["user"])
    assert not asked


@pytest.mark.parametrize(
    ("given", "message"),
    [("{% for %}", "cannot be read"), ({"rag": CHATML}, "templates rag, but none is named default")],
)
def test_a_template_that_cannot_be_used_is_told_when_turns_are_wanted(given: object, message: str) -> None:
    made = byte_tokenizer()
    made.chat_template = given
    chat = ChatFormat(made)
    with pytest.raises(ChatError, match=message):
        chat.turns(["user"])


def slow_chat(monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[ChatFormat, list[int]]:
    """A chat format whose template takes so long a rendering, by a clock of its own, and its renderings."""
    now, asked = [0.0], []
    monkeypatch.setattr(budget.time, "thread_time", lambda: now[0])
    made = byte_tokenizer()
    made.chat_template = CHATML
    chat = ChatFormat(made)
    plain = budget.Budget.text

    def text(self: Any, words: str) -> str:
        if self.looks == 0:
            asked.append(1)
            now[0] += seconds
        return plain(self, words)

    monkeypatch.setattr(budget.Budget, "text", text)
    return chat, asked


LONG = ["user", "assistant"] * 15


def test_the_renderings_of_one_conversation_share_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, asked = slow_chat(monkeypatch, 1.6)
    for _ in range(2):
        with pytest.raises(
            ChatError,
            match=r"finding the turns of this conversation takes longer than 5 seconds.*another model",
        ):
            chat.render(LONG, ["What?"] * 30)
    assert len(asked) == 4


def test_a_conversation_that_takes_too_long_leaves_shorter_ones_their_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, _ = slow_chat(monkeypatch, 1.0)
    with pytest.raises(ChatError, match="finding the turns of this conversation"):
        chat.turns(LONG)
    assert chat.turns(["user"]).opens


def test_one_rendering_that_takes_too_long_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, asked = slow_chat(monkeypatch, 6.0)
    for roles in (LONG, ["user", "assistant", "user"], LONG):
        with pytest.raises(ChatError, match=r"exceeds a limit"):
            chat.turns(roles)
    assert len(asked) == 1


def test_quick_templates_may_have_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, asked = slow_chat(monkeypatch, 0.1)
    assert len(chat.turns(LONG).opens) == 30
    assert len(asked) > 30
