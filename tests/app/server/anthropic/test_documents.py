"""Documents and results of a search in Anthropic's messages are texts, marked and named as texts are."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from app.server.anthropic.document_blocks import text_of
from app.server.http.errors import ApiError
from tests.app.server.served import LONG, Served

PLAIN = {"type": "text", "media_type": "text/plain", "data": "The ferry leaves at 8."}
DOCUMENT: dict[str, Any] = {"type": "document", "source": PLAIN}
RESULT: dict[str, Any] = {
    "type": "search_result",
    "source": "https://ferries.example",
    "title": "Ferries",
    "content": [{"type": "text", "text": "At 8."}, {"type": "text", "text": "At 9."}],
}
TOLD = {**DOCUMENT, "title": "Ferries", "context": "Summer of 2026", "citations": {"enabled": False}}
QUESTION: dict[str, Any] = {"type": "text", "text": "When?"}


def content(*parts: Any) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "content", "content": [*parts]}}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


TEXTS: list[tuple[dict[str, Any], str]] = [
    (DOCUMENT, "The ferry leaves at 8."),
    ({**DOCUMENT, "title": None, "context": "", "citations": None}, "The ferry leaves at 8."),
    (TOLD, "Title: Ferries\nContext: Summer of 2026\n\nThe ferry leaves at 8."),
    ({**DOCUMENT, "title": "T", "source": {**PLAIN, "data": " x"}}, "Title: T\n\n x"),
    ({**DOCUMENT, "title": "T", "source": {**PLAIN, "data": ""}}, "Title: T"),
    (content(text("One."), text("Two.\n"), text(""), text("Three.")), "One.\n\nTwo.\nThree."),
    ({"type": "document", "source": {"type": "content", "content": "One."}}, "One."),
    (RESULT, "Title: Ferries\nSource: https://ferries.example\n\nAt 8.\n\nAt 9."),
]


@pytest.mark.parametrize(("block", "said"), TEXTS)
def test_a_document_is_written_as_a_text(block: dict[str, Any], said: str) -> None:
    assert text_of(block, "x") == said


@pytest.mark.parametrize(("block", "said"), TEXTS)
def test_a_document_is_read_as_its_text(server: Served, block: Any, said: str) -> None:
    def asked(first: Any) -> dict[str, Any]:
        turn: Any = {"role": "user", "content": [first, QUESTION]}
        return {"model": server.model, "messages": [turn]}

    client = server.anthropic()
    made, plain = (
        client.messages.create(**asked(one), max_tokens=6, extra_body={"temperature": 0})
        for one in (block, text(said))
    )
    assert made.content == plain.content
    counted, same = (client.messages.count_tokens(**asked(one)).input_tokens for one in (block, text(said)))
    assert counted == same
    answer = server.http.post("/v1/prompt_cache/plan", json={**asked(block), "dialect": "anthropic"})
    assert answer.json()["total"] == counted


def test_a_document_is_marked(server: Served) -> None:
    marked: Any = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": f"Only here: {LONG}"},
        "title": "A cold day",
        "cache_control": {"type": "ephemeral"},
    }
    asked: Any = [{"role": "user", "content": [marked, QUESTION]}]
    client = server.anthropic()
    first, second = (
        client.messages.create(model=server.model, messages=asked, max_tokens=1).usage for _ in range(2)
    )
    assert first.cache_creation_input_tokens > 64
    assert second.cache_read_input_tokens >= first.cache_creation_input_tokens


def test_a_document_with_a_name_is_read_wherever_it_stands(server: Served) -> None:
    def ask(*blocks: Any) -> Any:
        turn: Any = {"role": "user", "content": [*blocks, QUESTION]}
        extra = {"include": ["prompt_cache"]}
        made = server.anthropic().messages.create(
            model=server.model, messages=[turn], max_tokens=1, extra_body=extra
        )
        return {one["path"]: one["outcome"] for one in made.prompt_cache["modules"]}

    one = {**DOCUMENT, "source": {**PLAIN, "data": f"One. {LONG}"}, "module": "one"}
    other = {**DOCUMENT, "source": {**PLAIN, "data": f"Other. {LONG}"}, "module": "other"}
    assert {*ask(one, other).values()} == {"miss"}
    assert {*ask(other, one).values()} == {"hit"}


def test_tools_give_documents_back(agent: Served) -> None:
    client = agent.anthropic()

    def counted(part: Any) -> int:
        use = {"type": "tool_use", "id": "a", "name": "find", "input": {}}
        turns: Any = [
            {"role": "user", "content": "When?"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [part]}]},
        ]
        tools: Any = [{"name": "find", "input_schema": {"type": "object"}}]
        return int(client.messages.count_tokens(model="alias", messages=turns, tools=tools).input_tokens)

    for block in (TOLD, RESULT):
        assert counted(block) == counted(text(text_of(block, "x")))
    place = r"messages\.2\.content\.0\.content\.0\.source\.type: It is not supported here"
    with pytest.raises(anthropic.BadRequestError, match=place):
        counted({**DOCUMENT, "source": {"type": "url", "url": "x"}})


@pytest.mark.parametrize(
    ("block", "param", "words"),
    [
        *(
            ({"type": "document", "source": {"type": kind}}, "source.type", f"not '{kind}'")
            for kind in ("base64", "url", "file")
        ),
        ({"type": "document"}, "source", "must be an object"),
        ({"type": "document", "source": "x"}, "source", "must be an object"),
        (
            {**DOCUMENT, "source": {**PLAIN, "media_type": "application/pdf"}},
            "source.media_type",
            "text/plain",
        ),
        ({**DOCUMENT, "source": {"type": "text"}}, "source.data", "must be a text, not null"),
        ({**DOCUMENT, "citations": {"enabled": True}}, "citations.enabled", "not supported here"),
        ({**DOCUMENT, "citations": 5}, "citations", "must be"),
        ({**RESULT, "citations": {"enabled": True}}, "citations.enabled", "not supported here"),
        ({**RESULT, "content": [{"type": "image"}]}, "content.0.type", "not 'image'"),
        (
            content(text("x", cache_control={"type": "ephemeral"})),
            "source.content.0.cache_control",
            "Mark the",
        ),
        (content(5), "source.content.0.type", "not 5"),
    ],
)
def test_what_is_no_text_is_refused_by_name(
    server: Served, block: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(ApiError, match=words) as direct:
        text_of(block, "x")
    assert direct.value.param == f"x.{param}"
    client = server.anthropic()
    for call, more in ((client.messages.create, {"max_tokens": 1}), (client.messages.count_tokens, {})):
        with pytest.raises(anthropic.BadRequestError, match=words) as error:
            call(model=server.model, messages=[{"role": "user", "content": [block]}], **more)
        assert (error.value.api_message or "").startswith(f"messages.0.content.0.{param}: ")


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_documents_are_the_users(server: Served, role: str) -> None:
    messages: Any = [{"role": role, "content": [DOCUMENT]}, {"role": "user", "content": "x"}]
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.content\.0\.type: "):
        server.anthropic().messages.create(model=server.model, messages=messages, max_tokens=1)


def test_an_empty_document_cannot_be_marked(server: Served) -> None:
    empty: Any = {**DOCUMENT, "source": {**PLAIN, "data": ""}, "cache_control": {"type": "ephemeral"}}
    with pytest.raises(anthropic.BadRequestError, match=r"content\.0\.cache_control: "):
        server.anthropic().messages.create(
            model=server.model, messages=[{"role": "user", "content": [empty, QUESTION]}], max_tokens=1
        )
