"""Runs, their contexts and their positions, spelled out for one schema."""

from __future__ import annotations

from engine.pml import parse_schema
from engine.prompt.layout import SchemaLayout, lay_out
from engine.prompt.template.chat_template import ChatFormat
from tests.engine.prompt.chat_templates import FAMILIES, tokenizer
from tests.engine.tiny import tiny_model

SCHEMA = """<schema name="s">Zero
  <module name="a">A1
    <union><module name="x">X</module><module name="y">YYYY</module></union>
    A2
    <module name="z" cache="false">Z<module name="w">W</module></module>
  </module>
  one
  <module name="b">B <param name="p" len="3"/> b</module>
  two
</schema>"""


def layout(source: str = SCHEMA) -> tuple[SchemaLayout, dict[str, int]]:
    """The layout, and each run's index by its text."""
    model = tiny_model(chat=False)
    model.chat.bos = None
    parsed = parse_schema(source)
    assert parsed.ok
    made = lay_out(parsed.tree, model.chat, model.stand_in)
    texts = (model.tokenizer.decode(run.token_ids).strip() or f"seam of {run.path}" for run in made.runs)
    return made, {text: run.index for text, run in zip(texts, made.runs, strict=True)}


def contexts(made: SchemaLayout, names: dict[str, int], scope) -> dict[str, list[str]]:
    name_of = {index: name for name, index in names.items()}
    return {
        name: [name_of[run.index] for run in made.context(made.runs[index], scope)]
        for name, index in names.items()
    }


def test_an_anchored_run_sees_what_is_always_before_it() -> None:
    made, names = layout()
    assert contexts(made, names, "anchored") == {
        "Zero": [],
        "A1": ["Zero"],
        "X": ["Zero", "A1"],
        "YYYY": ["Zero", "A1"],
        "A2": ["Zero", "A1"],
        "Z": ["Zero", "A1", "A2"],
        "W": ["Zero", "A1", "A2"],
        "seam of a/z": ["Zero", "A1", "A2"],
        "seam of a": ["Zero", "A1", "A2"],
        "one": ["Zero"],
        "B <unk><unk><unk> b": ["Zero", "one"],
        "two": ["Zero", "one"],
    }


def test_an_isolated_run_sees_its_own_module_only() -> None:
    made, names = layout()
    seen = contexts(made, names, "isolated")
    assert {name: before for name, before in seen.items() if before} == {
        "A2": ["A1"],
        "seam of a": ["A1", "A2"],
        "one": ["Zero"],
        "two": ["Zero", "one"],
    }


def test_what_is_not_to_be_cached_is_not_cacheable() -> None:
    made, names = layout()
    computed = [name for name, index in names.items() if not made.runs[index].cacheable]
    assert computed == ["Z", "W", "seam of a/z"]


def test_members_of_a_union_share_their_start_and_the_longest_counts() -> None:
    made, _ = layout()
    modules = {module.path: module for module in made.modules}
    assert modules["a/x"].start == modules["a/y"].start
    total = sum(run.tokens for run in made.runs)
    assert made.total_positions == total - modules["a/x"].tokens
    assert modules["b"].params == {"p": 3}
    assert modules["a/z"].start == modules["a/y"].start + modules["a/y"].tokens + len("A2\n")


def test_a_text_without_modules_begins_as_the_tokenizer_says() -> None:
    chat = ChatFormat(tokenizer(FAMILIES["olmo-2"]))  # its tokenizer adds no token; its template does
    assert chat.begins(parse_schema('<schema name="s">text</schema>').tree) == chat.bos
    assert chat.bos is not None
    assert chat.begins(parse_schema('<schema name="s"/>').tree) is None
