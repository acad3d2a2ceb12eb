"""The table of errors in docs/server.md, row by row: what each vendor's own client makes of each of them."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

from app.server.core.running import Running
from app.server.core.service import Limits
from app.server.http import access, errors
from app.server.http.access import Access
from app.server.http.errors import Kind
from engine.base.errors import ClosedError
from engine.base.events import Delta, Event
from tests.app.server.served import LONG, Served, served
from tests.drawing import EVERY

DOCUMENT = (Path(__file__).parents[4] / "docs" / "server.md").read_text(encoding="utf-8")
KINDS = {kind.code: kind for kind in vars(errors).values() if isinstance(kind, Kind)}
ENDPOINTS = ("chat", "text", "responses", "messages", "count_tokens")
FIELDS = {"text": "prompt", "responses": "input"}
"""What of a request holds the prompt, where it is not `messages`."""
BROKEN_SCHEMA = '<schema name="a">\n  <module>x</module>\n</schema>'
BROKEN_PROMPT = '<prompt schema="a">\n  <nothing/>\n</prompt>'
SCHEMA = '<schema name="a"><module name="b">Text.</module></schema>'


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    status: int
    openai: str
    code: str | None
    anthropic_status: int
    anthropic: str
    kind: str


def table() -> dict[str | None, Row]:
    """The table, by OpenAI's codes."""
    lines = DOCUMENT.split("\n## Errors\n")[1].split("\n## ")[0].splitlines()
    found = {}
    for line in (line for line in lines if line.startswith("|")):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        statuses = re.findall(r"\d{3}", cells[1])
        if statuses:
            ours, theirs = (re.findall(r"`(\w+)`", cell) for cell in cells[2:4])
            code = ours[1] if len(ours) > 1 else None
            found[code] = Row(int(statuses[0]), ours[0], code, int(statuses[-1]), *theirs)
    return found


TABLE = table()


@dataclass
class Stage:
    """What a request is sent to, and how."""

    server: Served
    guarded: Served
    folder: Path
    patch: pytest.MonkeyPatch
    stack: ExitStack
    client: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    path: str = ""


def bad_value(stage: Stage) -> None:
    stage.changes = {"model": 5}


def unsupported(stage: Stage) -> None:
    stage.changes = {"typical_p": 0.5}


def too_long(stage: Stage) -> None:
    stage.changes = {"messages": [{"role": "user", "content": LONG * 20}], "prompt": LONG * 20}
    stage.changes["input"] = LONG * 20


def no_key(stage: Stage) -> None:
    stage.server, stage.client = stage.guarded, {"api_key": "wrong"}


def foreign(stage: Stage) -> None:
    stage.headers = {"origin": "https://evil.example"}


def no_model(stage: Stage) -> None:
    stage.changes = {"model": "gpt-9"}


def no_schema(stage: Stage) -> None:
    stage.changes = {"prompt_cache": {"schema": "nowhere"}}


def not_found(stage: Stage) -> None:
    stage.path = "nothing"


def no_method(stage: Stage) -> None:
    stage.path = "prompt_cache/plan"


def too_slow(stage: Stage) -> None:
    told = threading.Event()
    refuse = access.refuse

    async def refused(*given: Any) -> None:
        await refuse(*given)
        told.set()

    stage.patch.setattr(access, "refuse", refused)
    stage.patch.setattr(access, "BODY_SECONDS", 0.1)
    client = httpx2.Client(event_hooks={"request": [lambda request: halve(request, told)]})
    stage.client = {"http_client": stage.stack.enter_context(client)}


def too_large(stage: Stage) -> None:
    stage.server, stage.client = stage.guarded, {"api_key": "right"}
    stage.changes = {"metadata": {"padding": "x" * 3000}}


def wrong_type(stage: Stage) -> None:
    stage.headers = {"content-type": "application/x-www-form-urlencoded"}


def full(stage: Stage) -> None:
    stage.patch.setattr(stage.server.service, "limits", Limits(0, 0))


def loading(stage: Stage) -> None:
    stage.stack.callback(stage.server.service.opened, stage.server.engine)
    stage.server.service.closed()


def off(stage: Stage) -> None:
    stage.patch.setattr(stage.server.service, "off", True)


def draining(stage: Stage) -> None:
    stage.server = stage.stack.enter_context(served(stage.folder))
    asyncio.run_coroutine_threadsafe(stage.server.service.drain(0), stage.server.loop).result(10)


def fault(stage: Stage) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a secret")

    stage.patch.setattr(stage.server.engine, "conversation", broken)
    stage.patch.setattr(stage.server.engine, "schema", broken)


@dataclass(frozen=True)
class Case:
    """How a row comes about, and what is told then besides."""

    set: Callable[[Stage], None]
    words: str
    param: str | None = None


CASES: dict[str | None, Case] = {
    None: Case(bad_value, "must be a text, not 5", "model"),
    "unsupported_parameter": Case(unsupported, "not supported here", "typical_p"),
    "context_length_exceeded": Case(too_long, r"prompt is too long: \d+ tokens > 2047 maximum", "PROMPT"),
    "invalid_api_key": Case(no_key, "API key"),
    "forbidden": Case(foreign, "evil.example"),
    "model_not_found": Case(no_model, "no model 'gpt-9'", "model"),
    "schema_not_found": Case(no_schema, "no schema 'nowhere'", "prompt_cache.schema"),
    "not_found": Case(not_found, "There is no endpoint"),
    "method_not_allowed": Case(no_method, "does not take GET"),
    "request_timeout": Case(too_slow, "did not arrive"),
    "request_too_large": Case(too_large, "larger than 2000 bytes"),
    "unsupported_media_type": Case(wrong_type, "send JSON as application/json", "content-type"),
    "rate_limit_exceeded": Case(full, "no more fit"),
    "loading": Case(loading, "loading its model"),
    "switched_off": Case(off, "switched off"),
    "draining": Case(draining, "stopping"),
    "internal_error": Case(fault, "see its log under req_"),
}


class Half(httpx2.SyncByteStream):
    """The half of a body, and the rest once the server has said something."""

    def __init__(self, data: bytes, told: threading.Event) -> None:
        self._data, self._told = data, told

    def __iter__(self) -> Iterator[bytes]:
        yield self._data[:20]
        self._told.wait(10)
        yield self._data[20:]


def halve(request: httpx2.Request, told: threading.Event) -> None:
    request.stream = Half(request.read(), told)


def ask(stage: Stage, endpoint: str, **more: Any) -> Any:
    """Sends a request by the client of its dialect."""
    ours = endpoint in ("chat", "text", "responses")
    client = stage.server.openai(**stage.client) if ours else stage.server.anthropic(**stage.client)
    if stage.path:
        path = stage.path if ours else f"v1/{stage.path}"
        headers = {} if ours else {"anthropic-version": "2023-06-01"}
        return client.get(f"/{path}", cast_to=object, options={"headers": headers})
    asked: dict[str, Any] = {"model": stage.server.model, "extra_headers": stage.headers, **more}
    said: Any = [{"role": "user", "content": "Hello"}]
    changes = dict(stage.changes)
    prompt = changes.pop(FIELDS.get(endpoint, "messages"), None)
    for name in ("messages", "prompt", "input"):
        changes.pop(name, None)
    asked["extra_body"] = changes
    match endpoint:
        case "chat":
            return client.chat.completions.create(messages=prompt or said, **asked)
        case "text":
            return client.completions.create(prompt=prompt or "Hello", **asked)
        case "responses":
            return client.responses.create(input=prompt or "Hello", **asked)
        case "messages":
            changes |= {name: asked.pop(name) for name in ("temperature",) if name in asked}
            return client.messages.create(messages=prompt or said, max_tokens=5, **asked)
    return client.messages.count_tokens(messages=prompt or said, **asked)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    access = Access(keys=("right",), largest=2000)
    with served(tmp_path_factory.mktemp("guarded"), access=access) as running:
        yield running


@pytest.fixture
def stage(
    server: Served, guarded: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(server, guarded, tmp_path, monkeypatch, stack)


def test_the_table_has_the_rows_of_the_code_and_each_has_a_case() -> None:
    assert set(TABLE) == set(KINDS) == set(CASES)
    for code, row in TABLE.items():
        kind = KINDS[code]
        assert (row.status, row.anthropic_status, row.kind) == (
            kind.status,
            kind.status_in("anthropic"),
            kind.anthropic,
        )


COUNTED = ("rate_limit_exceeded", "context_length_exceeded")
"""What is only counted needs neither a place nor room in the context window."""
PAIRS = [
    (code, endpoint)
    for code in CASES
    for endpoint in ENDPOINTS
    if endpoint in (ENDPOINTS if EVERY else ("chat", "messages"))
    if endpoint != "count_tokens" or code not in COUNTED
]


@pytest.mark.parametrize(("code", "endpoint"), PAIRS)
def test_each_row_is_the_clients_own_exception(stage: Stage, code: str | None, endpoint: str) -> None:
    case, row = CASES[code], TABLE[code]
    case.set(stage)
    param = FIELDS.get(endpoint, "messages") if case.param == "PROMPT" else case.param
    error: Any
    if endpoint in ("messages", "count_tokens"):
        with pytest.raises(anthropic.APIStatusError) as theirs:
            ask(stage, endpoint)
        error = theirs.value
        assert type(error).__name__ == row.anthropic
        assert (error.status_code, error.type) == (row.anthropic_status, row.kind)
        message = error.api_message
        assert error.body["request_id"] == error.request_id
        begins = "" if param is None or case.param == "PROMPT" else f"{param}: "
        assert message.startswith(begins)
    else:
        with pytest.raises(openai.APIStatusError) as ours:
            ask(stage, endpoint)
        error = ours.value
        assert type(error).__name__ == row.openai
        assert (error.status_code, error.code, error.param) == (row.status, code, param)
        assert error.type == KINDS[code].type
        message = error.body["message"]
    assert re.search(case.words, message), message
    assert error.request_id.startswith("req_")
    assert "secret" not in str(error)
    assert "Traceback" not in str(error)
    assert error.response.headers.get("retry-after") == ("1" if KINDS[code].retry else None)


@pytest.mark.parametrize("endpoint", ENDPOINTS if EVERY else ("responses", "count_tokens"))
@pytest.mark.parametrize(
    ("name", "asked", "place"),
    [
        ("schema", {"schema": BROKEN_SCHEMA}, (2, 4)),
        ("prompt", {"schema": SCHEMA, "prompt": BROKEN_PROMPT}, (2, 4)),
    ],
)
def test_faults_of_pml_are_told_with_line_and_column(
    stage: Stage, endpoint: str, name: str, asked: dict[str, str], place: tuple[int, int]
) -> None:
    stage.changes = {"prompt_cache": asked}
    error: Any
    if endpoint in ("messages", "count_tokens"):
        with pytest.raises(anthropic.BadRequestError, match=f"prompt_cache.{name}: ") as theirs:
            ask(stage, endpoint)
        error = theirs.value
        told = error.body["error"]
    else:
        with pytest.raises(openai.BadRequestError) as ours:
            ask(stage, endpoint)
        error = ours.value
        assert error.param == f"prompt_cache.{name}"
        told = error.body
    first = told["diagnostics"][0]
    assert (first["line"], first["column"]) == place
    assert re.fullmatch(r"E\d{3}", first["code"])
    assert first["message"]


def test_a_connection_on_which_the_server_has_failed_is_let_go_of_in_words(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, asked = stage.server.http, {"model": stage.server.model, "prompt": "Hello", "max_tokens": 1}
    with monkeypatch.context() as patch:
        patch.setattr(stage.server.engine, "schema", lambda *_, **__: 1 // 0)
        told = client.post("/v1/completions", json=asked)
    assert (told.status_code, told.headers["connection"]) == (500, "close")
    assert client.post("/v1/completions", json=asked).status_code == 200


@pytest.mark.parametrize("endpoint", ["chat", "text", "responses", "messages"])
@pytest.mark.parametrize("code", ["internal_error", "draining"])
def test_what_breaks_off_a_stream_is_an_event_and_the_clients_exception(
    stage: Stage, endpoint: str, code: str
) -> None:
    events_of = Running.events

    async def broken(running: Running) -> AsyncIterator[Event]:
        async for event in events_of(running):
            yield event
            if isinstance(event, Delta):
                raise ValueError("a secret") if code == "internal_error" else ClosedError("The engine ends.")

    stage.patch.setattr(Running, "events", broken)
    stage.changes["temperature"] = 0
    kind, told = KINDS[code], []
    error: Any
    with pytest.raises(anthropic.APIError if endpoint == "messages" else openai.APIError) as raised:
        told.extend(ask(stage, endpoint, stream=True))
    error = raised.value
    assert told, "something was told before"
    if endpoint == "messages":
        assert isinstance(error, anthropic.APIStatusError)
        assert error.type == kind.anthropic
        assert error.body["request_id"] == error.request_id
    else:
        assert (error.code, error.type) == (kind.code, kind.type)
    words = "see its log under req_" if code == "internal_error" else "cancelled this answer"
    assert words in str(error)
    assert "secret" not in str(error)


def test_streams_that_break_off_end_with_their_error(stage: Stage) -> None:
    """Without a mark of the end, which would make what came before an answer."""
    events_of = Running.events

    async def broken(running: Running) -> AsyncIterator[Event]:
        async for event in events_of(running):
            yield event
            if isinstance(event, Delta):
                raise ValueError("a secret")

    stage.patch.setattr(Running, "events", broken)
    asked = {"model": stage.server.model, "stream": True, "max_tokens": 5, "temperature": 0}
    said = {"messages": [{"role": "user", "content": "Hello"}], "prompt": "Hello"}
    ends = {"chat/completions": "[DONE]", "completions": "[DONE]", "messages": "message_stop"}
    for path, end in ends.items():
        told = httpx.post(f"{stage.server.url}/v1/{path}", json={**asked, **said}).text
        assert '"error"' in told.strip().split("\n\n")[-1]
        assert end not in told
