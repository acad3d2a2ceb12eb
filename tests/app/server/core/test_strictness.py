"""What would be read as something else than was meant is refused in every dialect, by the field's name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError

from app.server.anthropic.messages import MessagesBody
from app.server.http.bodies import DEEPEST
from app.server.openai.chat import ChatBody
from app.server.openai.completions import CompletionBody
from app.server.openai.responses import ResponsesBody
from tests.app.server.served import Served

SAID: list[Any] = [{"role": "user", "content": "Hello"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": SAID, "max_tokens": 2},
    "completions": {"prompt": "Hello", "max_tokens": 2},
    "responses": {"input": "Hello", "max_output_tokens": 2},
    "messages": {"messages": SAID, "max_tokens": 2},
}
ALL = tuple(REQUESTS)
OPENAIS = ALL[:3]
BODIES: dict[str, type[BaseModel]] = {
    "chat/completions": ChatBody,
    "completions": CompletionBody,
    "responses": ResponsesBody,
    "messages": MessagesBody,
}
HALF = "\ud83d"


def post(server: Served, path: str, changes: Any, **more: Any) -> Any:
    """The status of a request, its field, and what is said."""
    body = {"model": server.model, **REQUESTS[path], **changes}
    content = json.dumps(body).encode()  # which spells halves of surrogate pairs as they are
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    return told(path, server.http.post(f"/v1/{path}", content=content, headers=headers, **more))


def told(path: str, answer: httpx.Response) -> tuple[int, str | None, str]:
    """The status of an answer, the field that it names, and the sentence."""
    if answer.status_code == 200:
        return 200, None, ""
    error = answer.json()["error"]
    if path != "messages":
        return answer.status_code, error["param"], error["message"]
    assert answer.json()["type"] == "error"
    param, colon, message = error["message"].partition(": ")
    return (
        (answer.status_code, param, message)
        if colon and " " not in param
        else (
            answer.status_code,
            None,
            error["message"],
        )
    )


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize("seed", [10**40, 2**63, -(2**63) - 1, True, "5", 1.5])
def test_a_seed_that_no_64_bits_hold_is_refused(server: Served, path: str, seed: Any) -> None:
    status, param, message = post(server, path, {"seed": seed})
    assert (status, param) == (400, "seed")
    assert "whole number" in message


@pytest.mark.parametrize("path", ALL)
def test_seeds_of_64_bits_are_honoured(server: Served, path: str) -> None:
    for seed in (0, -1, 2**63 - 1, -(2**63), 5.0):
        assert post(server, path, {"seed": seed})[0] == 200


@pytest.mark.parametrize("path", OPENAIS)
def test_options_of_a_stream_without_a_stream_are_refused(server: Served, path: str) -> None:
    options = {"stream_options": {"include_obfuscation": False}}
    for changes in (options, {**options, "stream": False}):
        status, param, message = post(server, path, changes)
        assert (status, param) == (400, "stream_options")
        assert "requires stream to be true" in message
    assert post(server, path, {**options, "stream": True})[0] == 200


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LONGEST", True),
        ("LONGEST", "2"),
        ("LONGEST", 2.5),
        ("top_k", False),
        ("temperature", True),
        ("temperature", "0.5"),
        ("top_p", False),
        ("repetition_penalty", True),
        ("stream", 1),
        ("stream", "yes"),
        ("prompt_cache", {"schema": "x", "prompt": 5}),
    ],
)
def test_true_is_no_number_and_a_text_is_neither(server: Served, path: str, name: str, value: Any) -> None:
    if name == "LONGEST":
        name = "max_output_tokens" if path == "responses" else "max_tokens"
    status, param, message = post(server, path, {name: value})
    assert (status, param) == (400, f"{name}.prompt" if isinstance(value, dict) else name)
    assert " must be " in message
    assert message.startswith("It" if path == "messages" else f"{param} ")


@pytest.mark.parametrize("path", ALL)
def test_a_temperature_is_in_the_vendors_range(server: Served, path: str) -> None:
    most = 1 if path == "messages" else 2
    for fine in (0, 0.7, 1, most):
        assert post(server, path, {"temperature": fine})[0] == 200
    for value, shown in ((most + 0.1, f"{most}.1"), (10, "10.0"), (1e308, "1e+308"), (-0.5, "-0.5")):
        status, param, message = post(server, path, {"temperature": value})
        assert (status, param) == (400, "temperature")
        assert message.endswith(f" is {shown}; it must be a number, at least 0 and at most {most}.")


def test_no_tokens_are_no_default(server: Served) -> None:
    assert post(server, "completions", {"max_tokens": 0})[:2] == (400, "max_tokens")


@pytest.mark.parametrize("path", ALL)
def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(server: Served, path: str) -> None:
    field = {"completions": "prompt", "responses": "input"}.get(path, "messages")
    place = {"messages": ".0.content", "chat/completions": "[0].content"}.get(path, "")
    stop = "stop_sequences" if path == "messages" else "stop"
    bad: Any = f"a{HALF}" if field != "messages" else [{"role": "user", "content": f"a{HALF}"}]
    cases: list[tuple[Any, str | None]] = [
        ({field: bad}, field + place),
        ({stop: ["x", f"{HALF}b"]}, f"{stop}.1" if path == "messages" else f"{stop}[1]"),
        ({"cache_salt": HALF}, "cache_salt"),
        ({"model": HALF}, "model"),
        ({"prompt_cache": {"schema": f"<schema name='{HALF}'/>"}}, "prompt_cache.schema"),
        ({"metadata": {HALF: "x"}}, "metadata"),
        ({f"new{HALF}": 1}, None),
    ]
    for changes, param in cases:
        assert post(server, path, changes) == (
            400,
            param,
            "A text has half of a surrogate pair (U+D83D), which is not a character. Remove it.",
        )
    assert post(server, path, {"cache_salt": "\U0001f600"})[0] == 200, "a whole pair is a character"


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "The body is empty. Send a JSON object."),
        (b" \r\n", "The body is empty. Send a JSON object."),
        (b"[]", "The body must be a JSON object, not a list."),
        (b"null", "The body must be a JSON object, not null."),
        (b"5", "The body must be a JSON object, not a number."),
        (b'{"model": "x",}', "The body is not JSON: "),
        (b'{"temperature": NaN}', "NaN is not a JSON number. See line 1, column 17."),
        (b'{"temperature": 1e400}', "The body is not JSON: the number 1e400 is too large. See line 1"),
        (b'{"a": [1, {"b": -Infinity}]}', "-Infinity is not a JSON number. See line 1, column 17."),
        (b'{"\\ud800": NaN}', "NaN is not a JSON number. See line 1, column 12."),
        (b'{"model": "a",\n "model": "b"}', "the key 'model' occurs twice. See line 2, column 2."),
        (
            b'{"seed": ' + b"9" * 2000 + b"}",
            "The body is not JSON: a number has 2000 digits; the limit is 1000",
        ),
        (b'{"model": "\xff"}', "The body is not JSON in UTF-8: byte 11 is not part of a character."),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, "The body is not JSON: it is nested too deeply."),
        (b'{"a":' * 80 + b"1" + b"}" * 80, f"The body nests deeper than {DEEPEST} levels."),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(
    server: Served, path: str, content: bytes, words: str
) -> None:
    kind = {"content-type": "application/json"}
    answer = server.http.post(f"/v1/{path}", content=content, headers=kind)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert words in error["message"]


def test_what_json_leaves_open_is_refused_by_its_field(server: Served) -> None:
    kind = {"content-type": "application/json"}
    for content, field in (
        (b'{"messages": [{"role": "user", "role": "system"}]}', "messages[0].role"),
        (
            b'{"tools": [{"function": {"parameters": {"const": 1e999}}}]}',
            "tools[0].function.parameters.const",
        ),
        (b'{"temperature": NaN}', "temperature"),
    ):
        told = server.http.post("/v1/chat/completions", content=content, headers=kind).json()
        assert told["error"]["param"] == field
        told = server.http.post("/v1/messages", content=content, headers=kind).json()
        assert told["error"]["message"].startswith(f"{field.replace('[0]', '.0')}: The body is not JSON: ")
    put = server.http.put("/v1/prompt_cache/schemas/a", content=b'{"pml": "", "pml": "x"}', headers=kind)
    assert (put.status_code, put.json()["error"]["param"]) == (400, "pml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"a": NaN}', "NaN is not a JSON number (a) in line 1, column 7"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice (a) in line 1, column 10"),
        ('{"a": 1e400}', "the number 1e400 is too large (a)"),
        ("{", "The arguments are not JSON: "),
    ],
)
def test_arguments_of_a_call_are_read_as_strictly(server: Served, arguments: str, words: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    told = [{"role": "user", "content": "Hello"}, {"role": "assistant", "tool_calls": [call]}]
    status, param, message = post(server, "chat/completions", {"messages": told})
    assert (status, param) == (400, "messages[1].tool_calls[0].function")
    assert words in message


@pytest.mark.parametrize("path", ALL)
def test_a_body_is_sent_as_json(server: Served, path: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        status, param, message = post(server, path, {}, headers={"content-type": kind})
        assert (status, param) == (415, "content-type")
        assert message.endswith("send JSON as application/json.")
    status, param, message = post(server, path, {}, headers={"content-encoding": "gzip"})
    assert (status, param) == (415, "content-encoding")
    assert "not compressed" in message
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json", ""):
        assert post(server, path, {}, headers={"content-type": kind})[0] == 200


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ({"role": "user", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls", None),
        ({"role": "user", "content": "x", "tool_call_id": "1"}, "messages[0].tool_call_id", None),
        (
            {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}},
            "messages[0].function_call",
            "unsupported_parameter",
        ),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages[0].audio", "unsupported_parameter"),
    ],
)
def test_parts_of_messages_that_are_not_read_are_refused(
    server: Served, message: Any, param: str, code: str | None
) -> None:
    body = {"model": server.model, "messages": [message, *SAID], "max_tokens": 1}
    answer = server.http.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)


def test_a_refusal_is_what_the_assistant_said(server: Served) -> None:
    def read(said: Any) -> int:
        turns = [*SAID, {"role": "assistant", **said}, *SAID]
        body = {"model": server.model, "messages": turns, "max_tokens": 1}
        answer = server.http.post("/v1/chat/completions", json=body).json()
        return int(answer["usage"]["prompt_tokens"])

    assert read({"content": None, "refusal": "No, I cannot."}) == read({"content": "No, I cannot."})


@pytest.mark.parametrize("path", ALL)
def test_of_many_faults_the_first_is_told(server: Served, path: str) -> None:
    """A body of some MB can have millions, each of which would take memory."""
    field = {"completions": "prompt", "responses": "input"}.get(path, "messages")
    stop = "stop_sequences" if path == "messages" else "stop"
    wrong = [None] * 1000
    cases: list[tuple[dict[str, Any], str]] = [
        ({field: wrong}, f"{field}[0]"),
        ({stop: ["x", *wrong]}, f"{stop}[1]"),
        ({"include": wrong}, "include[0]"),
        (
            {"prompt_cache": {"schema": "x", **{f"new{number}": 1 for number in range(1000)}}},
            "prompt_cache.new0",
        ),
    ]
    if field in ("messages", "input"):
        parts = [{"role": "user", "content": [{"type": "text", "text": "x"}, *wrong]}]
        cases.append(({field: [*parts, *wrong]}, f"{field}[0].content[1]"))
        cases.append(({"tools": wrong}, "tools[0]"))
    for changes, param in cases:
        body = BODIES[path]
        with pytest.raises(ValidationError) as error:
            body.model_validate({"model": "m", **REQUESTS[path], **changes})
        assert error.value.error_count() <= 4, "each list may be a text instead, or have other items"
        theirs = param.replace("[", ".").replace("]", "") if path == "messages" else param
        assert post(server, path, changes)[:2] == (400, theirs)


def test_pairs_of_metadata_are_texts(server: Served) -> None:
    found = post(server, "responses", {"metadata": {"a": "b", "c": 5}})
    assert found == (400, "metadata.c", "It must be a text.")
