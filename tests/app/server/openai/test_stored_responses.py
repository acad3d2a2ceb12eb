"""Responses in memory: what continues them, what clients fetch, and who sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from app.server.http.access import Access
from app.server.openai import stored_responses
from app.server.openai.response_items import Item
from app.server.openai.response_shapes import Response
from app.server.openai.stored_responses import StoredResponses
from tests.app.server.served import Served, served


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    access = Access(keys=("one", "other"))
    with served(tmp_path_factory.mktemp("memory"), access=access, responses=3, keyed=True) as running:
        yield running


def create(server: Served, text: Any, key: str = "one", **more: Any) -> Any:
    asked = {"model": "alias", "input": text, "temperature": 0, "max_output_tokens": 6, **more}
    return server.openai(api_key=key).responses.create(**asked)


def test_a_response_continues_a_stored_one(memory: Served) -> None:
    first = create(memory, "What is the beach like?", instructions="Be short.")
    assert (first.store, first.previous_response_id) == (True, None)
    second = create(memory, "And the museum?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    whole = [
        {"role": "user", "content": "What is the beach like?"},
        *(item.model_dump() for item in first.output),
        {"role": "user", "content": "And the museum?"},
    ]
    plain = create(memory, whole, store=False)
    assert (second.output_text, second.usage.input_tokens) == (plain.output_text, plain.usage.input_tokens)
    counted = memory.openai(api_key="one").responses.input_tokens.count(
        model="alias", input="And the museum?", previous_response_id=first.id
    )
    assert counted.input_tokens == second.usage.input_tokens
    *_, last = create(memory, "So?", previous_response_id=second.id, stream=True)
    assert last.response.previous_response_id == second.id
    third = create(memory, "Why?", previous_response_id=last.response.id)
    assert third.usage.input_tokens > last.response.usage.input_tokens


def test_stored_responses_are_fetched_and_deleted(memory: Served) -> None:
    client = memory.openai(api_key="one").responses
    first = create(memory, "What is the beach like?")
    second = create(memory, [{"role": "user", "content": "And the museum?"}], previous_response_id=first.id)
    assert client.retrieve(second.id).model_dump() == second.model_dump()
    items = [*client.input_items.list(second.id, order="asc", limit=2)]
    assert [(item.role, item.content[0].text) for item in items] == [
        ("user", "What is the beach like?"),
        ("assistant", first.output_text),
        ("user", "And the museum?"),
    ]
    assert [item.id for item in client.input_items.list(second.id)] == [item.id for item in items][::-1]
    for changes, param in (({"limit": 0}, "limit"), ({"order": "up"}, "order"), ({"after": "x"}, "after")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.input_items.list(second.id, **changes)  # type: ignore[arg-type]
        assert refused.value.param == param
    with pytest.raises(openai.BadRequestError, match="has ended"):
        client.cancel(second.id)
    client.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="the latest 3 responses"):
        client.retrieve(first.id)
    assert create(memory, "Why?", previous_response_id=second.id).output_text


def test_nobody_reads_the_responses_of_another_key(memory: Served) -> None:
    made, others = create(memory, "Hello"), memory.openai(api_key="other").responses
    for call in (others.retrieve, others.delete, others.cancel, others.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(made.id)
    with pytest.raises(openai.NotFoundError) as refused:
        create(memory, "Hello", "other", previous_response_id=made.id)
    assert refused.value.param == "previous_response_id"
    assert memory.openai(api_key="one").responses.retrieve(made.id).id == made.id


def test_only_the_latest_are_stored_and_none_with_store_false(memory: Served) -> None:
    client = memory.openai(api_key="one").responses
    made = [create(memory, f"Hello {number}") for number in range(4)]
    unstored = create(memory, "Hello", store=False)
    assert unstored.store is False
    for gone in (made[0], unstored):
        with pytest.raises(openai.NotFoundError):
            client.retrieve(gone.id)
    assert client.retrieve(made[1].id).id == made[1].id


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_responses, "MOST_BYTES", 30_000)
    stored, text = StoredResponses(100), (Item(role="user", content="x" * 9000),)
    head: dict[str, Any] = {"created_at": 0, "model": "m", "reasoning": {}, "temperature": 0, "text": {}}
    head |= {"tools": [], "top_p": 1, "status": "completed", "output": []}
    for number in range(4):
        stored.add("", text, text, Response(id=f"resp_{number}", **head))
    assert stored.find("resp_3", "", "response_id").items == text
    assert stored.find("resp_2", "", "response_id").response.id == "resp_2"
    with pytest.raises(Exception, match="There is no response"):
        stored.find("resp_1", "", "response_id")
    stored.remove("resp_2", "")
    with pytest.raises(Exception, match="There is no response"):
        stored.find("resp_2", "", "response_id")
