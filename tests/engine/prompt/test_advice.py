"""Where a prompt is not what the chat template writes, or not for long, the check says so."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path

import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.engine import Engine
from engine.model.model import Model
from engine.pml import Diagnostic, PromptError, parse_prompt, parse_schema
from engine.prompt.template.chat_template import ChatFormat
from engine.store import Store
from tests.engine.cases import plan_of
from tests.engine.tiny import CHATML, DATED, save_tiny, tiny_network
from tests.pml.documents import schema_tree

SCHEMA = (
    '<schema name="s"><system>Be <module name="a">very</module> brief.</system><user>Look.</user></schema>'
)


def opened(template: str, folder: Path) -> Engine:
    made = byte_tokenizer()
    made.chat_template = template
    return Engine(Model("tiny", tiny_network(), made, "f"), Store.open(folder))


def of_schema(engine: Engine, source: str = SCHEMA) -> tuple[Diagnostic, ...]:
    tree = schema_tree(source)
    return engine.check(tree)


def of_prompt(engine: Engine, prompt: str, schema: str = SCHEMA) -> tuple[Diagnostic, ...]:
    trees = parse_schema(schema).tree, parse_prompt(prompt).tree
    assert trees[0] is not None
    assert trees[1] is not None
    return engine.check(*trees)


def text(engine: Engine, schema: object, prompt: str = "<prompt><a/></prompt>") -> str:
    plan = plan_of(engine, schema, parse_prompt(prompt).tree)  # type: ignore[arg-type]
    return str(engine.model.tokenizer.decode(plan.token_ids))


def test_a_date_is_told_until_one_is_given(tmp_path: Path) -> None:
    engine = opened(DATED, tmp_path)
    (found,) = of_schema(engine)
    assert (found.code, found.severity, found.line) == ("W608", "warning", 1)
    assert f"--date {datetime.date.today():%Y-%m-%d}" in found.hint
    engine.model.chat.date = datetime.date(2026, 1, 31)
    assert of_schema(engine) == ()
    assert of_schema(opened(CHATML, tmp_path / "undated")) == ()


def test_an_open_engine_follows_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(DATED, tmp_path)
    schema = parse_schema(SCHEMA).tree
    days = [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)]
    names = []
    for day in days:
        monkeypatch.setattr(ChatFormat, "today", lambda _, day=day: day)
        assert f"Today: {day:%d %b %Y}\n" in text(engine, schema)
        book = engine.schema(schema).tokenized.recipes()
        names.append([recipe.key for recipe in book.of_schema(999)])
    assert set(names[0]).isdisjoint(names[1])


def test_a_day_that_ends_between_layout_and_plan_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(DATED, tmp_path)
    schema = parse_schema(SCHEMA).tree
    monkeypatch.setattr(ChatFormat, "today", lambda _: datetime.date(2026, 1, 31))
    prepared = engine.schema(schema)
    days = itertools.chain([datetime.date(2026, 1, 31)], itertools.repeat(datetime.date(2026, 2, 1)))
    monkeypatch.setattr(ChatFormat, "today", lambda _: next(days))
    plan = prepared.prompt(parse_prompt("<prompt><a/></prompt>").tree).tokenized.planned().plan
    assert "Today: 31 Jan 2026\n" in engine.model.tokenizer.decode(plan.token_ids)


def test_an_engine_is_opened_with_a_date(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(DATED, encoding="utf-8")
    engine = Engine.open(str(folder), cache_dir=tmp_path / "store", date=datetime.date(2020, 2, 29))
    assert "Today: 29 Feb 2020\n" in text(engine, parse_schema(SCHEMA).tree)
    engine.close()


def test_a_template_that_invites_nobody_is_told(tmp_path: Path) -> None:
    silent = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
    engine = opened(silent, tmp_path)
    (found,) = of_prompt(engine, "<prompt><a/> So?</prompt>")
    assert (found.code, found.severity) == ("W609", "info")
    assert "right after '[end]'" in found.message


@pytest.mark.parametrize(
    ("system", "told", "reads"),
    [
        (
            "{{ raise_exception('no system') }}",
            ("W610", "info", "refuses"),
            "<|user|>Be very brief.\n\nLook.</s>",
        ),
        (
            "",
            ("W612", "warning", "chat template rewrites or leaves out turn 1 (system)"),
            "<s><|user|>Look.</s>",
        ),
        (
            "{% set ns.system = m.content %}",
            ("W612", "warning", "chat template moves turn 1 (system)"),
            "<|user|>Be very brief.\n\nAnd?</s>",
        ),
    ],
)
def test_what_becomes_of_system_text_is_told(
    tmp_path: Path, system: str, told: tuple[str, str, str], reads: str
) -> None:
    engine = opened(
        "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
        "{% if m.role == 'system' %}" + system + "{% else %}<|{{ m.role }}|>"
        "{% if loop.last and ns.system %}{{ ns.system }}\n\n{% endif %}"
        "{{ m.content }}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}",
        tmp_path,
    )
    further = "<prompt><a/><assistant>Yes.</assistant><user>And?</user></prompt>"
    (found,) = (*of_schema(engine), *of_prompt(engine, further))
    assert (found.code, found.severity) == told[:2]
    assert told[2] in found.message
    assert reads in text(engine, parse_schema(SCHEMA).tree, further)


def test_words_of_the_template_between_those_of_the_prompt_are_told(tmp_path: Path) -> None:
    engine = opened(CHATML.replace("{{ m.content }}", "{{ m.content|replace('Look', 'Gaze') }}"), tmp_path)
    (found, _) = of_prompt(engine, "<prompt><a/></prompt>")[::-1]
    assert (found.code, found.severity) == ("W612", "warning")
    assert "chat template rewrites or leaves out turn 2 (user)" in found.message
    assert "<|user|>\nGaze.</s>" in text(engine, parse_schema(SCHEMA).tree)


def test_a_turn_that_needs_a_user_is_refused_in_a_prompt_and_not_in_a_schema(tmp_path: Path) -> None:
    """Without a user turn there is no invitation, and none is made up."""
    wants = "{% if messages[-1].role != 'user' %}{{ raise_exception('ask something') }}{% endif %}" + CHATML
    engine = opened(wants, tmp_path)
    source = '<schema name="s"><system>Be <module name="a">very</module> brief.</system></schema>'
    assert of_schema(engine, source) == ()
    silent, found = of_prompt(engine, "<prompt><a/></prompt>", source)
    assert (silent.code, found.code) == ("W618", "E505")
    assert "ask something" in found.message
    assert of_prompt(engine, "<prompt><a/><user>Why?</user></prompt>", source) == ()
    with pytest.raises(PromptError, match="ask something"):
        text(engine, parse_schema(source).tree)
