"""Prompts of other libraries as schemas: their turns, their variables, and what of them is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.exchange import ExchangeError, Imported, import_from
from engine.exchange.base.yaml_files import parsed_yaml
from engine.exchange.from_libraries import from_langchain, from_langfuse, from_promptfoo
from engine.exchange.templates.from_jinja import from_jinja
from engine.exchange.templates.from_prompty import from_prompty
from engine.exchange.templates.from_templates import TemplateTurn, from_turns
from engine.pml import Module, Param, Role, Text, Union, parse_schema
from engine.pml.edit.writer import write_prompt, write_schema


def outline(found: Imported) -> list[Any]:
    """The roles with their text, parameters as {name} with their default, modules as (name: …)."""
    return [
        (child.role, _spelled(child)) if isinstance(child, Role) else _spelled(child)
        for child in found.schema.children
    ]


def _spelled(node: Any) -> str:
    match node:
        case Text(text):
            return str(text)
        case Param(name, _, default):
            return f"{{{name}}}" if default is None else f"{{{name}={default}}}"
        case Module():
            return f"({node.name}: {''.join(map(_spelled, node.children))})"
        case Union():
            return "|".join(map(_spelled, node.members))
        case _:
            return "".join(map(_spelled, node.children))


def written(tmp_path: Path, name: str, content: str) -> Imported:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    found = import_from(path)
    assert parse_schema(write_schema(found.schema)).tree == found.schema
    return found


def told(found: Imported, *words: str) -> bool:
    return any(all(word in note for word in words) for note in found.notes)


PROMPTY = """---
name: Basic
description: A prompt.
model:
  api: chat
inputs:
  question:
    type: string
    sample: How old is it?
  tone:
    default: kind
  docs:
    type: array
---
system:
You are a {{tone}} guide.

user:
{% if hurry %}Be brief.{% endif %}
{{question}}
"""


def test_prompty(tmp_path: Path) -> None:
    for name in ("basic.prompty", "basic.md"):
        found = written(tmp_path, name, PROMPTY)
        assert outline(found) == [
            ("system", "(tone: You are a {tone=kind} guide.)"),
            ("user", "(hurry: Be brief.)\n(question: {question})"),
        ]
        assert told(found, "1 field of the head left out", "model")
        assert told(found, "1 sample of an input left out", "question")
        assert told(found, "2 fields of the head left out", "name", "description")
        assert told(found, "1 input left out", "docs")


def test_lines_that_name_roles_begin_turns(tmp_path: Path) -> None:
    found = written(tmp_path, "chat.jinja2", "# system:\nBe kind.\n\n# user:\n{{ question }}\n")
    assert outline(found) == [("system", "Be kind."), ("user", "(question: {question})")]
    plain = "A chat:\nuser:\nHi"
    assert outline(from_jinja(plain, "s")) == [plain]


def test_roles_inside_of_blocks_are_text() -> None:
    found = from_jinja("system:\nA\n{% if b %}\nuser:\nB{% endif %}", "s")
    assert outline(found)[0].startswith("system:\nA")
    assert told(found, "read as text")


def message(kind: str, **held: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "chat", kind], "kwargs": held}


def prompt(template: str, form: str | None = None, **held: Any) -> dict[str, Any]:
    more = {"template_format": form} if form else {}
    return message("PromptTemplate", template=template, **more, **held)


def test_langchain(tmp_path: Path) -> None:
    known = prompt("You know {topic}. Braces: {{x}}", partial_variables={"topic": "ships"})
    chat = message(
        "ChatPromptTemplate",
        messages=[
            message("SystemMessagePromptTemplate", prompt=known),
            message("MessagesPlaceholder", variable_name="history"),
            message("HumanMessagePromptTemplate", prompt=[prompt("{question}"), prompt("!")]),
        ],
    )
    found = written(tmp_path, "a.json", json.dumps(chat))
    assert outline(found) == [("system", "You know ships. Braces: {x}"), ("user", "(question: {question}!)")]
    assert told(found, "history")
    chain = message("RunnableSequence", first=chat, last=message("ChatOpenAI", model="m"))
    assert outline(written(tmp_path, "b.json", json.dumps(chain))) == outline(found)
    sections = "{{#long}}Long. {{/long}}{{^long}}Short. {{/long}}"
    plain = {"_type": "prompt", "template": sections, "template_format": "mustache"}
    found = written(tmp_path, "c.json", json.dumps(plain))
    assert outline(found) == ["(long: Long. )", "(not-long: Short. )"]


def test_langfuse(tmp_path: Path) -> None:
    value = {
        "name": "guide",
        "type": "chat",
        "version": 3,
        "labels": ["production"],
        "config": {"model": "m"},
        "prompt": [
            {"role": "system", "content": "You know {{topic}}."},
            {"type": "placeholder", "name": "history"},
            {"role": "user", "content": "{{question}}"},
        ],
    }
    found = written(tmp_path, "guide.json", json.dumps(value))
    assert outline(found) == [("system", "(topic: You know {topic}.)"), ("user", "(question: {question})")]
    assert told(found, "config")
    assert told(found, "history")
    text = written(tmp_path, "text.json", json.dumps({"type": "text", "prompt": "Tell me of {{ topic }}."}))
    assert outline(text) == [("user", "(topic: Tell me of {topic}.)")]


PROMPTFOO = """
description: x
prompts:
  - file://prompts/one.txt
  - 'Translate to {{language}}: {{text}}'
  - - role: system
      content: You are {{tone}}.
    - role: user
      content: '{{question}}'
  - '[{"role": "user", "content": "Hi {{name}}"}]'
  - |
    system:
    Be kind.
    user:
    {{question}}
providers: [openai:gpt-4]
tests:
  - vars: {language: French}
  - vars: {language: Dutch}
"""


def test_promptfoo(tmp_path: Path) -> None:
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(PROMPTFOO, encoding="utf-8")
    expected = [
        [("user", "(language: Translate to {language}: {text})")],
        [("system", "(tone: You are {tone}.)"), ("user", "(question: {question})")],
        [("user", "(name: Hi {name})")],
        [("system", "Be kind."), ("user", "(question: {question})")],
    ]
    for row, wanted in enumerate(expected, 1):
        found = import_from(path, row=row)
        assert outline(found) == wanted
    assert told(found, "1 prompt left out", "file://prompts/one.txt")
    assert told(found, "4 prompts", "number 4")
    assert told(found, "2 tests left out")
    assert told(found, "1 provider left out")


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (TemplateTurn("user", "{x", "f-string"), "not a format string"),
        (TemplateTurn("user", "{{#a}}x", "mustache"), "never closed"),
        (TemplateTurn("user", "x{{/a}}", "mustache"), "ends no section"),
        (
            TemplateTurn("user", "a\n{{#if a}}x{{/if}}", "mustache"),
            r"line 2: {{#if a}} is Handlebars.* write {{#a}}",
        ),
        (TemplateTurn("user", "{{=<% %>=}}<% a %>", "mustache"), "changes the tag delimiters"),
        (TemplateTurn("user", "{% if %}", "jinja", "the turn of line 3"), "the turn of line 3, line 1"),
        (TemplateTurn("user", "{{#a}}" * 3000 + "{{/a}}" * 3000, "mustache"), "nested too deep"),
    ],
)
def test_templates_that_are_none(turn: TemplateTurn, says: str) -> None:
    with pytest.raises(ExchangeError, match=says):
        from_turns((turn,), "s", 32)


def of(text: str, form: Any = "mustache") -> Imported:
    return from_turns((TemplateTurn("user", text, form),), "s", 32)


def test_sections_of_mustache_are_conditions() -> None:
    found = of("{{#a}}A{{#a}}B{{/a}}{{^a}}C{{/a}}{{/a}} {{^a}}D{{/a}}{{#a}}E{{/a}}")
    assert outline(found) == [("user", "(a: AB) (not-a: D)(a-2: E)")]
    assert told(found, "a decides on the modules a (", "not-a (", "a-2 (")
    assert told(
        of("{{#docs}}{{title}}{{/docs}}"), "1 section became a module", "repeats it for a list", "docs"
    )
    assert not told(of("{{#long}}Long.{{/long}}{{#name}}I am {{name}}.{{/name}}"), "repeats")


def test_a_line_of_mustache_with_a_tag_that_writes_nothing_is_no_line() -> None:
    assert outline(of("A\n {{#b}} \nB\n{{/b}}\n{{! no }}\nC {{#b}}D\n{{/b}}")) == [
        ("user", "A\n(b: B\n)C (b-2: D\n)")
    ]
    assert told(of("A\n{{#b}}\n{{/b}}\nC\n{{> part}}"), "line 5: {% include %}")


def test_formats_of_f_strings_are_left_out_with_a_word() -> None:
    found = of("{a:>10} {b!r} {c}", "f-string")
    assert outline(found) == [("user", "(a: {a} {b} {c})")]
    assert told(found, "line 1: the format :>10 is left out")
    assert told(found, "line 1: the format !r is left out")


def test_a_value_of_langchain_is_that_of_its_message() -> None:
    own = prompt("You know {topic}.", partial_variables={"topic": "ships", "n": 3, "f": {"lc": 1}})
    chat = message(
        "ChatPromptTemplate",
        partial_variables={"place": "Rome"},
        messages=[
            message("SystemMessagePromptTemplate", prompt=own),
            message("HumanMessagePromptTemplate", prompt=prompt("{topic} in {place}, {n}")),
        ],
    )
    found = from_langchain(chat, "s", 32)
    assert outline(found) == [("system", "You know ships."), ("user", "(topic: {topic} in Rome, {n})")]
    assert told(found, "1 value of a variable left out", "f")


def test_values_may_be_set_above_the_first_role(tmp_path: Path) -> None:
    source = "{# tone #}\n{%- set tone = 'kind' %}\n\nsystem:\nBe {{ tone }}.\nuser:\nHi\n"
    for found in (
        written(tmp_path, "a.jinja", source),
        from_prompty(f"---\nname: x\n---\n{source}", "s", 32),
    ):
        assert outline(found) == [("system", "Be kind."), ("user", "Hi")]
        assert not told(found, "without text")


def test_variables_are_set_for_the_template_that_sets_them() -> None:
    set_first, used = "{% set tone = 'kind' %}Be {{ tone }}.", "I am {{ tone }}."
    found = from_jinja(f"system:\n{set_first}\n\nuser:\n{used}\n{{% for x in y %}}{{% endfor %}}", "s")
    assert outline(found) == [("system", "Be kind."), ("user", "I am kind.\n")]
    assert told(found, "line 6: {% for %} is left out")
    chat = [{"role": "system", "content": set_first}, {"role": "user", "content": used}]
    found = from_promptfoo({"prompts": [chat]}, "s", 32)
    assert outline(found) == [("system", "Be kind."), ("user", "(tone: I am {tone}.)")]


def test_lines_of_a_prompty_file_are_those_of_the_file() -> None:
    found = from_prompty("---\nname: x\n---\nsystem:\n\n{% for a in b %}{% endfor %}Hi\n", "s", 32)
    assert told(found, "line 6: {% for %}")


def test_references_to_other_prompts_of_langfuse_are_said() -> None:
    found = from_langfuse({"type": "text", "prompt": "@@@langfusePrompt:name=x|version=1@@@ Hi"}, "s", 32)
    assert told(found, "1 other prompt not replaced", "name=x")


def test_what_a_template_computes_is_left_out() -> None:
    for form, text in (("mustache", "A {{> part}}"), ("f-string", "A {}"), ("f-string", "A {x!r:>{n}}")):
        found = from_turns((TemplateTurn("user", text, form),), "s", 32)  # type: ignore[arg-type]
        assert found.notes or "{x}" in str(outline(found))


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (BOMB, "expands to more than"),
        ("a: &a [*a]", "expands to more than"),
        ("[" * 1_000, "nested too deep|not valid YAML"),
        ("a: [", "not valid YAML: line 1"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("x" * ((1 << 18) + 1), "more than 262,144 characters"),
    ],
)
def test_yaml_that_is_hostile_or_broken(source: str, says: str) -> None:
    with pytest.raises(ExchangeError, match=says):
        parsed_yaml(source)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' is repeated"),
        ("x:\n  price: {default: 1, default: 2}\n", "line 2, column 23: the key 'default' is repeated"),
        ("a: 1\n'a': 2\n", "line 2, column 1: the key 'a' is repeated"),
    ],
)
def test_yaml_with_a_key_twice(source: str, says: str) -> None:
    with pytest.raises(ExchangeError, match=says):
        parsed_yaml(source)


@pytest.mark.parametrize(
    "word",
    [
        *("1.10", "0x10", "1_000", "010", "0b11", "12:30:45", "1e3", "+5", "12345678901234567890123"),
        *("yes", "No", "on", "True", "2024-01-01", "2024-01-01 10:00:00", ".nan", "-.inf", "="),
    ],
)
def test_words_of_yaml_reach_a_prompt_as_they_are_spelled(tmp_path: Path, word: str) -> None:
    assert parsed_yaml(f"a: {word}\nb: [{word}]\n? {word}\n: c") == {"a": word, "b": [word], word: "c"}
    (tmp_path / "chat.yaml").write_text(f"messages:\n- role: user\n  content: {word}\n", encoding="utf-8")
    prompt = import_from(tmp_path / "chat.yaml").prompt
    assert prompt is not None
    assert f"<user>{word}</user>" in write_prompt(prompt)
    head = f"---\ninputs:\n  price:\n    default: {word}\n---\nsystem:\nPay {{{{price}}}}\n"
    (tmp_path / "p.prompty").write_text(head, encoding="utf-8")
    assert f'default="{word}"' in write_schema(import_from(tmp_path / "p.prompty").schema)


def test_what_yaml_has_besides_words_stays() -> None:
    source = "a: true\nb: ~\nc:\nd: 'true'\ne: &e {x: 1, y: 2}\nf: {<<: *e, x: 5}\ng: {<<: *e, y: 6}\n"
    e = {"x": "1", "y": "2"}
    assert parsed_yaml(source) == {
        "a": True,
        "b": None,
        "c": None,
        "d": "true",
        "e": e,
        "f": {**e, "x": "5"},
        "g": {**e, "y": "6"},
    }


@pytest.mark.parametrize("number", ["12.50", "12345678901234567890123.0", "1E5"])
def test_numbers_of_json_reach_a_prompt_as_they_are_spelled(tmp_path: Path, number: str) -> None:
    answered = f'{{"functionResponse": {{"name": "f", "response": {{"price": {number}, "of": [{number}]}}}}}}'
    parts = f'{{"role": "user", "parts": [{{"text": "Hi"}}]}}, {{"role": "function", "parts": [{answered}]}}'
    (tmp_path / "gemini.json").write_text(f'{{"contents": [{parts}]}}', encoding="utf-8")
    schema = write_schema(import_from(tmp_path / "gemini.json").schema)
    assert schema.count(number) == 2
    lines = f'{{"_type": "prompt", "template": "Pay {{p}} now", "partial_variables": {{"p": {number}}}}}'
    (tmp_path / "chain.json").write_text(lines, encoding="utf-8")
    assert f"Pay {number} now" in write_schema(import_from(tmp_path / "chain.json").schema)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"messages": [{"role": "user", "content": "a", "content": "b"}]}', "'content' occurs twice"),
        ('{"contents": [{"parts": [{"functionResponse": {"response": NaN}}]}]}', "NaN is not a JSON number"),
        (
            '{"messages": []}\n{"messages": [], "messages": []}',
            "line 2 is not valid JSON: the key 'messages'",
        ),
    ],
)
def test_json_that_leaves_something_open_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "chat.json").write_text(content, encoding="utf-8")
    with pytest.raises(ExchangeError, match=says):
        import_from(tmp_path / "chat.json")
    config = {"prompts": ['[{"role": "user", "content": "a", "content": "b"}]']}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ExchangeError, match="messages of the prompt are not valid JSON: the key 'content'"):
        import_from(tmp_path / "promptfooconfig.yaml")


def test_lines_of_json_end_where_lines_end(tmp_path: Path) -> None:
    text = '{"messages": [{"role": "user", "content": "a\u2028b"}]}'
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / "chat.jsonl").write_text(text + end + text, encoding="utf-8", newline="")
        assert import_from(tmp_path / "chat.jsonl", row=2).notes == (
            "it has 2 conversations, and number 2 is imported; --row gives another",
        )


def test_what_could_be_anything_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "x.prompt").write_text("Just words.", encoding="utf-8")
    with pytest.raises(ExchangeError, match=r"x\.prompt: its kind is unclear; name it"):
        import_from(tmp_path / "x.prompt")


def test_a_template_format_that_is_unknown_is_refused() -> None:
    with pytest.raises(ExchangeError, match="the template format 'handlebars' is unknown"):
        from_prompty("---\ntemplate: handlebars\n---\nuser:\nHi\n", "s", 32)
