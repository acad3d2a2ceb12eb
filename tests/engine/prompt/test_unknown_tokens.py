"""A tokenizer may have more tokens than its model: what holds none of the others is answered as ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.engine import Engine
from engine.pml import PromptError
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import Block
from tests.engine.tiny import CHATML, tiny_network

KNOWN = 259  # tokens, one for each byte and three more
SCHEMA = (
    '<schema name="s"><module name="a">A <param name="p" len="9"/> here.</module>'
    '<module name="odd">An <param name="p" len="4" scaffold="odd odd"/>.</module></schema>'
)
SETTINGS: dict[str, Any] = {"max_new_tokens": 2}


def saved(folder: Path, tokenizer: Any, rows: int = KNOWN) -> Path:
    """A model whose embedding has so many rows."""
    network = tiny_network()
    network.resize_token_embeddings(rows, mean_resizing=False)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_more(*tokens: str, special: bool = False, template: str = CHATML) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([*tokens], special_tokens=special)
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("odd")
    with Engine.open(saved(folder / "m", with_more("odd", "even")), cache_dir=folder / "store") as opened:
        yield opened


@pytest.mark.parametrize(
    "prompt",
    [
        "<prompt>How odd.</prompt>",
        '<prompt><a p="odd"/> Well?</prompt>',
        "<prompt><odd/> Well?</prompt>",  # what stands for its argument while it is encoded
        "<prompt><user>odd</user></prompt>",
    ],
)
def test_a_prompt_with_such_a_token_is_refused_before_anything_is_computed(
    prompt: str, engine: Engine
) -> None:
    asked = engine.schema(SCHEMA).prompt(prompt)
    for ask in (asked.answer, asked.encode, asked.plan, asked.passages, asked.fidelity):
        with pytest.raises(PromptError, match=r"E509 .* does not know.*: 'odd' \(259\)"):
            ask()
    assert [one.code for one in asked.check() if one.severity == "error"] == ["E509"]


def test_a_prompt_without_one_is_answered_over_the_same_schema(engine: Engine) -> None:
    answer = engine.schema(SCHEMA).prompt('<prompt><a p="one"/> Well?</prompt>').answer(**SETTINGS)
    assert len(answer.token_ids) == 2


def test_a_schema_with_one_is_checked_and_not_encoded(engine: Engine) -> None:
    schema = engine.schema(
        '<schema name="s">Even.<module name="a">even</module><module name="b">odd</module></schema>'
    )
    found = schema.check()
    assert [one.code for one in found] == ["E509", "E509"]
    assert "module 'a' has tokens" in found[0].message
    assert "'even' (260)" in found[0].message
    with pytest.raises(PromptError, match="E509"):
        schema.encode()
    assert schema.prompt("<prompt>Well?</prompt>").answer(**SETTINGS).text is not None


def test_a_conversation_with_one_is_refused(engine: Engine) -> None:
    engine.conversation([Message("user", (Block("Well?"),))]).answer(**SETTINGS)
    with pytest.raises(PromptError, match="E509"):
        engine.conversation([Message("user", (Block("How odd"),))]).answer(**SETTINGS)


def test_the_model_says_what_its_tokenizer_has_more(engine: Engine) -> None:
    (note,) = engine.model.notes
    assert "259 rows: 'odd' (259), 'even' (260)" in note


def test_a_token_that_the_chat_template_writes_is_refused_where_it_writes_it(tmp_path: Path) -> None:
    tokenizer = with_more("<|user|>", special=True)
    with Engine.open(saved(tmp_path / "m", tokenizer), cache_dir=tmp_path / "store") as engine:
        schema = engine.schema('<schema name="s"><module name="a">one</module></schema>')
        assert schema.prompt("<prompt><a/></prompt>").answer(**SETTINGS).token_ids
        with pytest.raises(PromptError, match=r"E509.*'<\|user\|>' \(259\)"):
            schema.prompt("<prompt><user>Well?</user></prompt>").answer()


def test_a_token_that_begins_every_text_is_refused(tmp_path: Path) -> None:
    tokenizer = with_more("<|begin|>", special=True)
    tokenizer.bos_token = "<|begin|>"
    with Engine.open(saved(tmp_path / "m", tokenizer), cache_dir=tmp_path / "store") as engine:
        prompt = engine.schema("<schema name='s'/>").prompt("<prompt><user>Well?</user></prompt>")
        with pytest.raises(PromptError, match=r"E509.*'<\|begin\|>'"):
            prompt.answer()


def test_what_stands_in_for_an_argument_is_a_token_that_the_model_knows(tmp_path: Path) -> None:
    tokenizer = with_more("<|pad|>", "<|unk|>", special=True)
    tokenizer.pad_token, tokenizer.unk_token = "<|pad|>", "<|unk|>"
    with Engine.open(saved(tmp_path / "m", tokenizer), cache_dir=tmp_path / "store") as engine:
        assert engine.model.stand_in == 1, "the end of an answer"
        schema = engine.schema(
            '<schema name="s"><module name="a">A <param name="p" len="9"/>.</module></schema>'
        )
        assert schema.encode().encoded
        assert schema.prompt('<prompt><a p="x"/></prompt>').answer(**SETTINGS).token_ids


@pytest.mark.parametrize(("ends", "notes"), [(999, 1), ([999, 1000], 1), ([1, 999], 0), (-1, 0)])
def test_an_end_that_no_answer_can_have_is_said(ends: object, notes: int, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = None
    folder = saved(tmp_path / "m", tokenizer)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": ends}))
    with Engine.open(folder, cache_dir=tmp_path / "store") as engine:
        assert [("999" in one, "eos_token_id" in one) for one in engine.model.notes] == [(True, True)] * notes
        prompt = engine.schema("<schema name='s'/>").prompt("<prompt>Well?</prompt>")
        assert prompt.answer(**SETTINGS).token_ids


@pytest.mark.parametrize("rows", [KNOWN + 2, 320, 512])
def test_an_embedding_with_rows_to_spare_knows_every_token(rows: int, tmp_path: Path) -> None:
    with Engine.open(
        saved(tmp_path / "m", with_more("odd", "even"), rows), cache_dir=tmp_path / "store"
    ) as engine:
        assert engine.model.notes == ()
        prompt = engine.schema(SCHEMA).prompt('<prompt><a p="odd"/> even</prompt>')
        assert not [one for one in prompt.check() if one.severity == "error"]
        assert prompt.answer(**SETTINGS).token_ids
