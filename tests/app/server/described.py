"""Holds answers against the description that the server gives of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema


def events(text: str) -> Iterator[Any]:
    """What the events of a stream say."""
    for one in text.strip().split("\n\n"):
        (data,) = [line[6:] for line in one.split("\n") if line.startswith("data: ")]
        if data != "[DONE]":
            yield json.loads(data)


def operation(described: Any, method: str, path: str) -> Any:
    """The description of an endpoint, by the path of a request."""
    path = path.partition("?")[0]
    for pattern in described["paths"]:
        steps = list(zip(pattern.split("/"), path.split("/"), strict=False))
        same = pattern.count("/") == path.count("/") and all(a == b or a.startswith("{") for a, b in steps)
        if same and method in described["paths"][pattern]:
            return described["paths"][pattern][method]
    raise AssertionError(f"{method} {path} is not described")


def check(described: Any, method: str, path: str, answer: httpx.Response) -> None:
    """Holds an answer against the description."""
    status = str(answer.status_code)
    responses = operation(described, method, path)["responses"]
    assert status in responses, (status, answer.text)
    told = responses[status]
    kind = answer.headers.get("content-type", "").partition(";")[0]
    assert kind in told.get("content", {"": None}), kind
    if not kind or kind == "text/plain":
        return
    shape = {**told["content"][kind]["schema"], "components": described["components"]}
    values = events(answer.text) if kind == "text/event-stream" else map(json.loads, [answer.text])
    for value in map(json.loads, answer.text.splitlines()) if kind == "application/x-ndjson" else values:
        jsonschema.Draft202012Validator(shape).validate(value)
