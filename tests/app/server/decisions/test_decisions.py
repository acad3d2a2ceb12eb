"""OpenAI's own client asks questions about an input."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest

from app.server.core.service import Limits
from engine.decisions.questions import choice as asked_choice
from engine.inference.run_settings import RunSettings
from engine.prepared import PreparedPrompt
from tests.app.server.served import LONG, Served
from tests.engine.decisions.test_decide import one_by_one, workshop_of

QUESTIONS: list[dict[str, Any]] = [
    {"type": "predicate", "name": "cold", "instructions": "It is cold."},
    {
        "type": "choice",
        "instructions": [
            {"type": "input_text", "text": "Which month is it?"},
            {"type": "input_json", "data": {"calendar": "Gregorian"}},
        ],
        "choices": [{"value": "April", "description": "the fourth"}, {"value": "May"}, {"value": True}],
    },
    {
        "type": "score",
        "name": "bright",
        "instructions": "How bright is it?",
        "levels": [{"label": "dark"}, {"label": "grey", "description": "some light"}, {"label": "bright"}],
    },
]


def blocks(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}]


def test_each_kind_of_question_gets_its_answer(server: Served) -> None:
    told = server.openai().decisions.create(model="alias", input=LONG, questions=QUESTIONS)
    cold, month, bright = told.answers
    assert told.model == "alias"
    assert (cold.type, cold.name) == ("predicate", "cold")
    assert 0 < cold.probability < 1
    assert (month.type, month.name) == ("choice", None)
    assert [one.value for one in month.probabilities] == ["April", "May", True]
    best = max(month.probabilities, key=lambda one: one.probability)
    assert (month.choice, month.confidence) == (best.value, best.probability)
    levels = [(one.label, one.value) for one in bright.probabilities]
    assert levels == [("dark", 0), ("grey", 1), ("bright", 2)]
    assert bright.score == pytest.approx(sum(one.value * one.probability for one in bright.probabilities))
    for answer in (month, bright):
        assert sum(one.probability for one in answer.probabilities) == pytest.approx(1)
    assert told.usage.output_tokens == 0
    assert told.usage.total_tokens == told.usage.input_tokens


def test_a_state_is_read_again_in_any_order(server: Served) -> None:
    client, (first, second) = server.openai(), (f"A first state. {LONG}", f"Another. {LONG}")
    ask = {"model": server.model, "questions": QUESTIONS[:1]}
    cold = client.decisions.create(input=blocks(first, second), **ask).usage
    warm = client.decisions.create(input=blocks(second, first), **ask).usage
    assert cold.input_tokens_details.cached_tokens == 0
    assert cold.input_tokens_details.cache_write_tokens >= len(first + second)  # a token for each byte
    assert warm.input_tokens_details.cached_tokens == cold.input_tokens_details.cache_write_tokens
    assert warm.input_tokens_details.cache_write_tokens == 0


def predicate(**changes: Any) -> dict[str, Any]:
    return {"type": "predicate", "instructions": "It is so.", **changes}


def choice(*values: Any) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "choices": [{"value": value} for value in values]}


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,x"}


@pytest.mark.parametrize(
    ("changes", "param", "says"),
    [
        ({"questions": []}, "questions", "0 questions"),
        ({"questions": [predicate()] * 401}, "questions", "401 questions"),
        ({"questions": [predicate(), predicate(instructions=" ")]}, "questions[1]", "no instructions"),
        (
            {"questions": [{"instructions": "Is it?"}]},
            "questions[0].type",
            "type is missing; it must be 'predicate' or",
        ),
        ({"questions": [predicate(type="guess")]}, "questions[0].type", "it must be 'predicate' or 'choice'"),
        (
            {"questions": [predicate(instructions=[IMAGE])]},
            "questions[0].instructions[0].type",
            "input_image",
        ),
        ({"questions": [choice("a")]}, "questions[0].choices", "1 option;"),
        ({"questions": [choice("a", " ")]}, "questions[0].choices", "without text"),
        ({"questions": [choice("a", "a ")]}, "questions[0].choices", "'a' twice"),
        ({"questions": [choice(*map(str, range(256)))]}, "questions[0].choices", "256 options"),
        ({"questions": [choice("a", 5)]}, "questions[0].choices[1].value", "must be a text or true or false"),
        ({"input": ""}, "input", "no text"),
        ({"input": []}, "input", "no text"),
        ({"input": blocks("a" * 5000)}, "input", "prompt is too long"),
        (
            {"questions": [predicate(), choice("a", "b" * 5000)]},
            "questions[1]",
            r"questions\[1\] is too long: \d+ tokens with the prompt > ",
        ),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input[0].content[0].type", "input_image"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_json", "data": 5}]}]},
            "input[0].content[0].data",
            "an object or a list",
        ),
        ({"extra_body": {"stream": True}}, "stream", "sent at once"),
        ({"extra_body": {"temperature": 2}}, "temperature", "readout.temperature"),
        ({"extra_body": {"readout": {"temperature": 1e-308}}}, "readout.temperature", "at least 0.01 and at"),
        ({"extra_body": {"readout": {"temperature": 101}}}, "readout.temperature", "at most 100"),
        ({"extra_body": {"readout": {"permutations": 65}}}, "readout.permutations", "at most 64"),
    ],
)
def test_a_bad_request_says_where_and_why(server: Served, changes: Any, param: str, says: str) -> None:
    ask = {"model": "alias", "input": "Hello", "questions": [predicate()], **changes}
    with pytest.raises(openai.BadRequestError, match=says) as caught:
        server.openai().decisions.create(**ask)
    assert caught.value.param == param


def test_a_conversation_with_json_and_equal_values_is_read(server: Served) -> None:
    conversation = [
        {"role": "developer", "content": "You triage."},
        {"role": "user", "content": [{"type": "input_json", "data": {"order": 5, "state": "zerbrochen ü"}}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Sorry."}], "phase": "commentary"},
    ]
    questions = [choice("true", True), choice(False, "no"), predicate(name="x"), predicate(name="x")]
    told = server.openai().decisions.create(model="alias", input=conversation, questions=questions)
    assert [one.value for one in told.answers[0].probabilities] == ["true", True]
    assert [one.name for one in told.answers] == [None, None, "x", "x"]
    assert told.usage.input_tokens_details.cache_write_tokens > 30


def test_the_readout_can_be_set(server: Served) -> None:
    ask = {"model": "alias", "input": "Hello", "questions": [choice("alpha", "be"), predicate()]}
    flat = {"permutations": 2, "calibrate": True, "per_token": True, "temperature": 100.0}
    told = server.openai().decisions.create(**ask, extra_body={"readout": flat})
    assert told.answers[0].confidence == pytest.approx(0.5, abs=0.02)
    assert told.answers[1].probability == pytest.approx(0.5, abs=0.02)


def test_an_unknown_model_and_a_full_server_are_errors_of_the_api(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = {"input": "Hello", "questions": [predicate()]}
    with pytest.raises(openai.NotFoundError) as unknown:
        server.openai().decisions.create(model="other", **ask)
    assert unknown.value.code == "model_not_found"
    monkeypatch.setattr(server.service, "limits", Limits(parallel=0, waiting=0))
    with pytest.raises(openai.RateLimitError):
        server.openai().decisions.create(model="alias", **ask)


def test_a_salt_shares_nothing_and_the_metrics_count_the_request(server: Served) -> None:
    client, text = server.openai(), f"Salted. {LONG}"
    ask = {"model": "alias", "input": text, "questions": [predicate()]}
    salted = [client.decisions.create(**ask, extra_body={"cache_salt": salt}).usage for salt in "aba"]
    assert [one.input_tokens_details.cached_tokens > 0 for one in salted] == [False, False, True]
    latest = server.service.figures.recent[-1]
    assert (latest.path, latest.outcome, latest.model) == ("/v1/decisions", "done", "alias")
    assert latest.usage is not None
    assert latest.usage.read == salted[-1].input_tokens_details.cached_tokens
    assert server.service.inside == 0


@pytest.mark.parametrize("assistant", [(), ("assistant",), ("assistant", "user")])
def test_calibration_removes_the_whole_input(server: Served, assistant: tuple[str, ...]) -> None:
    turns = [{"role": role, "content": f"Turn of {role}. {LONG}"} for role in ("user", *assistant)]
    ask = {"model": "alias", "input": turns, "questions": [choice("alpha", "beta")]}
    engine = server.service.engine
    some = engine.schema('<schema name="e"></schema>').prompt("<prompt>x</prompt>")
    nothing = PreparedPrompt(some.schema, some.tokenized.with_parts([]), 0.0, workshop_of(engine))
    question = asked_choice("Which?", ["alpha", "beta"])
    alone = one_by_one(engine, nothing, question, (0, 1), RunSettings(), "uncached")

    def odds(**more: Any) -> float:
        told = server.openai().decisions.create(**ask, **more).answers[0].probabilities
        return math.log(told[0].probability / told[1].probability)

    calibrated = odds(extra_body={"readout": {"calibrate": True}})
    assert calibrated == pytest.approx(odds() - (alone[0] - alone[1]), abs=2e-3)
