"""Role tags give what the tokenizer's own chat template gives for the same conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.chat import ChatError, ChatFormat
from engine.engine import Engine
from engine.model import Model
from engine.pml import parse_prompt, parse_schema
from engine.random_models import byte_tokenizer
from engine.store import Store
from tests.engine.tiny import CHATML, tiny_model, tiny_network

BRACKETS = (
    "{{ bos_token }}{% set ns = namespace(sys='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.sys = '<<SYS>>' + m.content + '<</SYS>>' %}{% elif m.role == 'user' %}"
    "[INST] {{ ns.sys }}{{ m.content }} [/INST]{% set ns.sys = '' %}{% else %} {{ m.content }} </s>"
    "{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "<turn>{{ m.role }}\n{{ m.content | trim }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
CONVERSATIONS = [
    ("user",),
    ("system", "user"),
    ("system", "user", "assistant", "user"),
    ("user", "assistant", "user"),
]


def tokenizer(template: str | None):
    made = byte_tokenizer()
    made.chat_template = template
    return made


def assembled(chat: ChatFormat, made, roles, contents) -> str:
    turns = chat.turns(roles)
    middle = "".join(a + c + b for a, c, b in zip(turns.opens, contents, turns.closes, strict=True))
    return (made.bos_token if chat.bos is not None else "") + middle + turns.generation


@pytest.mark.parametrize("template", [CHATML, BRACKETS])
@pytest.mark.parametrize("roles", CONVERSATIONS)
def test_turns_assemble_to_the_template(template: str, roles) -> None:
    made = tokenizer(template)
    contents = [f"content {i}" for i in range(len(roles))]
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    want = made.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert assembled(ChatFormat(made), made, roles, contents) == want


def test_a_role_that_the_template_refuses_is_an_error_in_words() -> None:
    with pytest.raises(ChatError, match="System role not supported"):
        ChatFormat(tokenizer(NO_SYSTEM)).turns(["system", "user"])


def test_a_schema_that_the_template_refuses_is_a_diagnostic(tmp_path: Path) -> None:
    model = Model("tiny", tiny_network(), tokenizer(NO_SYSTEM), "no-system")
    engine = Engine(model, Store.open(tmp_path))
    schema = parse_schema('<schema name="s"><system>Hi</system><user>Yes</user></schema>').tree
    assert [d.code for d in engine.check(schema)] == ["E505"]


def test_a_prompt_reads_as_the_template_renders_it(tmp_path: Path) -> None:
    """Modules split a turn in the middle, and the tokens still spell the whole conversation."""
    engine = Engine(tiny_model(), Store.open(tmp_path))
    schema = parse_schema(
        '<schema name="s"><system>Be brief.</system><user>One<module name="m">two</module>three</user>'
        "<assistant>Fine.</assistant></schema>"
    ).tree
    prompt = parse_prompt("<prompt><m/><user>And now?</user></prompt>").tree
    _, plan = engine._plan(schema, prompt)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Onetwothree"},
        {"role": "assistant", "content": "Fine."},
        {"role": "user", "content": "And now?"},
    ]
    want = engine.model.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert engine.model.tokenizer.decode(plan.token_ids) == want


def test_bare_text_after_the_imports_joins_the_last_user_turn(tmp_path: Path) -> None:
    engine = Engine(tiny_model(), Store.open(tmp_path))
    schema = parse_schema('<schema name="s"><user>Read: <module name="m">two</module></user></schema>').tree
    prompt = parse_prompt("<prompt><m/>What is it?</prompt>").tree
    _, plan = engine._plan(schema, prompt)
    text = engine.model.tokenizer.decode(plan.token_ids)
    assert text.startswith("<s><|user|>\nRead: two")
    assert text.endswith("What is it?</s>\n<|assistant|>\n")
    assert text.count("<|user|>") == 1


def test_without_a_template_turns_get_plain_headings() -> None:
    turns = ChatFormat(tokenizer(None)).turns(["system", "user"])
    assert turns.opens == ("System: ", "User: ")
    assert turns.generation == "Assistant:"
