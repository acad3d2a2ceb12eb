"""Spans of OpenTelemetry: each request's tokens, read and written ones too."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace

from tests.app.server.recent.test_reasons import RULES, ask
from tests.app.server.served import Served


class Tracer:
    """Records the spans that it is asked for; no SDK is installed."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []

    def start_span(self, name: str, **given: Any) -> Any:
        self.spans.append({"name": name, **given})
        return self

    def set_status(self, code: Any, words: str) -> None:
        self.spans[-1]["failed"] = words

    def end(self, time: int) -> None:
        self.spans[-1]["end"] = time


def test_a_request_is_a_span_with_its_tokens(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda _: tracer)
    ask(server, RULES, "One?")
    usage = ask(server, RULES, "One?")["usage"]
    server.http.post("/v1/messages", json={"model": "none", "max_tokens": 1, "messages": []})
    _, span, refused = tracer.spans
    found = span["attributes"]
    assert (span["name"], found["gen_ai.operation.name"]) == ("chat alias", "chat")
    assert found["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert found["gen_ai.usage.cache_read.input_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert found["gen_ai.usage.cache_creation.input_tokens"] == 0
    assert found["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert span["start_time"] < span["end"]
    assert "failed" not in span
    assert refused["failed"]
