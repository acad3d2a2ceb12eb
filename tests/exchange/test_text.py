"""A text or a Markdown file as a schema: its sections as modules, which together say the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.exchange import ExchangeError, import_from
from engine.exchange.from_text import from_text
from engine.exchange.sections import Split
from engine.pml import bind, parse_schema
from engine.pml.conversation import conversation
from engine.pml.writer import write_schema

PROMPT = """You are the assistant of a small travel agency. You answer letters of its customers.

# Tone
Be kind, be brief, and never promise what the agency cannot keep; nobody may be told of prices of last year.

## Letters
- Answer in the language of the letter.
- Sign with the name of the agency.
- Say "you" and never "one".

# Tone
Never laugh in a letter. Customers who laugh write back, and customers who write back want an answer again.
"""


def said(content: str, split: Split | None = None) -> str:
    found = from_text(content, "s", split)
    assert found.prompt is not None
    assert parse_schema(write_schema(found.schema)).tree == found.schema
    return "".join(turn.text for turn in conversation(bind(found.schema, found.prompt).parts))


def test_each_section_is_a_module(tmp_path: Path) -> None:
    (tmp_path / "agency.md").write_text(PROMPT, encoding="utf-8")
    found = import_from(tmp_path / "agency.md")
    assert [module.path for module in found.schema.modules()] == ["you-are-the", "Tone", "Letters", "Tone-2"]
    assert found.schema.name == "agency"
    assert found.notes == ()
    assert said(PROMPT) == PROMPT.strip()


def test_a_short_text_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "ask.txt").write_text("Answer {question} briefly.\n", encoding="utf-8")
    found = import_from(tmp_path / "ask.txt")
    assert [module.path for module in found.schema.modules()] == ["ask"]
    assert [note.startswith("{question} stands as text") for note in found.notes] == [True]
    assert said("Answer briefly.\r\n") == "Answer briefly."


def test_marks_of_a_template_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "ask.md").write_text("Hello {{ name }}", encoding="utf-8")
    with pytest.raises(ExchangeError, match="--from jinja, or --from text"):
        import_from(tmp_path / "ask.md")
    assert import_from(tmp_path / "ask.md", "jinja").schema.modules()[0].params()
    assert said("Hello {{ name }}") == "Hello {{ name }}"


def test_what_no_document_may_hold_is_refused() -> None:
    with pytest.raises(ExchangeError, match="the text holds"):
        from_text("a\x00b", "s")


LINES = st.sampled_from(
    ["# One", "## Two", "words " * 20, "more words " * 9, "", "- item", "```", "Title", "=====", "| a | b |"]
)


@given(st.lists(LINES, min_size=1, max_size=30))
def test_all_sections_together_say_the_text(lines: list[str]) -> None:
    content = "\n".join(lines)
    if content.strip():
        assert said(content).split() == content.split()


@given(st.lists(LINES, min_size=1, max_size=30))
def test_a_text_cut_by_tokens_is_kept_to_the_character(lines: list[str]) -> None:
    content = "\n".join(lines)
    if content.strip():
        assert said(content, Split(16, lambda text: len(text.split()))) == content.strip("\n")
