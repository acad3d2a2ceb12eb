"""A text or a Markdown file as a schema: its sections as modules, which together say the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.exchange import ExchangeError, import_from
from engine.exchange.folder.from_text import from_text
from engine.exchange.folder.sections import Split
from engine.pml import Text, bind, parse_schema
from engine.pml.edit.writer import write_schema
from engine.pml.tree.conversation import conversation

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
    assert [note.startswith("{question} is plain text") for note in found.notes] == [True]
    assert said("Answer briefly.\r\n") == "Answer briefly."


def test_marks_of_a_template_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "ask.md").write_text("Hello {{ name }}", encoding="utf-8")
    with pytest.raises(ExchangeError, match="--from jinja, or --from text"):
        import_from(tmp_path / "ask.md")
    assert import_from(tmp_path / "ask.md", "jinja").schema.modules()[0].params()
    assert said("Hello {{ name }}") == "Hello {{ name }}"


def test_what_no_document_may_hold_is_refused() -> None:
    with pytest.raises(ExchangeError, match="the text contains"):
        from_text("a\x00b", "s")


@pytest.mark.parametrize("kind", [None, "text"])
def test_json_that_is_no_conversation_may_be_a_text(tmp_path: Path, kind: str | None) -> None:
    (tmp_path / "ask.txt").write_text('{"role": "clerk", "tone": "kind"}\n', encoding="utf-8")
    if kind:
        assert [one.path for one in import_from(tmp_path / "ask.txt", kind).schema.modules()] == ["ask"]
        return
    with pytest.raises(ExchangeError, match=r"read as messages; add --from text to import it as text$"):
        import_from(tmp_path / "ask.txt")
    (tmp_path / "ask.json").write_text('{"role": "clerk"}', encoding="utf-8")
    with pytest.raises(ExchangeError) as of_json:
        import_from(tmp_path / "ask.json")
    assert "--from text" not in str(of_json.value)


LONG_LINE = "Words about it. " * 8


@pytest.mark.parametrize("blank", ["\n", "    \n", "\t\n \n", ""])
def test_a_heading_is_no_code_for_the_lines_before_it(blank: str) -> None:
    content = f"# A\n\n{LONG_LINE}x\n{blank}## B\n\n{LONG_LINE}x"
    assert said(content) == f"# A\n\n{LONG_LINE}x\n{blank and chr(10)}## B\n\n{LONG_LINE}x"


def test_blank_lines_at_the_ends_go_and_indentation_stays() -> None:
    assert said("  \n\n    code\n\ttext  \n \n  ") == "    code\n\ttext  "


def sections(content: str) -> list[str]:
    return [one.path for one in from_text(content, "s").schema.modules()]


@pytest.mark.parametrize(
    "block",
    [
        "<!-- {}\n-->",
        "  <!--\n{}\n\nend --> behind",
        "<pre>\n{}\n</pre>",
        '<PRE class="a">\n{}\n\nmore</Pre>',
        "<script>\n{}\n</script>",
        "~~~\n{}\n~~~",
    ],
)
def test_no_cut_where_no_heading_is(block: str) -> None:
    inner = f"\n## Inner\n\n{LONG_LINE}\n\nUnder\n=====\n\n{LONG_LINE}\n"
    content = f"# A\n\n{LONG_LINE}\n\n{block.format(inner)}\n\n{LONG_LINE}\n\n# B\n\n{LONG_LINE}"
    assert sections(content) == ["A", "B"]
    assert said(content) == content


@pytest.mark.parametrize(
    "begins", ["`<!--` begins a comment.", "<!-- one line -->", "<pre>one line</pre>", "<prep>"]
)
def test_what_hides_nothing_hides_no_heading(begins: str) -> None:
    assert sections(f"# A\n\n{LONG_LINE}\n{begins}\n# B\n\n{LONG_LINE}") == ["A", "B"]


@pytest.mark.parametrize("end", ["---", "..."])
def test_front_matter_is_no_section_but_stays(end: str) -> None:
    front = f"---\n# {LONG_LINE}\ntitle: Tone\n\n# {LONG_LINE}\nlayout: page of the agency\n{end}\n"
    content = f"{front}\n# A\n\n{LONG_LINE}\n\n---\n\n# B\n\n{LONG_LINE}"
    assert sections(content)[1:] == ["A", "B"]
    assert said(content) == content
    ruled = f"---\n\n# A\n\n{LONG_LINE}\n\n# B\n\n{LONG_LINE}\n\n---\n"
    assert sections(ruled) == ["A", "B"]


LINES = st.sampled_from(
    [
        *("# One", "## Two", "words " * 20, "more words " * 9 + "  ", "Title", "=====", "| a | b |"),
        *("", "    ", "\t", "- item", "    code", "```", "<!--", "-->", "<pre>", "</pre>", "---"),
    ]
)


def as_sections(content: str) -> str:
    """What the sections of a text say: to the character, with at most one blank line between two."""
    found, at = "", 0
    for one in from_text(content, "s").schema.modules():
        own = "".join(child.text for child in one.children if isinstance(child, Text) and not child.seam)
        start = content.index(own, at)
        between = content[at:start]
        assert not between.strip()
        assert between.endswith("\n") if between else not at
        found += ("\n\n" if between.count("\n") > 1 else "\n" if found else "") + own if found else own
        at = start + len(own)
    assert not content[at:].strip()
    assert content[at:].startswith("\n") or at == len(content)
    return found


@given(st.lists(LINES, min_size=1, max_size=30))
def test_all_sections_together_say_the_text(lines: list[str]) -> None:
    content = "\n".join(lines)
    if content.strip():
        assert said(content) == as_sections(content)


@given(st.lists(LINES, min_size=1, max_size=30))
def test_a_text_cut_by_tokens_is_kept_to_the_character(lines: list[str]) -> None:
    content = "\n".join(lines)
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    if lines:
        assert said(content, Split(16, lambda text: len(text.split()))) == "\n".join(lines)
