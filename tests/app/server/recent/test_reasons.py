"""Why tokens were computed again: the reason, the first difference, and what unchanged text it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.server.recent import records
from app.server.recent.records import Record, Records
from tests.app.server.core.test_tools import TOOLS
from tests.app.server.served import LONG, Served, served

RULES = f"Follow the rules. {LONG * 3}"
OTHER = f"Here is the second document. {LONG * 2}"


def ask(server: Served, *texts: str, **more: Any) -> dict[str, Any]:
    """The answer to a system text and the blocks of a user's turn."""
    system, *blocks = texts
    content = [{"type": "text", "text": text} for text in blocks]
    messages = [{"role": "system", "content": system}, {"role": "user", "content": content}]
    asked = {"model": "alias", "max_tokens": 1, "include": ["prompt_cache"], "messages": messages}
    made = server.http.post("/v1/chat/completions", json=asked | more)
    assert made.status_code == 200, made.text
    told: dict[str, Any] = made.json()
    return told


def why(answer: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = answer["prompt_cache"]["why"]
    return told


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    with served(tmp_path) as server:
        yield server


def test_a_first_request_is_cold_and_new_text_is_new(fresh: Served) -> None:
    first = why(ask(fresh, RULES, "One?"))
    assert (first["reason"], first["compared_with"], first["lost"]) == ("cold", None, 0)
    again = ask(fresh, RULES, "One?")
    assert (why(again)["reason"], why(again)["lost"]) == ("new", 0)
    assert why(ask(fresh, RULES, "Another question?"))["reason"] == "new", "nothing unchanged follows it"


def test_a_changed_line_at_the_top_is_shown_with_what_it_cost(fresh: Served) -> None:
    before = ask(fresh, f"The time is 10:41. {RULES}", OTHER, "One?")
    made = ask(fresh, f"The time is 10:57. {RULES}", OTHER, "One?")
    told = why(made)
    assert (told["reason"], told["block"], told["compared_with"]) == (
        "changed",
        "turn 1 (system)",
        before["id"],
    )
    assert "10:57" in told["now"]
    assert "10:41" in told["before"]
    assert told["now"].startswith("…" if told["token"] > 6 else told["now"][0])
    assert "module" in told["suggestion"]
    total = made["usage"]["prompt_tokens"]
    assert total - 64 < told["lost"] + told["token"] < total, "all after the line is unchanged"


def test_blocks_in_another_order_are_told_apart_from_changed_ones(fresh: Served) -> None:
    ask(fresh, "Be short.", RULES, OTHER, "One?")
    told = why(ask(fresh, "Be short.", OTHER, RULES, "One?"))
    assert (told["reason"], told["block"]) == ("reordered", "turn 2 (user), block 1")
    assert told["lost"] > 400


def test_a_changed_tool_is_named(agent: Served) -> None:
    rules = "Say what the tool says of the weather. " * 30  # no other test of the server sends it
    ask(agent, rules, "One?", tools=TOOLS)
    function = {**TOOLS[0]["function"], "description": "How warm it is."}
    told = why(ask(agent, rules, "One?", tools=[{"type": "function", "function": function}]))
    assert (told["reason"], told["block"]) == ("changed", "the tools")
    assert "same tools" in told["suggestion"]


def test_a_salt_is_a_cache_of_its_own(fresh: Served) -> None:
    ask(fresh, RULES, "One?", cache_salt="a")
    assert why(ask(fresh, RULES, "One?", cache_salt="b"))["reason"] == "other_salt"


def test_evicted_and_expired_text_are_told_apart(tmp_path: Path) -> None:
    now = [1e9]
    with served(tmp_path, strict=True, clock=lambda: now[0]) as server:
        mark = {"prompt_cache_options": {"mode": "implicit", "ttl": "30m"}}
        ask(server, RULES, "One?")
        server.engine.memory_tier.drop(server.engine.memory_tier.keys())
        assert why(ask(server, RULES, "One?"))["reason"] == "evicted"
        ask(server, OTHER, "One?", **mark)
        server.engine.store.finish_writing()
        for record in server.service.records.of(""):
            record.at -= 2000
        now[0] += 2000
        told = why(ask(server, OTHER, "One?"))
        assert told["reason"] == "expired"
        assert "ttl" in told["suggestion"]


def test_named_blocks_have_their_own_reasons(fresh: Served) -> None:
    content = [{"type": "text", "text": OTHER, "module": "other"}, {"type": "text", "text": "One?"}]
    told = ask(fresh, RULES, "", messages=[{"role": "user", "content": content}])
    assert told["prompt_cache"]["why"] is None
    assert told["prompt_cache"]["modules"]


def test_responses_are_compared_with_the_one_that_is_named(fresh: Served) -> None:
    def respond(text: str, previous: str) -> Any:
        options = {"comparison_response_id": previous}
        asked = {"model": "alias", "input": text, "max_output_tokens": 1, "prompt_cache_options": options}
        return fresh.http.post("/v1/responses", json=asked).json()

    first = respond(RULES, "resp_none")
    assert first["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}
    assert respond(RULES, first["id"])["prompt_cache_diagnostics"] == {"type": "cache_hit"}
    made = respond(f"Now: {RULES}", first["id"])["prompt_cache_diagnostics"]
    assert (made["type"], made["reason"]) == ("cache_miss", "input_changed")
    assert 0 < made["comparison_reusable_tokens"] < made["cache_missed_tokens"]


def test_the_record_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    def record(name: str) -> Record:
        return Record("key", "", "m", "f", np.zeros(100, dtype=np.int32), names=[name])

    kept = Records(3)
    for number in range(5):
        kept.add(record(str(number)), 0)
    assert [one.names for one in kept.of("key")] == [["4"], ["3"], ["2"]]
    assert kept.find("4", "another key") is None, "clients see their own requests only"
    monkeypatch.setattr(records, "MOST_BYTES", 2 * record("").nbytes)
    kept.add(record("5"), 0)
    assert [one.names for one in kept.of("key")] == [["5"], ["4"]]
    none = Records(0)
    none.add(record("6"), 0)
    assert none.of("key") == []
