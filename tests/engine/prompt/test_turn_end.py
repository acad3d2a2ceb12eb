"""An answer ends where the chat template ends the assistant's turn, whatever token ends a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.engine import Engine
from engine.inference.sampler import Sampler
from engine.model.model import Model
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import Block
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.turn_end import turn_end
from engine.store import Store
from tests.engine.prompt.chat_templates import FAMILIES, Family, tokenizer
from tests.engine.tiny import tiny_network

ENDS = {
    "chatml": "<|im_end|>",
    "qwen-3": "<|im_end|>",
    "llama-2": "</s>",
    "llama-3.1": "<|eot_id|>",
    "gemma-3": "<end_of_turn>",
    "phi-3": "<|end|>",
    "deepseek-r1": "<|end|>",
    "command-r": "<|END_OF_TURN_TOKEN|>",
    "glm-4": "<|user|>",
    "solar": None,  # no special token there
    "gpt-oss": None,  # an answer has several messages that end with it
}
THOUGHTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ('<think></think>' if m.role == 'assistant' else '')"
    " + m.content + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant' + INVITED }}{% endif %}"
)
SPECIALS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")


@pytest.mark.parametrize("name", ENDS)
def test_the_template_says_which_token_follows_an_answer(name: str) -> None:
    made = tokenizer(FAMILIES[name])
    found = turn_end(ChatFormat(made))
    assert (None if found is None else made.convert_ids_to_tokens(found)) == ENDS[name]


@pytest.mark.parametrize(("invited", "end"), [("''", None), ("'<think></think>'", "<|im_end|>")])
def test_an_answer_whose_parts_the_model_begins_may_have_several(invited: str, end: str | None) -> None:
    made = tokenizer(Family(THOUGHTS.replace("INVITED", invited), SPECIALS))
    found = turn_end(ChatFormat(made))
    assert (None if found is None else made.convert_ids_to_tokens(found)) == end


@pytest.mark.parametrize("template", [None, "{{ raise_exception('no') }}", "{{ messages[7].content }}"])
def test_what_says_nothing_of_an_end_has_none(template: str | None) -> None:
    made = tokenizer(FAMILIES["chatml"])
    made.chat_template = template
    assert turn_end(ChatFormat(made)) is None


@pytest.mark.parametrize("configured", [None, 2, [2]])
def test_an_answer_ends_at_the_end_of_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: int | list[int] | None
) -> None:
    """The end token of the files is that of documents, as in many models that others were trained on."""
    made, network = tokenizer(FAMILIES["chatml"]), tiny_network()
    network.resize_token_embeddings(len(made))
    network.generation_config.eos_token_id = configured
    end = made.convert_tokens_to_ids("<|im_end|>")
    said = made("Go<|im_end|>\n<|im_start|>user\nAnd then?</s>", add_special_tokens=False)["input_ids"]
    monkeypatch.setattr(Sampler, "choose", lambda *_: said.pop(0))
    with Engine(Model("m", network, made, "m"), Store.open(tmp_path)) as engine:
        assert end in engine.model.end_tokens
        assert made.eos_token_id in engine.model.end_tokens
        answer = engine.conversation([Message("user", (Block("Where?"),))]).answer(speculate="off")
    assert (answer.text, answer.stopped, answer.token_ids[-1]) == ("Go", "eos", end)
