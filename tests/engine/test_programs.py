"""Schemas that were never documents are laid out and answered like those that were."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from engine.engine import Engine
from engine.pml import parse_schema
from engine.pml.edit.formatter import format_source
from engine.pml.edit.writer import write_prompt
from engine.programs import Arg, schema
from engine.store import Store
from tests.engine.tiny import tiny_model
from tests.pml.documents import prompt_tree, schema_tree


@schema("trip")
def trip(p, days: Arg[8], city: Literal["tokyo", "rome"] | None = None, question: str = ""):
    """Plan well."""
    p.text("I leave for ", days, ".")
    if city == "tokyo":
        p.text("Tokyo is large.")
    else:
        p.text("It is small.")
    p.text(question, end="")


def test_a_program_is_answered_like_its_document(tmp_path: Path) -> None:
    engine = Engine(tiny_model(), Store.open(tmp_path))
    prompt = trip("3 days", city="tokyo", question="Why?")
    document = schema_tree(trip.source())
    written = prompt_tree(write_prompt(prompt))
    prepared = [engine.schema(trip.schema()).prompt(prompt), engine.schema(document).prompt(written)]
    tokens = [one.tokenized.planned().plan.token_ids for one in prepared]
    assert tokens[0] == tokens[1]
    answers = [one.answer(max_new_tokens=4) for one in prepared]
    assert answers[0].token_ids == answers[1].token_ids
    assert {use.outcome for use in answers[1].segments} == {"hit"}
    spelled = engine.model.tokenizer.decode(tokens[0])
    for message in trip.messages("3 days", city="tokyo", question="Why?"):
        assert message.text in spelled


def test_formatting_changes_no_token(tmp_path: Path) -> None:
    engine = Engine(tiny_model(), Store.open(tmp_path))
    for path in sorted((Path(__file__).parents[2] / "sample_schemas").glob("*.pml")):
        source = path.read_text(encoding="utf-8")
        if "<schema" not in source:
            continue
        loose = re.sub(r"""(\w)="([^"'<>]*)">""", r"\1 = '\2' >", source).replace("\n  <", "\n\t  <")
        assert format_source(loose) != loose
        trees = [parse_schema(text, base=path.parent).tree for text in (loose, format_source(loose))]
        runs = []
        for tree in trees:
            assert tree is not None
            runs.append([run.token_ids for run in engine.schema(tree).tokenized.layout.runs])
        assert runs[0] == runs[1], path
