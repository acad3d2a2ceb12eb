"""What does not have the form of its field is told in our own words: what, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.server.anthropic.messages import CountBody, MessagesBody
from app.server.decisions.decisions import DecisionBody
from app.server.decisions.system_one import SystemOneBody
from app.server.http.errors import ApiError
from app.server.http.validation_errors import UNNAMED, misfit
from app.server.openai.chat import ChatBody
from app.server.openai.completions import CompletionBody
from app.server.openai.embeddings import EmbeddingBody
from app.server.openai.responses import ResponsesBody
from app.server.schemas import PutBody, TermsBody
from tests.app.server.served import Served
from tests.fuzz_server import FOREIGN_WORDS

SAID = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
WHOLE: dict[type[BaseModel], dict[str, Any]] = {
    ChatBody: {
        "model": "m",
        "messages": [*SAID, {"role": "assistant", "tool_calls": [{}]}],
        "stream_options": {},
        "prompt_cache_options": {},
    },
    CompletionBody: {"model": "m", "prompt": ["Hello"], "stream_options": {}},
    EmbeddingBody: {"model": "m", "input": [[5, 6], [7]], "encoding_format": "float"},
    ResponsesBody: {"model": "m", "input": SAID, "prompt_cache_options": {}},
    CountBody: {"model": "m", "messages": SAID, "system": [{"type": "text", "cache_control": {}}]},
    MessagesBody: {"model": "m", "messages": SAID, "max_tokens": 1, "diagnostics": {}},
    DecisionBody: {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        "questions": [
            {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": True}]}
        ],
        "readout": {},
    },
    SystemOneBody: {
        "model": "m",
        "state": "Hello",
        "questions": {"a": {"type": "score", "criteria": ["low"]}},
    },
    TermsBody: {},
    PutBody: {"pml": "x"},
}
"""Each body, with one of each object that it holds."""
OVER = {"schema": "x", "prompt": "y", "scope": "anchored"}
WRONG: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    10**999,
    "",
    "x" * 9999,
    [],
    [0],
    [[]],
    {},
    {"a": 0},
    {"str": 0},
)


def bodies() -> Iterator[tuple[type[BaseModel], dict[str, Any]]]:
    """Every body, with one thing wrong in it: each field, however deep, with each wrong value, and lost."""
    for kind, whole in WHOLE.items():
        if kind not in (TermsBody, PutBody):
            whole = {**whole, "prompt_cache": OVER}
        fields = {one.alias or name for name, one in kind.model_fields.items()}
        for name in sorted(fields):
            for value in (*WRONG, [*WRONG], *spoilt(whole.get(name))):
                yield kind, {**whole, name: value}
            yield kind, {key: value for key, value in whole.items() if key != name}


def spoilt(value: Any) -> Iterator[Any]:
    """A value with one thing wrong within it."""
    if isinstance(value, dict):
        for name, inner in [*value.items(), ("unknown", None), ("cache_control", None), ("module", None)]:
            for wrong in (*WRONG, *spoilt(inner)):
                yield {**value, name: wrong}
            yield {key: one for key, one in value.items() if key != name}
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            for wrong in (*WRONG, *spoilt(inner)):
                yield [*value[:number], wrong, *value[number + 1 :]]


def told(kind: type[BaseModel], body: dict[str, Any]) -> ApiError | None:
    """What is told of a body; None where nothing is wrong with it."""
    try:
        kind.model_validate(body)
    except ValidationError as error:
        return misfit(error.errors(), body)
    return None


def test_every_wrong_value_is_told_in_our_own_words_and_by_its_place() -> None:
    found = {}
    for kind, body in bodies():
        if (error := told(kind, body)) is None:
            continue
        assert not re.search(FOREIGN_WORDS, error.message), error.message
        assert UNNAMED not in error.message, error.message
        assert error.param, error.message
        assert error.message.startswith(f"{error.param} "), error.message
        assert len(error.message) < 300
        found[kind, error.param] = error.message
    assert len(found) > 100
    assert {kind for kind, _ in found} == set(WHOLE)


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        (ChatBody, {"messages": 5}, "messages must be a list, not 5."),
        (ChatBody, {"model": None}, "model must be a text, not null."),
        (ChatBody, {"max_tokens": "5"}, "max_tokens must be a whole number, not the text '5'."),
        (ChatBody, {"stop": {"a": 1}}, "stop must be a text or a list, not an object."),
        (
            ChatBody,
            {"messages": [{"role": "user", "content": [7]}]},
            "messages[0].content[0] must be an object, not ",
        ),
        (
            ChatBody,
            {"messages": [{"role": "user", "content": {"str": 7}}]},
            "messages[0].content must be a text or a list, not an object.",
        ),
        (ChatBody, {"messages": [{"content": "x"}]}, "messages[0].role is missing. Send it."),
        (
            ChatBody,
            {"prompt_cache_retention": "7d"},
            "prompt_cache_retention must be 'in_memory', 'in-memory' or '24h', not the text '7d'.",
        ),
        (
            ChatBody,
            {"prompt_cache": {"schema": "x", "promt": "y"}},
            "prompt_cache.promt is not a known field; the fields are schema, prompt and scope.",
        ),
        (
            ChatBody,
            {"prompt_cache": {"schema": ""}},
            "prompt_cache.schema must be a text of at least 1 character, not ",
        ),
        (MessagesBody, {"max_tokens": -1}, "max_tokens must be at least 0, not -1."),
        (PutBody, {"ttl": [1]}, "ttl must be a text or a number, not a list."),
        (
            PutBody,
            {"pined": True},
            "pined is not a known field; the fields are ttl, expires_at, pinned, pml and ",
        ),
    ],
)
def test_what_is_told_of_a_wrong_value(kind: type[BaseModel], changes: dict[str, Any], sentence: str) -> None:
    error = told(kind, {**WHOLE[kind], **changes})
    assert error is not None
    assert error.message.startswith(sentence)


def test_the_name_stands_once_in_each_dialect() -> None:
    error = told(MessagesBody, {**WHOLE[MessagesBody], "messages": [{"role": "user", "content": 5}]})
    assert error is not None
    theirs = "It must be a text or a list, not 5."
    assert error.in_openai().error.message == f"messages[0].content {theirs[3:]}"
    assert error.in_anthropic("").error.message == f"messages.0.content: {theirs}"


def test_a_fault_that_nobody_thought_of_is_told_in_our_own_words() -> None:
    error = misfit([{"type": "new", "loc": ("body", "a"), "msg": "Input should be x", "input": 5}], {"a": 5})
    assert (error.message, error.param) == (f"a {UNNAMED}, not 5.", "a")


def test_parameters_of_a_path_are_told_alike(server: Served) -> None:
    for size, shown in (("x", "the text 'x'"), ("9" * 5000, "the text '999")):
        answer = server.http.get("/v1/prompt_cache/schemas", params={"page_size": size})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "page_size")
        assert error["message"].startswith(f"page_size must be a whole number, not {shown}")
        assert len(error["message"]) < 200
