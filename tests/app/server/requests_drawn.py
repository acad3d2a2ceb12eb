"""Requests drawn from the description of the server, and spoilt, as careless or hostile clients send."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

MODEL = "alias"
PML = '<schema name="drawn"><module name="a">One.</module><module name="b">Two.</module></schema>'
PROMPT = '<prompt schema="drawn"><a/><b/></prompt>'
WORDS = (
    "",
    "Hello",
    "a",
    " ",
    "\n",
    "\0",
    "é",
    "東京 🗼",
    "\u202e",
    "\ufeff",
    "<x>",
    "{{ x }}",
    "</s>",
    "x" * 300,
)
HINTS: Mapping[str, tuple[Any, ...]] = {
    "model": (MODEL,),
    "role": ("system", "developer", "user", "user", "assistant", "tool"),
    "type": (
        *("text", "text", "input_text", "output_text", "refusal", "message", "thinking", "redacted_thinking"),
        *("tool_use", "tool_result", "function_call", "function_call_output", "image", "auto", "none", "any"),
        *("document", "document", "search_result"),
    ),
    "max_tokens": (1, 1, 2, 0),
    "max_completion_tokens": (1, 2),
    "max_output_tokens": (1, 2),
    "schema": (PML, "drawn", "nowhere"),
    "prompt": (PROMPT, "Hello", ""),
    "template": (
        None,
        "prompteol",
        "drawn",
        PML,
        '<schema name="t"><module name="m"><param name="text"/></module></schema>',
    ),
    "scope": ("isolated", "anchored", "preceding", "scaffold"),
    "pml": (PML,),
    "module": ("a", "b", {"name": "a"}, {"name": "b", "sees": ["a"]}),
    "include": (None, ["prompt_cache"], ["prompt_cache"], ["message.output_text.logprobs"]),
    "tool_choice": (None, None, "auto", "none", {"type": "auto"}, {"type": "none"}, {"type": "any"}),
    "tools": (
        *(None, None, [], [{"type": "function", "function": {"name": "f"}}], [{"name": "f"}]),
        *([{"type": "function", "name": "f", "parameters": {"type": "object"}}], [{"name": "f"}] * 2),
        [{"name": "f", "input_schema": {}}, {"name": "g", "defer_loading": True, "description": "é"}],
    ),
    "tool_calls": (None, None, None, [{"id": "call_1", "function": {"name": "f", "arguments": "{}"}}]),
    "refusal": (None, "No."),
    "thinking": (None, {"type": "disabled"}, {"type": "enabled"}),
    "stream_options": (None, None, {"include_usage": True}),
    "prompt_cache": (None, None, None, {"schema": PML, "prompt": PROMPT}, {"schema": "drawn"}),
    "system": (None, "Be short.", [{"type": "text", "text": "Be short."}]),
    "text": (None, "Hello", "Hello"),
    "reasoning": (None, {"effort": "none"}),
    "cache_control": (None, None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}),
    "prompt_cache_breakpoint": (None, None, {"mode": "explicit"}),
    "ttl": ("5m", "1h", "30m", "12h", 300, "2d", None),
    "expires_at": (10**10, "2999-01-01T00:00:00Z", "soon", None),
    "source": (
        *({"type": "text", "media_type": "text/plain", "data": "Hello"}, "x", {"type": "url", "url": "x"}),
        {"type": "content", "content": [{"type": "text", "text": "Hello"}]},
    ),
    "title": (None, "A title"),
    "citations": (None, {"enabled": False}, {"enabled": True}, []),
    "id": ("call_1", "toolu_1"),
    "call_id": ("call_1",),
    "tool_use_id": ("toolu_1",),
    "tool_call_id": (None, None, "call_1"),
    "arguments": ("{}", '{"a": "\\ud800"}', "{", "[]", "NaN"),
}
"""What fields mean, so that requests get past the first fault."""
WILD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.0, 0.5, 2**31, 2**63, 10**40, -(10**300), 1e308, 1e-320),
    *("", "x", "5", "true", "\ud800", "\udfff", "\U0001f600", "a" * 5000, [], {}, [[]], [None], {"": None}),
    *({"type": "text"}, {"type": "text", "text": None}, [{"type": "text", "text": "Hi"}], ["a", 1]),
    *([["a"] * 3] * 3, {"a": {"b": {"c": []}}}, float("nan"), float("inf"), "\ud83d\ude00"),
)
CONTENT_TYPES = (
    *(
        "application/json",
        "application/json; charset=utf-16",
        "text/plain",
        "application/xml",
        "text/xml",
        "",
    ),
    *(
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "é/json",
        "json",
        "application/",
    ),
)
HEADERS: tuple[dict[str, str], ...] = (
    *({}, {}, {}, {"anthropic-version": "2023-06-01"}, {"x-prompt-cache": "report"}, {"accept": "x/y"}),
    *({"content-encoding": "gzip"}, {"authorization": "Bearer \\x00"}, {"x-api-key": "é"}),
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW")
NAMES = ("drawn", MODEL, "x", "..", "%2e%2e%2f", "%00", "%ff", "a%20b", "%F0%9F%97%BC", "x" * 400, "a/b")
RAW = (b"", b"\xff\xfe", b"{", b'{"model"', b"null", b"[]", b"0", b'"x"', b"{}{}", b"\x00", b'{"a":' * 3000)


@dataclass(frozen=True)
class Drawn:
    """A request."""

    method: str
    path: str
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def value(shape: Any, shapes: Mapping[str, Any], name: str = "", depth: int = 0) -> SearchStrategy[Any]:
    """Returns what a shape of the description allows, and hints say of the field's meaning."""
    if name in HINTS and depth:
        hinted = st.sampled_from(HINTS[name])
        return st.one_of(hinted, hinted, hinted, _plain(shape, shapes, name, depth))
    return _plain(shape, shapes, name, depth)


def _plain(shape: Any, shapes: Mapping[str, Any], name: str, depth: int) -> SearchStrategy[Any]:
    if "$ref" in shape:
        return value(shapes[shape["$ref"].rpartition("/")[2]], shapes, "", depth)
    if "const" in shape or "enum" in shape:
        return st.sampled_from(shape.get("enum", [shape.get("const")]))
    if "anyOf" in shape:
        return st.one_of([_plain(one, shapes, name, depth) for one in shape["anyOf"]])
    if "allOf" in shape:
        parts = [_plain(one, shapes, name, depth) for one in shape["allOf"]]
        return st.tuples(*parts).map(lambda found: {key: one[key] for one in found for key in one})
    match shape.get("type"):
        case "string":
            return st.one_of(st.sampled_from(WORDS), st.text(max_size=20))
        case "integer":
            least, most = shape.get("minimum", -(2**63)), shape.get("maximum", 2**63 - 1)
            return st.one_of(st.integers(int(least), int(most)), st.integers(1, 8))
        case "number":
            return st.floats(shape.get("minimum", 0), shape.get("maximum", 10), exclude_min=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(value(shape.get("items", {}), shapes, name, depth + 1), max_size=3)
        case "object" if shape.get("properties"):
            return _object(shape, shapes, depth)
    return anything()


def _object(shape: Any, shapes: Mapping[str, Any], depth: int) -> SearchStrategy[Any]:
    fields = {name: value(one, shapes, name, depth + 1) for name, one in shape["properties"].items()}
    required = {name: fields.pop(name) for name in shape.get("required", ()) if name in fields}
    some = st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True) if fields else st.just([])
    optional = some.flatmap(lambda names: st.fixed_dictionaries({name: fields[name] for name in names}))
    return st.tuples(st.fixed_dictionaries(required), optional).map(lambda both: {**both[0], **both[1]})


def anything(depth: int = 3) -> SearchStrategy[Any]:
    """Returns any small value of JSON."""
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS))
    if not depth:
        return leaves
    keys, inner = st.one_of(st.sampled_from(sorted(HINTS)), st.text(max_size=8)), anything(depth - 1)
    return st.one_of(leaves, st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3))


@st.composite
def spoilt(draw: DrawFn, body: SearchStrategy[Any]) -> Any:
    """A body with a few things put out of order in it."""
    found = json.loads(json.dumps(draw(body)))
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2, 4)))):
        place, key = found, None
        while isinstance(place, dict | list) and place:
            keys: list[Any] = [*place] if isinstance(place, dict) else [*range(len(place))]
            key = draw(st.sampled_from(keys))
            if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
                break
            place = place[key]
        if key is None:
            break
        match draw(st.sampled_from(("wild", "wild", "any", "lost", "more", "deep", "twice"))):
            case "wild":
                place[key] = copy.deepcopy(draw(st.sampled_from(WILD)))
            case "any":
                place[key] = copy.deepcopy(draw(anything()))
            case "lost":
                del place[key]
            case "more" if isinstance(place, dict):
                name = st.one_of(st.sampled_from(sorted(HINTS)), st.sampled_from(WORDS), st.just("\ud800"))
                place[draw(name)] = copy.deepcopy(draw(st.sampled_from(WILD)))
            case "deep":
                for _ in range(draw(st.sampled_from((3, 40, 70, 400)))):
                    place[key] = [place[key]] if draw(st.booleans()) else {"a": place[key]}
            case "twice" if isinstance(place, list):
                place += place[:50]
    return found


def requests(described: Any) -> SearchStrategy[Drawn]:
    """Returns requests to the endpoints that are described."""
    shapes, bodies = described["components"]["schemas"], {}
    for path, ways in described["paths"].items():
        for way, one in ways.items():
            if "requestBody" in one:
                shape = one["requestBody"]["content"]["application/json"]["schema"]
                bodies[path, way] = spoilt(value(shape, shapes))
    return _requests(described, bodies)


@st.composite
def _requests(draw: DrawFn, described: Any, bodies: Mapping[tuple[str, str], SearchStrategy[Any]]) -> Drawn:
    endpoints = [(path, way) for path, ways in described["paths"].items() for way in ways]
    with_bodies = [(path, way) for path, way in endpoints if "requestBody" in described["paths"][path][way]]
    path, way = draw(st.sampled_from((*endpoints, *with_bodies * 5)))
    taken = described["paths"][path][way].get("requestBody", {}).get("content", {})
    content, kind = b"", "application/json"
    if taken:
        content = json.dumps(
            draw(bodies[path, way])
        ).encode()  # NaN, and halves of surrogate pairs, as they are
        if "application/xml" in taken and draw(st.booleans()):
            content, kind = draw(st.sampled_from((PML, "<schema", "é", ""))).encode(), "application/xml"
    for step in ("name", "response_id"):
        path = path.replace(f"{{{step}}}", draw(st.sampled_from(NAMES)))
    if "schemas" in path and way == "get":
        path += draw(st.sampled_from(("", "", "?page_size=x", "?page_size=-1", "?page_token=é", "?a=%ff")))
    method = way.upper()
    match draw(st.sampled_from((*"......", "method", "type", "raw", "cut"))):
        case "method":
            method = draw(st.sampled_from(METHODS))
        case "type":
            kind = draw(st.sampled_from(CONTENT_TYPES))
        case "raw":
            content = draw(st.sampled_from(RAW))
        case "cut":
            content = content[: draw(st.integers(0, len(content)))]
    headers = {**draw(st.sampled_from(HEADERS)), **({"content-type": kind} if content or taken else {})}
    return Drawn(method, path, content, headers)
