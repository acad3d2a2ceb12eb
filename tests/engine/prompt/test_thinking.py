"""Reasoning before answers: what a template says of it, and the split of a text that comes in pieces."""

from __future__ import annotations

import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.thinking import Thinking, ThoughtSplitter, split


@pytest.mark.parametrize(
    ("text", "opened", "thought", "said"),
    [
        ("Fine.", False, "", "Fine."),
        ("<think>\nHm.\n</think>\n\nFine.", False, "Hm.", "Fine."),
        ("\n<think>Hm. \n\n So.</think>Fine.\n", False, "Hm. \n\n So.", "Fine.\n"),
        ("<think>\n\n</think>\n\nFine.", False, "", "Fine."),
        ("Hm.\n</think>\nFine.", True, "Hm.", "Fine."),
        ("Hm. a < b </thin", True, "Hm. a < b </thin", ""),
        ("<think>Hm.", False, "Hm.", ""),
        ("<thin", False, "", "<thin"),
        (" <b>Fine.</b> <think>x</think>", False, "", " <b>Fine.</b> <think>x</think>"),
        ("Hm.</think>A</think>B", True, "Hm.", "A</think>B"),
        ("  ", False, "", "  "),
    ],
)
def test_a_text_is_split_the_same_in_any_pieces(text: str, opened: bool, thought: str, said: str) -> None:
    assert split(text, opened=opened) == (thought, said)
    for size in (1, 2, 3, 5):
        splitter, found = ThoughtSplitter(opened=opened), ("", "")
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        for more in (*map(splitter.add, pieces), splitter.rest()):
            found = (found[0] + more[0], found[1] + more[1])
        assert found == (thought, said)


@pytest.mark.parametrize(
    ("template", "thinking"),
    [
        ("{{ messages }}", Thinking()),
        ("{% if enable_thinking is false %}<think></think>{% endif %}", Thinking(True, "enable_thinking")),
        ("{% if thinking is defined and thinking %}<think>{% endif %}", Thinking(True, "thinking")),
        ("{% for m in messages %}{{ m.thinking }}{% endfor %}", Thinking()),
        ("{% set thinking = true %}{{ 'thinking' if thinking }}", Thinking()),
        ("Reasoning: {{ reasoning_effort }}", Thinking(levels=True)),
        ("{{ m.content.split('</think>')[-1] }}<think>\n", Thinking(True)),
    ],
)
def test_a_template_tells_its_variables(template: str, thinking: Thinking) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    assert ChatFormat(tokenizer).thinking == thinking


def test_an_effort_is_what_the_template_has() -> None:
    assert Thinking(True, "enable_thinking").variables("none") == {"enable_thinking": False}
    assert Thinking(True, "enable_thinking").variables("low") == {"enable_thinking": True}
    assert Thinking(levels=True).variables("low") == {"reasoning_effort": "low"}
    both = Thinking(True, "enable_thinking", levels=True)
    assert both.variables("none") == {"enable_thinking": False}
    assert both.variables("high") == {"reasoning_effort": "high"}
    assert Thinking(True).variables("none") is None
