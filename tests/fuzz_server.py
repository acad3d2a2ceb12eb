"""A fuzzer of the server: `python -m tests.fuzz_server --seconds 600`.

Requests are drawn from the description that the server gives of itself, and spoilt. A failure is a status of
500 and above, an answer or error that the description does not have, an error in a stream that is the
server's fault, or an answer that takes longer than a client waits. It is made as small as can be, and shown.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.model import Model
from tests.app.server.described import check, events
from tests.app.server.raw import eventually
from tests.app.server.requests_drawn import Drawn, requests
from tests.app.server.served import Served, served
from tests.engine.prompt.tool_templates import HERMES_ANSWERS, WITH_TOOLS
from tests.engine.tiny import tiny_network

FOREIGN_WORDS = (
    r"Input should|Extra inputs|[Ff]ield required|valid \w+|instance of|Value error|String should|unable to"
)
"""How sentences begin, or go on, that are pydantic's and not ours."""
AT_ONCE = 500
"""Requests between two looks at the clock."""


def open_server(folder: Path) -> AbstractContextManager[Served]:
    """Serves a model that has a place for tools."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = WITH_TOOLS["hermes"].template
    tokenizer.response_template = HERMES_ANSWERS
    return served(folder, model=Model("drawn", tiny_network(), tokenizer, "drawn"), longest=4)


def send(server: Served, described: Any, drawn: Drawn) -> int:
    """Sends a request and holds its answer against the description; returns its status."""
    headers = {name: text.encode() for name, text in drawn.headers.items()}
    request = httpx.Request(drawn.method, server.url + drawn.path, content=drawn.content, headers=headers)
    answer = server.http.send(request)
    status = answer.status_code
    assert status < 500, (drawn, answer.text)
    if drawn.method == "HEAD":
        return status
    if status >= 400:
        body = answer.json()
        error = body.get("error")  # Ollama's is a text
        if "detail" in body:
            said = body["detail"][0]["msg"]
        else:
            said = error if isinstance(error, str) else error["message"]
        assert not re.search(FOREIGN_WORDS, said), (drawn, said)
    if status in (404, 405) or drawn.method.lower() not in ("get", "post", "put", "patch", "delete"):
        assert said, drawn
        return status
    path = drawn.path.partition("?")[0]
    check(described, drawn.method.lower(), path, answer)
    if "event-stream" in answer.headers.get("content-type", ""):
        told = json.dumps([*events(answer.text)])
        assert "internal_error" not in told, (drawn, told[-500:])
        assert "api_error" not in told, (drawn, told[-500:])
    eventually(lambda: server.service.inside == 0, f"the place is free after {drawn}")
    return status


def run(seconds: float, number: int) -> dict[int, int]:
    """Sends requests for a while; returns how often each status came."""
    found: dict[int, int] = {}
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, open_server(Path(folder)) as server:
        described = server.http.get("/v1/openapi.json").json()
        drawn = requests(described)
        while time.monotonic() < until:

            @seed(number)
            @settings(
                max_examples=AT_ONCE, database=None, suppress_health_check=[*HealthCheck], deadline=None
            )
            @given(st.data())
            def some(data: Any) -> None:
                status = send(server, described, data.draw(drawn))
                found[status] = found.get(status, 0) + 1

            some()
            number += 1
            assert server.http.get("/health").status_code == 200
    return found


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    number = random.randrange(10**6) if asked.seed is None else asked.seed
    print(f"seed {number}")
    found = run(asked.seconds, number)
    counts = ", ".join(f"{status}: {count}" for status, count in sorted(found.items()))
    print(f"{sum(found.values())} requests, no fault. {counts}")


if __name__ == "__main__":
    main()
