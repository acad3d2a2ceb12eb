"""Other forms as schemas: what they spell is kept, what is lost is said, nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.base.errors import PromptCacheError
from engine.exchange import ExchangeError, Imported, export, import_from
from engine.exchange.from_messages import from_messages
from engine.exchange.templates.from_jinja import from_jinja
from engine.pml import Module, Param, Prompt, Schema, Text, bind, parse_prompt, parse_schema
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import write_prompt, write_schema
from engine.pml.tree.conversation import conversation
from engine.pml.whitespace.rules import SPACE
from engine.programs import ProgramError
from tests.drawing import EVERY
from tests.pml.documents import prompt_tree, schema_tree
from tests.pml.trees import TEXTS, prompts, schemas

slow = settings(
    max_examples=120 if EVERY else 10,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ROLES = ("system", "user", "assistant")
TURNS = st.lists(
    st.tuples(st.sampled_from(ROLES), st.lists(TEXTS, min_size=1, max_size=3)), min_size=1, max_size=5
)
BLOCKS = TURNS.map(
    lambda turns: [
        {"role": role, "content": [{"type": "text", "text": block} for block in blocks]}
        for role, blocks in turns
    ]
)


def documents(found: Imported) -> tuple[Schema, Prompt]:
    """The schema and the prompt, written and read again."""
    assert found.prompt is not None
    schema, prompt = parse_schema(write_schema(found.schema)), parse_prompt(write_prompt(found.prompt))
    assert schema.ok
    assert prompt.ok
    assert schema.tree is not None
    assert prompt.tree is not None
    return schema.tree, prompt.tree


def turns(found: Imported) -> list[tuple[str | None, str]]:
    bound = bind(*documents(found))
    assert bound.ok, bound.diagnostics
    return [(one.role, one.text) for one in conversation(bound.parts)]


def set_apart(texts: list[str]) -> str:
    """Texts with a blank line between them, where no white space stands between them already."""
    found = texts[0]
    for text in texts[1:]:
        touching = found[-1] not in SPACE and text[0] not in SPACE
        found += "\n\n" + text if touching else text
    return found


@slow
@given(BLOCKS)
def test_messages_are_spelled_by_their_schema_and_prompt(messages: list[dict[str, Any]]) -> None:
    answered = [*messages, {"role": "assistant", "content": "Yes."}]
    expected = [(one["role"], set_apart([block["text"] for block in one["content"]])) for one in messages]
    assert turns(from_messages(json.dumps(answered), "s")) == [*expected, ("assistant", "Yes.")]


@slow
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_new_text_is_set_apart_as_the_blocks_before_it_are(texts: list[str]) -> None:
    content = [{"type": "text", "text": text} for text in texts]
    ((role, said),) = turns(from_messages(json.dumps([{"role": "user", "content": content}]), "s"))
    assert role == "user"
    pieces = said if len(texts) == 1 else said.removesuffix(texts[-1])
    assert said.endswith(texts[-1])
    assert pieces.startswith(set_apart(texts[:-1] or texts))
    if len(texts) > 1 and texts[-2][-1] not in SPACE and texts[-1][0] not in SPACE:
        assert said == set_apart(texts)
    assert not pieces.removeprefix(set_apart(texts[:-1] or texts)).strip()


def test_the_blocks_of_an_exported_request_come_back_as_they_were() -> None:
    schema = schema_tree(SEAMS)
    picks = "<plan><abroad><tokyo/><rome/></abroad><note/></plan><end/>"
    prompt = prompt_tree(f"<prompt>{picks}So?</prompt>")
    said = [(one.role, one.text) for one in conversation(bind(schema, prompt).parts)]
    assert turns(from_messages(export("anthropic", schema, prompt).text, "s")) == said


@slow
@given(BLOCKS, TEXTS)
def test_plain_messages_with_a_system_prompt_beside_them(messages: list[dict[str, Any]], system: str) -> None:
    plain = [{**one, "content": "".join(block["text"] for block in one["content"])} for one in messages]
    expected = [("system", system), *((one["role"], one["content"]) for one in plain)]
    assert turns(from_messages(json.dumps({"system": system, "messages": plain}), "s")) == expected


@slow
@given(schemas().flatmap(lambda schema: st.tuples(st.just(schema), prompts(schema))))
def test_exported_messages_come_back(pair: tuple[Schema, Prompt]) -> None:
    schema, prompt = pair
    expected = [
        (one.role or "user", one.text) for one in conversation(bind(schema, prompt).parts) if one.text
    ]
    if expected:
        assert turns(from_messages(export("openai", schema, prompt).text, "s")) == expected
        again = "".join(text for _, text in turns(from_messages(export("openai", schema, prompt).text, "s")))
        assert again == "".join(text for _, text in expected)


def test_blocks_become_modules_and_the_last_words_new_text() -> None:
    content = [{"type": "text", "text": f"Document {n} about ships."} for n in (1, 2)]
    content.append({"type": "text", "text": "Which ship is red?"})
    found = from_messages(json.dumps([{"role": "user", "content": content}]), "ships")
    assert [module.name for module in found.schema.modules()] == ["document-1-about", "document-2-about"]
    assert found.prompt is not None
    assert isinstance(found.prompt.children[-1], Text)
    assert found.prompt.children[-1].text == "Which ship is red?"
    said = "Document 1 about ships.\n\nDocument 2 about ships.\n\nWhich ship is red?"
    assert turns(found) == [("user", said)]


def test_what_messages_lose_is_said() -> None:
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "What is it?"}]},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": None, "tool_calls": [{}]},
    ]
    found = from_messages(json.dumps({"messages": messages}), "s")
    assert turns(found) == [("system", "Be kind."), ("user", "What is it?\n\n42")]
    assert [note.rpartition(": ")[2] for note in found.notes[:3]] == ["message 2", "message 3", "message 4"]
    assert "'image_url'" in found.notes[0]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{", "not valid JSON: line 1, column 2"),
        ("{}", "there are no messages"),
        ("[]", "have no text"),
        ('[{"content": "x"}]', "message 1 has no role"),
        ('[{"role": "user", "content": 3}]', "neither text nor a list"),
        ('[{"role": "user", "content": [3]}]', "neither text nor an object"),
        ('[{"role": "user", "content": "\\u0000"}]', "documents cannot contain"),
        ('[{"role": "user", "content": "\\ud800"}]', "documents cannot contain"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_messages_that_are_none(source: str, says: str) -> None:
    with pytest.raises(ExchangeError, match=says):
        from_messages(source, "s")


# Jinja


def outline(children: tuple[Any, ...]) -> list[Any]:
    found: list[Any] = []
    for child in children:
        match child:
            case Text(text):
                found.append(text)
            case Param(name, length, default):
                found.append((name, length, default))
            case Module():
                found.append({child.name: outline(child.children)})
            case _:
                found.append([outline(child.children if hasattr(child, "children") else child.members)])
    return found


def jinja(template: str) -> list[Any]:
    return outline(from_jinja(template, "s").schema.children)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Plain {% raw %}{{ x }}{% endraw %}", ["Plain {{ x }}"]),
        ("{% if a %}A{% endif %}", [{"a": ["A"]}]),
        ("{% if not a %}A{% endif %}", [{"not-a": ["A"]}]),
        ("{% if a %}A{% else %}B{% endif %}", [[[{"a": ["A"]}, {"not-a": ["B"]}]]]),
        (
            "{% if c == 'x' %}A{% elif c == 'y' %}B{% else %}C{% endif %}",
            [[[{"x": ["A"]}, {"y": ["B"]}, {"otherwise": ["C"]}]]],
        ),
        ("{% if a %}A{% if b %}B{% endif %}{% endif %}", [{"a": ["A", {"b": ["B"]}]}]),
        ("{% if a %}for {{ days }}!{% endif %}", [{"a": ["for ", ("days", 32, None), "!"]}]),
        ("{% if a %}{{ user.name | default('Ann') }}{% endif %}", [{"a": [("user.name", 32, "Ann")]}]),
        (
            "Hello.\nI am {{ name }}.\nBye.\n",
            ["Hello.\n", {"name": ["I am ", ("name", 32, None), ".\n"]}, "Bye."],
        ),
        ("{% set x = 'fixed' %}{{ x }}", ["fixed"]),
        ("{{ 'a' if b else 'c' }}", [[[{"b": ["a"]}, {"not-b": ["c"]}]]]),
        ("{% if a is defined and b %}A{% endif %}", [{"a-and-b": ["A"]}]),
        ("{% block user %}Hi{% endblock %}", [[["Hi"]]]),
        (
            "{% set x = 'A' %}{% if b %}{% set x = 'B' %}{% endif %}In {{ x }}.",
            ["In ", [[{"b": ["B"]}, {"not-b": ["A"]}]], "."],
        ),
        (
            "{% if b %}{% set x = 'B' %}{% elif c %}{% set x = 'C' %}{% else %}{% set x = 'D' %}{% endif %}"
            "{{ x }}.",
            [[[{"b": ["B"]}, {"c": ["C"]}, {"otherwise": ["D"]}]], "."],
        ),
        (
            "{% if b %}{% set x = 'B' %}{% elif c %}{% set y = 'C' %}{% else %}D{% endif %}",
            [{"not-b-and-not-c": ["D"]}],
        ),
        (
            "{% if b %}{% set x = 'B' %}{{ x }}{% endif %}{{ x }}",
            [{"b": ["B"]}, [[{"b-2": ["B"]}, {"not-b": [("x", 32, None)]}]]],
        ),
        (
            "{% if a %}\n  {% set x = 'A' %}\n{% endif %}[{{ x }}]",
            ["[", [[{"a": ["A"]}, {"not-a": [("x", 32, None)]}]], "]"],
        ),
        ("A{% if a %} {% endif %}B", ["A", {"a": [" "]}, "B"]),
        ("{% set x = 'A' %}{{ x | default('B') }}", ["A"]),
        ("{% set x = x | default('B') %}{{ x }}", [{"x": [("x", 32, "B")]}]),
        ("{% set x = 'A' %}{% if x == 'A' %}B{% else %}C{% endif %}", ["B"]),
        ("{% if a %}A{% if a %}B{% else %}C{% endif %}{% endif %}", [{"a": ["AB"]}]),
        ("{% if not a %}A{% else %}B{% endif %}", [[[{"not-a": ["A"]}, {"a": ["B"]}]]]),
        ("{% if not (a and b) %}A{% endif %}", [{"not-a-or-not-b": ["A"]}]),
        ("{% if n > 3 %}A{% endif %}", [{"n": ["A"]}]),
        ("{{ ('A' if b else 'C') | upper }}", [[[{"b": ["A"]}, {"not-b": ["C"]}]]]),
        ("{{ a or 'B' }}", [{"a": [("a", 32, "B")]}]),
        ("{% with x = 'A' %}{{ x }}{% endwith %}", ["A"]),
    ],
)
def test_a_template_becomes_a_schema(template: str, expected: list[Any]) -> None:
    assert jinja(template) == expected


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("A\n{% for d in docs %}{{ d }}{% endfor %}", "line 2: {% for %} is left out with {{ d }} in it"),
        ("A{% include 'x' %}", "{% include %} is left out"),
        ("A{% macro m() %}x{% endmacro %}", "{% macro %} is left out"),
        ("A{{ f(x) }}", "computation in {{ … }} is left out"),
        ("A{{ x | upper }}", "the filter upper is left out"),
        ("A{{ x }}", "got len=32"),
        ("A{{ 1 + x }}", "line 1: the computation in {{ … }} is left out"),
        (
            "{% if a %}A{% endif %}\n{% if a %}B{% endif %}",
            "a decides on the modules a (line 1), a-2 (line 2); ",
        ),
        (
            "{% if a %}A{% endif %}{% if not a %}B{% endif %}",
            "a decides on the modules a (line 1), not-a (line 1); import those that fit one value of it",
        ),
        (
            "{% if a and b %}A{% endif %}{% if a and b %}B{% endif %}",
            "a and b decide on the modules a-and-b (line 1), a-and-b-2 (line 1); import those that fit one "
            "value of each",
        ),
        (
            "{% if a %}A{% endif %}\n{{ a }}",
            "a decides on the modules a (line 1) and is an argument of the modules a-2; ",
        ),
        (
            "{% if a %}{{ n }}{% endif %}{% if b %}{{ n }}{% endif %}",
            "n is an argument of the modules a, b; give them the same value",
        ),
        ("{% if a %}{% block user %}A{% endblock %}{% endif %}", "{% block user %} begins no turn here"),
        ("{% autoescape true %}{{ a }}{% endautoescape %}", "{% autoescape %} is left out"),
    ],
)
def test_what_a_template_loses_is_said(template: str, says: str) -> None:
    assert any(says in note for note in from_jinja(template, "s").notes)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% if %}", "not valid Jinja: line 1"),
        ("{% for d in docs %}{{ d }}{% endfor %}", "nothing in this template.*{% for %}"),
        ("", "nothing in this template"),
        ("{% if a %}" * 3000 + "{% endif %}" * 3000, "nested too deep"),
        ("\x01", "documents cannot contain"),
    ],
)
def test_templates_that_cannot_be_read(template: str, says: str) -> None:
    with pytest.raises(ExchangeError, match=says):
        from_jinja(template, "s")


@pytest.mark.parametrize(
    ("first", "second", "default", "says"),
    [
        ("n", "n | default('x')", "x", "n has a default in one place and none in another"),
        ("n | default('x')", "n", "x", "n has a default in one place and none in another"),
        ("n | default('x')", "n | default('y')", "x", "n has several defaults"),
        ("n", "n | default('')", "", ""),
        ("n | default('x')", "n | default('x')", "x", ""),
    ],
)
@pytest.mark.parametrize("form", ["{{% if m %}}{}{{% endif %}}", "{}"])
def test_a_variable_is_one_parameter_of_a_module_whatever_its_defaults(
    first: str, second: str, default: str, says: str, form: str
) -> None:
    words = f"A {{{{ {first} }}}} B {{{{ {second} }}}} C"
    found = from_jinja(form.format(words), "s")
    (module,) = found.schema.modules()
    assert module.params() == (Param("n", 32, default, None, NOWHERE),)
    assert len([child for child in module.children if isinstance(child, Param)]) == 2
    told = [note for note in found.notes if "default" in note]
    assert len(told) == bool(says)
    assert all(note.startswith(says) and "one parameter" in note for note in told)


def test_what_a_template_writes_where_it_is_given_nothing() -> None:
    tone = "{% set tone = 'F' %}{% if casual %}{% set tone = 'C' %}{% endif %}{{ tone }}."
    found = from_jinja(
        f"{tone}{{% if d %}}D{{% elif e == 'x' %}}E{{% else %}}G{{% endif %}}\n{{{{ q }}}}", "s"
    )
    assert found.always == ("not-casual", "otherwise", "q")


def test_each_module_has_a_default_of_its_own() -> None:
    found = from_jinja("{% if a %}A {{ n }}{% endif %}{% if b %}B {{ n | default('x') }}{% endif %}", "s")
    assert [module.params()[0].default for module in found.schema.modules()] == [None, "x"]
    assert not any("default" in note for note in found.notes)


def test_a_template_is_never_rendered(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    template = f"A{{{{ cycler.__init__.__globals__.os.system('touch {mark}') }}}}"
    from_jinja(template, "s")
    assert not mark.exists()


@slow
@given(schemas())
def test_an_exported_template_comes_back_with_all_its_text(schema: Schema) -> None:
    texts = "".join(_texts(schema.children))
    if not texts.strip():
        return
    found = from_jinja(export("jinja", schema).text, "s").schema
    again = parse_schema(write_schema(found))
    assert again.tree == found
    assert "".join(_texts(found.children)) == texts
    assert len(found.modules()) >= len(schema.modules())


SEAMS = """<schema name="s">
  <system>Be brief.</system>
  <user>
    # Trip
    <module name="plan">Away for <param name="days" len="32"/>.

      <union>
        <module name="home">At home.</module>
        <module name="abroad"><module name="tokyo">Tokyo.</module> <module name="rome">Rome.</module></module>
      </union>
      <module name="note">Note.</module>
    </module>

    <module name="end">End.</module>
  </user>
</schema>"""


def test_our_own_templates_come_back_as_the_schema_with_its_seams() -> None:
    schema = schema_tree(SEAMS)
    found = from_jinja(export("jinja", schema).text, "s")
    assert found.schema == schema
    assert not any("left out" in note for note in found.notes)


def _texts(children: tuple[Any, ...]) -> list[str]:
    found = []
    for child in children:
        if isinstance(child, Text):
            found.append(child.text)
        else:
            found.extend(_texts(getattr(child, "children", getattr(child, "members", ()))))
    return found


# Files


def test_the_kind_follows_from_the_name(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "Hi"}]', encoding="utf-8")
    (tmp_path / "page.j2").write_text("{% if a %}A{% endif %}", encoding="utf-8")
    program = "from engine.programs import schema\n@schema('trip')\ndef f(p): p.text('x')\n"
    (tmp_path / "trip.py").write_text(program, encoding="utf-8")
    assert import_from(tmp_path / "chat.json").schema.name == "chat"
    assert import_from(tmp_path / "page.j2", name="a name").schema.name == "a-name"
    assert import_from(tmp_path / "trip.py").schema.name == "trip"


@pytest.mark.parametrize(
    ("name", "content", "kind", "says"),
    [
        ("x.prompt", b"x", None, "its kind is unclear"),
        ("x.json", b"\xff", None, "not UTF-8"),
        ("x.json", b"[]", "yaml", "there is no kind"),
        ("x.json", b"[]", "folder", "is not a folder"),
        ("x.json", None, None, "does not exist"),
        ("x.json", b" " * 5_300_000, None, "larger than 5 MB"),
    ],
)
def test_sources_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, kind: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PromptCacheError, match=says):
        import_from(tmp_path / name, kind)


def test_a_faulty_program_names_its_line(tmp_path: Path) -> None:
    program = "from engine.programs import schema\n@schema\ndef f(p):\n    while p: p.text('x')\n"
    (tmp_path / "trip.py").write_text(program, encoding="utf-8")
    with pytest.raises(ProgramError, match=r"trip\.py, line 4"):
        import_from(tmp_path / "trip.py")
