"""Formats that are drawn: each request is refused by its field, or its finished answer is valid.

`PML_DRAWN_REQUESTS=500` draws as many; a run of all tests draws fewer.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from engine.model.loading import load
from tests.app.server.served import Served, served
from tests.drawing import draws

COUNT = int(os.environ.get("PML_DRAWN_REQUESTS", draws(60)))
QUESTION = [{"role": "user", "content": "Where is the beach?"}]
NAMES = ("a", "b", "city", "größe", "with space", "x-y", "$ref", "type")
PATTERNS = (
    "[a-z]{2,5}",
    "(yes|no)",
    "[0-9]{3}-[0-9]{2}",
    "a+b?",
    "\\d{4}",
    "[^x]{3}",
    "(",
    "[z-a]",
    "()",
    "é{2}",
)
UNSUPPORTED: tuple[dict[str, Any], ...] = (
    {"uniqueItems": True},
    {"not": {"type": "null"}},
    {"if": {}, "then": {}},
    {"$ref": "#/$defs/missing"},
    {"type": "strange"},
    {"minimum": "1"},
    {"enum": 3},
    {"pattern": "("},
    {"properties": []},
)


class Drawer:
    """Draws formats from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema(self, depth: int = 0) -> Any:
        """A JSON Schema, rarely one that is invalid or not supported."""
        draw = self.random
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern"]
        if depth < 3:
            kinds += ["object", "object", "array", "anyOf", "object"]
        if draw.random() < 0.04:
            return draw.choice(UNSUPPORTED)
        match draw.choice(kinds):
            case "string":
                least = draw.randint(0, 3)
                return {"type": "string", "minLength": least, "maxLength": least + draw.randint(0, 8)}
            case "integer":
                least = draw.randint(-20, 20)
                return {"type": "integer", "minimum": least, "maximum": least + draw.randint(0, 300)}
            case "number":
                return {"type": "number", "minimum": 0, "maximum": draw.choice([1, 9.5])}
            case "enum":
                return {
                    "enum": draw.sample([1, 2.5, "x", "ü “y”", None, True, [1], {"a": 1}], draw.randint(1, 4))
                }
            case "const":
                return {"const": draw.choice([0, "one", False, {"k": []}])}
            case "pattern":
                return {"type": "string", "pattern": f"^{draw.choice(PATTERNS[:4])}$"}
            case "object":
                return self._object(depth)
            case "array":
                most = draw.randint(0, 3)
                return {"type": "array", "items": self.schema(depth + 1), "maxItems": most}
            case "anyOf":
                return {"anyOf": [self.schema(depth + 1) for _ in range(draw.randint(1, 3))]}
            case kind:
                return {"type": kind}

    def _object(self, depth: int) -> dict[str, Any]:
        names = self.random.sample(NAMES, self.random.randint(0, 3))
        required = [name for name in names if self.random.random() < 0.7]
        properties = {name: self.schema(depth + 1) for name in names}
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def choices(self) -> Any:
        """A list of choices, rarely an invalid one."""
        words = ["yes", "no", "on foot", "Zürich", "a,b", '"', "yes and no", " x", "東京"]
        faulty: list[Any] = [[], "yes", [1], [""], {"a": 1}, [None]]
        chosen = self.random.sample(words, self.random.randint(1, 5))
        return self.random.choice(faulty) if self.random.random() < 0.1 else chosen

    def request(self) -> tuple[str, dict[str, Any], tuple[str, Any]]:
        """A path, a body, and what its answer must be."""
        body: dict[str, Any] = {"model": "demo", "temperature": self.random.choice([0, 1]), "seed": 1}
        kind = self.random.choice(["schema", "schema", "schema", "regex", "choice", "grammar"])
        value: Any = self.schema() if kind == "schema" else ""
        if kind == "schema" and self.random.random() < 0.3:
            given = {"type": "json_schema", "schema": value}
            if self.random.random() < 0.5:
                body |= {"messages": QUESTION, "max_tokens": 150, "output_config": {"format": given}}
                return "/v1/messages", body, (kind, value)
            body |= {"input": QUESTION, "text": {"format": {**given, "name": "x"}}}
            return "/v1/responses", body, (kind, value)
        body |= {"messages": QUESTION, "max_tokens": 150}
        match kind:
            case "schema" if self.random.random() < 0.5:
                body["guided_json"] = value
            case "schema":
                named = {"name": "x", "schema": value, "strict": True}
                body["response_format"] = {"type": "json_schema", "json_schema": named}
            case "regex":
                value = "".join(self.random.choice(PATTERNS) for _ in range(self.random.randint(1, 3)))
                body["guided_regex"] = value
            case "choice":
                value = self.choices()
                body["structured_outputs" if self.random.random() < 0.5 else "guided_choice"] = value
                if "structured_outputs" in body:
                    body["structured_outputs"] = {"choice": value}
            case "grammar":
                value = self.random.choice(PATTERNS)
                faulty = self.random.choice(["start: x", "root ::= ", "start: /(/", "start start", "{"])
                start = f'start: "<" /{value}/ ">"'
                body["guided_grammar"] = faulty if self.random.random() < 0.3 else start
                value = f"<{value}>"
        return "/v1/chat/completions", body, (kind, value)


def said(path: str, told: Any) -> tuple[str, bool]:
    """The text of an answer, and whether it is complete."""
    if path.endswith("messages"):
        return told["content"][0]["text"] if told["content"] else "", told["stop_reason"] == "end_turn"
    if path.endswith("responses"):
        texts = [one["content"][0]["text"] for one in told["output"] if one["type"] == "message"]
        return "".join(texts), told["status"] == "completed"
    return told["choices"][0]["message"]["content"], told["choices"][0]["finish_reason"] == "stop"


def require(kind: str, value: Any, text: str) -> None:
    match kind:
        case "schema":
            jsonschema.validate(json.loads(text), value)
        case "choice":
            assert text in value
        case _:
            assert re.fullmatch(value, text, re.DOTALL)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("drawn"), model=load("demo"), longest=150) as running:
        yield running


def test_a_drawn_format_is_refused_or_kept_to(demo: Served) -> None:
    drawer, results = Drawer(COUNT), Counter[str]()
    for number in range(COUNT):
        path, body, (kind, value) = drawer.request()
        told = demo.http.post(path, json=body)
        context = f"request {number}: {path} {json.dumps(body)}: {told.text}"
        assert told.status_code in (200, 400), context
        if told.status_code == 400:
            results["refused"] += 1
            message = told.json()["error"]["message"]
            assert told.json()["error"].get("param") != "messages", context
            assert message, context
            continue
        text, complete = said(path, told.json())
        results["complete" if complete else "cut"] += 1
        if complete:
            try:
                require(kind, value, text)
            except Exception as error:
                raise AssertionError(context) from error
    assert results["complete"] > COUNT / 3, results
    assert results["refused"], results
