"""Requests that are drawn from the server's own description, and spoilt: none is a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.server.application import application
from app.server.core.service import Service
from tests import fuzz_server
from tests.app.server.described import check, operation
from tests.app.server.requests_drawn import Drawn, requests
from tests.app.server.served import Served
from tests.drawing import draws

DESCRIBED = json.loads(json.dumps(application(Service(longest=4)).openapi()))
REQUESTS = requests(DESCRIBED)


@pytest.fixture(scope="module")
def drawn_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of this test alone, as clients put schemas and leave them."""
    with fuzz_server.open_server(tmp_path_factory.mktemp("drawn")) as running:
        yield running


@settings(max_examples=draws(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_no_request_is_a_fault_of_the_server(drawn_on: Served, data: Any) -> None:
    fuzz_server.send(drawn_on, DESCRIBED, data.draw(REQUESTS))


def test_the_server_is_as_before(drawn_on: Served) -> None:
    assert drawn_on.http.get("/health").json() == {"status": "ok"}
    assert drawn_on.service.inside == 0
    asked = {"model": "alias", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    answer = drawn_on.http.post("/v1/chat/completions", json=asked)
    check(DESCRIBED, "post", "/v1/chat/completions", answer)


def test_a_fault_is_found(drawn_on: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(drawn_on.engine, "conversation", broken)
    body = {"model": "alias", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    drawn = Drawn("POST", "/v1/messages", json.dumps(body).encode(), {"content-type": "application/json"})
    with pytest.raises(AssertionError, match=r"internal_error|api_error"):
        fuzz_server.send(drawn_on, DESCRIBED, drawn)
    assert operation(DESCRIBED, "post", "/v1/messages")
