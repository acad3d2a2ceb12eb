"""Role tags give what the tokenizer's own chat template gives for the same conversation."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine.checkpoint.synthetic import byte_tokenizer
from engine.engine import Engine
from engine.model.model import Model
from engine.pml import bind, parse_prompt, parse_schema
from engine.pml.tree.conversation import conversation
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.turns import ChatError
from engine.store import Store
from tests.drawing import EVERY
from tests.engine.cases import plan_of
from tests.engine.tiny import CHATML, tiny_model, tiny_network
from tests.pml.documents import prompt_tree, schema_tree

# The forms of well-known families, each written as its tokenizer's template renders it.
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama-2": (
        "{% if messages[0].role == 'system' %}"
        "{% set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
        "{% set text = system + m.content if loop.index0 == 0 else m.content %}"
        "{% if m.role == 'user' %}{{ bos_token }}[INST] {{ text.strip() }} [/INST]"
        "{% else %} {{ text.strip() }} {{ eos_token }}{% endif %}{% endfor %}"
    ),
    "llama-3": (
        "{% for m in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}"
        "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "mistral": (
        "{{ bos_token }}{% for m in messages %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
        "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    ),
    "gemma": (
        "{{ bos_token }}{% if messages[0].role == 'system' %}"
        "{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
        "{% set role = 'model' if m.role == 'assistant' else m.role %}"
        "<start_of_turn>{{ role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
    "phi": (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
    "phi-3": (
        "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>\n{{ m.content }}<|end|>\n"
        "{% else %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
    ),
    "tiny": CHATML,
}
WITHOUT_SYSTEM = ("mistral", "gemma")
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
    found = chat.render(roles, contents)
    texts = ["".join(one if isinstance(one, str) else one.text for one in said) for said in found.contents]
    middle = "".join(a + c + b for a, c, b in zip(found.opens, texts, found.closes, strict=True))
    return found.begin + middle + found.generation


def rendered(made, roles, contents, folded: bool) -> str:
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    if folded and roles[0] == "system":
        first = {"role": "user", "content": contents[0] + "\n\n" + contents[1]}
        messages = [first, *messages[2:]]
    return made.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("roles", CONVERSATIONS)
def test_turns_assemble_to_the_template(family: str, roles) -> None:
    made = tokenizer(TEMPLATES[family])
    contents = [f"content {i}" for i in range(len(roles))]
    want = rendered(made, roles, contents, family in WITHOUT_SYSTEM)
    assert assembled(ChatFormat(made), made, roles, contents) == want


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_prompt_reads_as_its_family_renders_it(family: str, tmp_path: Path) -> None:
    """Modules split turns in the middle, and the tokens still spell the whole conversation."""
    made = tokenizer(TEMPLATES[family])
    engine = Engine(Model("tiny", tiny_network(), made, family), Store.open(tmp_path))
    schema = parse_schema(
        '<schema name="s"><system>Be <module name="a">very</module>brief.</system>'
        '<user>One<module name="m">two <param name="n" len="5"/></module>three</user>'
        "<assistant>Fine.</assistant></schema>"
    ).tree
    prompt = parse_prompt('<prompt><a/><m n="2&amp;3"/><user>And now?</user></prompt>').tree
    assert [found for found in engine.check(schema) if found.severity != "info"] == []
    plan = plan_of(engine, schema, prompt)
    contents = ["Be verybrief.", "Onetwo 2&3three", "Fine.", "And now?"]
    roles = ("system", "user", "assistant", "user")
    assert made.decode(plan.token_ids) == rendered(made, roles, contents, family in WITHOUT_SYSTEM)


SPACED = """<schema name="s" xml:space="preserve"><system><module name="a">
 \t Be kind.  </module>  <module name="b">Be brief.
</module></system><user><module name="c">  </module><module name="d">

Look<param name="x" len="9"/>
</module><module name="e" cache="false">  at it.\x20
 </module></user><assistant> Fine.
</assistant></schema>"""


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("merges", [False, True], ids=["bytes", "words"])
def test_white_space_at_the_borders_of_turns_is_what_the_template_makes_of_it(
    family: str, merges: bool, tmp_path: Path
) -> None:
    made = word_tokenizer(TEMPLATES[family]) if merges else tokenizer(TEMPLATES[family])
    engine = Engine(Model("tiny", tiny_network(), made, family), Store.open(tmp_path))
    schema = schema_tree(SPACED)
    padded = 0
    systems, users = ("<a/>", "<b/>", "<a/><b/>"), ("", "<c/>", "<e/>", "<c/><e/>")
    values, questions = ("", " y ", "z&#10;"), (" Now? ", "Go\n\n")
    choices = [*itertools.product(systems, users, values, questions)]
    for first, second, value, tail in choices[:: 1 if EVERY else 7]:
        source = f'<prompt>{first}<d x="{value}"/>{second}<user xml:space="preserve">{tail}</user></prompt>'
        prompt = prompt_tree(source)
        messages = conversation(bind(schema, prompt).parts)
        roles, contents = [one.role for one in messages], [one.text for one in messages]
        plan = plan_of(engine, schema, prompt)
        want = rendered(made, roles, contents, family in WITHOUT_SYSTEM)
        assert made.decode(plan.token_ids) == want, source
        padded += contents[0] != contents[0].strip()
        assert plan.cached_tokens > 0
    assert padded


def word_tokenizer(template: str):
    """A byte-level tokenizer in which white space and words share tokens."""
    raw = byte_tokenizer().backend_tokenizer
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = ["\n \t Be kind.  ", "Be brief.\n", "\n\nLook", "  at it. \n ", " Fine.\n", " Now? "]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(texts * 9, trainer)
    assert len(raw.encode("Be brief.\n").ids) < 4
    made = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = template
    return made


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_schema_of_a_system_turn_alone_is_continued_by_the_prompt(family: str, tmp_path: Path) -> None:
    made = tokenizer(TEMPLATES[family])
    engine = Engine(Model("tiny", tiny_network(), made, family), Store.open(tmp_path))
    schema = parse_schema('<schema name="s"><system>Be brief.</system></schema>').tree
    prompt = parse_prompt("<prompt><user>Why?</user></prompt>").tree
    plan = plan_of(engine, schema, prompt)
    want = rendered(made, ("system", "user"), ["Be brief.", "Why?"], family in WITHOUT_SYSTEM)
    assert made.decode(plan.token_ids) == want


def test_a_sequence_that_the_template_refuses_is_a_diagnostic(tmp_path: Path) -> None:
    made = tokenizer(TEMPLATES["gemma"])
    engine = Engine(Model("tiny", tiny_network(), made, "gemma"), Store.open(tmp_path))
    schema = parse_schema('<schema name="s"><user>Yes</user></schema>').tree
    prompt = parse_prompt("<prompt><user>Again</user></prompt>").tree
    (fault,) = engine.check(schema, prompt)
    assert fault.code == "E508"
    assert "the user turn (line 1 of the prompt) after the user turn of the schema (line 1" in fault.message
    assert "must alternate" in fault.message
    schema = parse_schema('<schema name="s"><assistant>I</assistant><user>You</user></schema>').tree
    assert [d.code for d in engine.check(schema)] == ["E505"]


def test_a_sequence_that_can_not_be_cut_is_an_error_in_words() -> None:
    with pytest.raises(ChatError, match="drops or moves"):
        ChatFormat(tokenizer("{{ messages[-1].content }}")).turns(["user", "assistant", "user"])


def test_a_prompt_reads_as_the_template_renders_it(tmp_path: Path) -> None:
    """Modules split a turn in the middle, and the tokens still spell the whole conversation."""
    engine = Engine(tiny_model(), Store.open(tmp_path))
    schema = parse_schema(
        '<schema name="s"><system>Be brief.</system><user>One<module name="m">two</module>three</user>'
        "<assistant>Fine.</assistant></schema>"
    ).tree
    prompt = parse_prompt("<prompt><m/><user>And now?</user></prompt>").tree
    plan = plan_of(engine, schema, prompt)
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
    plan = plan_of(engine, schema, prompt)
    text = engine.model.tokenizer.decode(plan.token_ids)
    assert text.startswith("<s><|user|>\nRead: two")
    assert text.endswith("What is it?</s>\n<|assistant|>\n")
    assert text.count("<|user|>") == 1


def test_without_a_template_turns_get_plain_headings() -> None:
    turns = ChatFormat(tokenizer(None)).render(["system", "user"], ["Be brief.", "Hi"])
    assert turns.opens == ("System: ", "User: ")
    assert turns.generation == "Assistant:"


def test_a_template_counts_the_same_wherever_it_is_kept(tmp_path: Path) -> None:
    template = TEMPLATES["phi-3"]
    want = ChatFormat(tokenizer(template)).turns(["system", "user"])
    folders = [tmp_path / name for name in ("file", "configuration", "several")]
    for folder in folders:
        tokenizer(None).save_pretrained(folder)
    (folders[0] / "chat_template.jinja").write_text(template, encoding="utf-8")
    settings = folders[1] / "tokenizer_config.json"
    told = {**json.loads(settings.read_text(encoding="utf-8")), "chat_template": template}
    settings.write_text(json.dumps(told), encoding="utf-8")
    (folders[2] / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folders[2] / "additional_chat_templates").mkdir()
    other = folders[2] / "additional_chat_templates" / "rag.jinja"
    other.write_text(CHATML, encoding="utf-8")
    for folder in folders:
        made = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        assert ChatFormat(made).turns(["system", "user"]) == want, folder.name
