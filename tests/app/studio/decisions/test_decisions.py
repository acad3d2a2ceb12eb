"""The Decide tab's questions, as the page sends them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.app.studio.asked import Asked

SCHEMA = '<schema name="s"><user>Read. <module name="a">Alpha is red and round.</module></user></schema>'
PROMPT = '<prompt schema="s"><a/></prompt>'
OWN = '<prompt><a/><decide type="choice">Which?<option value="red"/><option value="blue"/></decide></prompt>'


@pytest.fixture
def studio(tmp_path: Path, tiny_model: Path) -> Iterator[Asked]:
    with Engine.open(tiny_model, device="cpu", cache_dir=tmp_path / "cache") as engine:
        yield Asked(tmp_path, engine=engine)


def question(kind: str, text: str, *options: str) -> dict[str, Any]:
    described = [{"label": label, "description": ""} for label in options]
    return {"kind": kind, "question": text, "options": described}


def decide(studio: Asked, *questions: dict[str, Any], prompt: str = PROMPT, **more: Any) -> Any:
    body = {"key": "1", "schema": SCHEMA, "prompt": prompt, "questions": list(questions), **more}
    return studio.ask("decide_prompt", body)


def test_both_sides_answer_each_question_with_time_and_tokens(studio: Asked) -> None:
    asked = [question("predicate", "Is it red?"), question("score", "How round?", "a bit", "very", "fully")]
    assert decide(studio, *asked)["job"]["key"] == "1"
    result = studio.ended("1")["result"]
    assert [one["question"] for one in result["questions"]] == ["Is it red?", "How round?"]
    assert [one["options"] for one in result["questions"]] == [["yes", "no"], ["a bit", "very", "fully"]]
    for one in result["questions"]:
        for side in ("cached", "uncached"):
            shares = one[side]["probabilities"]
            assert sum(shares) == pytest.approx(1)
            assert shares[one[side]["best"]] == max(shares)
    level = result["questions"][1]["cached"]
    assert level["expected"] == pytest.approx(level["probabilities"][1] + 2 * level["probabilities"][2])
    sides = result["sides"]
    assert result["encoded"] > 0
    assert sides["cached"]["from_cache"] > 0 == sides["uncached"]["from_cache"]
    assert 0 < sides["cached"]["computed"] < sides["uncached"]["computed"]
    assert sides["cached"]["ms"] > 0 < sides["uncached"]["ms"]
    texts = studio.ask("check", {"schema": SCHEMA, "prompt": PROMPT})["texts"]
    assert {kind: result["of"][kind] for kind in texts} == texts
    decide(studio, *asked, key="2")
    assert studio.ended("2")["result"]["encoded"] == 0


def test_the_questions_of_the_prompt_replace_those_of_the_form(studio: Asked) -> None:
    checked = studio.ask("check", {"schema": SCHEMA, "prompt": OWN})["prompt"]
    assert checked["decides"] == [question("choice", "Which?", "red", "blue")]
    assert studio.ask("check", {"schema": SCHEMA, "prompt": PROMPT})["prompt"]["decides"] == []
    decide(studio, question("predicate", ""), prompt=OWN)
    (one,) = studio.ended("1")["result"]["questions"]
    assert (one["question"], one["options"]) == ("Which?", ["red", "blue"])


def test_each_error_of_the_form_names_its_question_and_its_field(studio: Asked) -> None:
    fine = question("predicate", "Is it red?")
    wrong = [
        (question("predicate", " "), "question", "The question has no instructions"),
        (question("choice", "Which?", "a"), "options", "The question has 1 option; a choice needs 2 to 255."),
        (question("score", "How?", "a", " a"), "options", "The question has the option 'a' twice"),
        (question("choice", "Which?", *map(str, range(256))), "options", "The question has 256 options"),
        (question("choice", "Which?", "a", " "), "options", "The question has an option without text"),
    ]
    answer = decide(studio, fine, *(one for one, _, _ in wrong))
    assert answer["job"] is None
    for number, (fault, (_, field, words)) in enumerate(zip(answer["faults"], wrong, strict=True), 1):
        assert (fault["number"], fault["field"]) == (number, field)
        assert fault["message"].startswith(words)
    assert "ask 1 to 400 at once" in decide(studio)["error"]
    assert "E1" in decide(studio, fine, prompt="<prompt><")["error"]


def test_decisions_are_stopped_before_the_next_pass(studio: Asked) -> None:
    with studio.parts.engine.computing.step():  # the job waits
        decide(studio, question("predicate", "Is it red?"))
        studio.ask("stop_job", {"key": "1"})
    assert studio.ended("1")["fault"] == "Stopped."


def test_the_readout_of_the_settings_reads_the_probabilities(studio: Asked) -> None:
    asked = question("choice", "Which?", "red", "blue", "green")
    decide(studio, asked)
    plain = studio.ended("1")["result"]
    settings = {"decide_permutations": 6, "decide_temperature": 50.0}
    decide(studio, asked, key="2", settings=settings)
    read = studio.ended("2")["result"]
    assert {name: read["settings"][name] for name in settings} == settings
    (before,), (after,) = plain["questions"], read["questions"]
    assert max(after["cached"]["probabilities"]) < max(before["cached"]["probabilities"])
    assert 0 <= after["cached"]["order_flips"] <= 1
    assert before["cached"]["order_flips"] == 0
    wrong = decide(studio, asked, key="3", settings={"decide_permutations": 65})
    assert wrong["error"] == "Orders of options must be a whole number, at least 1 and at most 64."


def test_the_model_reads_the_descriptions_of_options(studio: Asked) -> None:
    plain = question("choice", "Which?", "red", "blue")
    described = {**plain, "options": [*plain["options"][:1], {"label": "blue", "description": "as the sea"}]}
    for key, one in (("1", plain), ("2", described)):
        decide(studio, one, key=key)
    first, second = (studio.ended(key)["result"] for key in "12")
    assert second["sides"]["cached"]["computed"] > first["sides"]["cached"]["computed"]
    assert second["questions"][0]["options"] == ["red", "blue"]


def test_half_a_character_is_a_replacement_character(studio: Asked) -> None:
    decide(studio, question("choice", "Which \ud800?", "a\ud800", "b"))
    (one,) = studio.ended("1")["result"]["questions"]
    assert (one["question"], one["options"]) == ("Which \ufffd?", ["a\ufffd", "b"])
