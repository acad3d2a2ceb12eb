"""Why nothing was read, told in Anthropic's terms: what differs from the request before."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.server.served import LONG, Served

TURNS: list[Any] = [
    {"role": "user", "content": f"A. {LONG}"},
    {"role": "assistant", "content": "B."},
    {"role": "user", "content": "C."},
]


def ask(server: Served, previous: str | None = None, *, stream: bool = False, **changes: Any) -> Any:
    asked = {"model": server.model, "messages": TURNS, "system": "Be short.", "max_tokens": 1, **changes}
    asked["extra_body"] = {"diagnostics": {"previous_message_id": previous}}
    messages = server.anthropic().messages
    if not stream:
        return messages.create(**asked)
    with messages.stream(**asked) as events:
        return events.get_final_message()


def reason(made: Any) -> Any:
    return made.diagnostics.cache_miss_reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_that_goes_on_misses_nothing(server: Served, stream: bool) -> None:
    first = ask(server, stream=stream)
    assert reason(first) is None
    more = [*TURNS, {"role": "assistant", "content": "D."}, {"role": "user", "content": "E."}]
    assert reason(ask(server, first.id, stream=stream, messages=more)) is None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"model": "alias"}, "model_changed"),
        ({"system": "Be long."}, "system_changed"),
        ({"messages": [{"role": "user", "content": "Z"}, *TURNS[1:]]}, "messages_changed"),
        ({"messages": TURNS[:1]}, "messages_changed"),
    ],
)
def test_what_changed_is_named(server: Served, changes: Any, kind: str) -> None:
    first = ask(server)
    made = ask(server, first.id, **changes)
    assert reason(made).type == kind
    usage = made.usage
    total = usage.input_tokens + usage.cache_read_input_tokens
    assert 0 <= reason(made).cache_missed_input_tokens <= total


def test_a_message_that_nobody_knows_is_said_to_be_unknown(server: Served) -> None:
    assert reason(ask(server, "msg_unknown")).type == "previous_message_not_found"


def test_who_does_not_ask_is_told_nothing(server: Served) -> None:
    made = server.anthropic().messages.create(model=server.model, messages=TURNS, max_tokens=1)
    assert made.diagnostics is None
