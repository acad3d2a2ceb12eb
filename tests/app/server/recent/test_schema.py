"""A schema of recorded requests: what is equal becomes modules, what differs parameters."""

from __future__ import annotations

import pytest

from app.server.recent.schema import alike, schema_of
from engine.base.errors import PromptCacheError
from tests.app.server.recent.test_reasons import LONG, OTHER, RULES, ask
from tests.app.server.served import Served

NOTES = f"Notes of the day.\n\n{LONG * 2}"


def test_equal_text_becomes_modules_and_short_differences_parameters(server: Served) -> None:
    for clock, question in (("10:41", "One?"), ("9:02 am", "Which two?"), ("11:30", "A third question?")):
        ask(server, f"Session {clock} begins. {RULES}", NOTES, OTHER, question)
    ask(server, "Something else.", "One?")
    ask(server, f"Session 12:00 begins. {RULES}", NOTES, OTHER, "And now?")
    records = alike(server.service.records.of(""))
    assert len(records) == 4, "the other request is left out"
    made = schema_of(records, lambda words: len(server.engine.model.tokenize(words)))
    schema = server.engine.schema(made.schema)
    system, *rest = schema.tree.modules()
    assert [(one.name, one.length) for one in system.params()] == [("session", 9)], "9:02 am has 7 bytes"
    assert [one.params() for one in rest] == [(), ()]
    assert made.notes == ()
    assert schema.check() == ()
    prompt = schema.prompt(made.prompt)
    written = "".join(passage.text for passage in prompt.passages())
    for text in (f"Session 12:00 begins. {RULES}", NOTES, OTHER, "And now?"):
        assert " ".join(text.split()) in " ".join(written.split())
    plan = prompt.tokenized.planned().plan
    assert plan.total_tokens - plan.cached_tokens < 60, "the template, the argument and the question"


def test_text_that_differs_too_much_stays_out_of_the_schema(server: Served) -> None:
    for text in (f"{OTHER} {LONG}", f"{LONG} Nothing alike at all. {NOTES}"):
        ask(server, f"Fixed. {RULES}", text, "One?")
    made = schema_of(alike(server.service.records.of("")), len)
    (only,) = server.engine.schema(made.schema).tree.modules()
    assert only.params() == ()
    assert "Nothing alike at all" in made.prompt


def test_nothing_recorded_is_said() -> None:
    with pytest.raises(PromptCacheError, match="No conversation is recorded"):
        alike([])
