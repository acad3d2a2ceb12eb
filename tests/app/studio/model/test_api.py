"""Other programs are served beside the studio's page: their door, its guard, its model, and their end."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from app.models.model_choice import ModelChoice
from app.studio.model.api import Api, Offer
from app.studio.model.model_switcher import Everybody
from tests.app.studio.studio_server import Served

Pml = Callable[..., SimpleNamespace]
LONG = {"model": "demo", "max_tokens": 60, "stream": True, "prompt": "It was a bright cold day in"}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A studio whose model may be switched. The last of its tests stops it."""
    made = Served(tmp_path_factory.mktemp("api"))
    yield made
    made.stop()


class Stream(threading.Thread):
    """A streamed answer that is read to its end."""

    def __init__(self, url: str, model: str = "demo") -> None:
        super().__init__(daemon=True)
        self._asked = {**LONG, "model": model}
        self._url, self.begun, self.lines = url, threading.Event(), list[str]()
        self.start()
        assert self.begun.wait(60)

    def run(self) -> None:
        with httpx.stream("POST", f"{self._url}/v1/completions", json=self._asked, timeout=60) as answer:
            for line in answer.iter_lines():
                if line:
                    self.lines.append(line)
                    self.begun.set()

    def ended(self) -> list[Any]:
        """All that came before the mark of the end, which must have come."""
        self.join(60)
        assert self.lines[-1] == "data: [DONE]", self.lines[-3:]
        return [json.loads(line.removeprefix("data: ")) for line in self.lines[:-1]]


def ready(studio: Served) -> None:
    while studio.send("GET", "/health").status != 200:
        pass


def models(studio: Served) -> list[str]:
    return [one["id"] for one in json.loads(studio.send("GET", "/v1/models").body)["data"]]


def test_the_page_and_the_routes_have_a_guard_and_a_door_of_their_own(own: Served) -> None:
    ready(own)
    page, listed = own.send("GET", "/"), own.send("GET", "/v1/models")
    assert (page.status, listed.status, models(own)) == (200, 200, ["demo"])
    assert "content-security-policy" in page.headers
    assert "content-security-policy" not in listed.headers
    assert listed.headers["x-request-id"].startswith("req_")
    assert b"pml_requests_inside" in own.send("GET", "/metrics").body
    for path in ("/v1", "/v1x", "/docs", "/openapi.json", "/gradio_api/info"):
        assert own.send("GET", path).status == 404, path
    for path in ("/", "/v1/models", "/health", "/metrics", "/alive"):
        foreign = {"origin": "http://evil.example"}
        refused = own.send("GET", path, headers=foreign)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (403, None), path
        assert own.send("GET", path, headers={"host": "evil.example"}).status == 403, path
    preflight = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    assert own.send("OPTIONS", "/v1/messages", headers=preflight).status == 403
    body = json.dumps({"model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]})
    kind = {"content-type": "application/json"}
    assert own.send("POST", "/v1/messages", body, kind).status == 200


def test_requests_are_answered_by_the_model_that_the_studio_has_now(own: Served, tiny_model: Path) -> None:
    ready(own)
    under_way = Stream(own.url)
    begun = own.ask("switch_model", {"key": "1-1", "name": str(tiny_model)})
    assert begun.get("error") is None, begun
    states = [json.loads(line) for line in own.send("GET", "/work?key=1-1").body.splitlines()]
    assert states[-1]["fault"] == ""
    assert under_way.ended()[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    (name,) = models(own)
    assert name == Path(states[-1]["result"]["model"]).name != "demo"
    gone = own.send("POST", "/v1/completions", json.dumps(LONG), {"content-type": "application/json"})
    assert gone.status == 404
    assert name.encode() in gone.body
    asked = json.dumps({"model": name, "max_tokens": 2, "prompt": "abc"})
    answer = own.send("POST", "/v1/completions", asked, {"content-type": "application/json"})
    assert json.loads(answer.body)["usage"]["completion_tokens"] == 2


def test_answers_under_way_end_before_the_studio_does(own: Served) -> None:
    ready(own)
    under_way = Stream(own.url, models(own)[0])
    own.stop()
    assert under_way.ended()[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    with pytest.raises(OSError, match="refused"):
        own.send("GET", "/health")


class Behind:
    """Stands for the server's service."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def opened(self, engine: Any) -> None:
        self.told.append(("opened", engine))

    def closed(self) -> None:
        self.told.append("closed")

    def drain_now(self) -> None:
        self.told.append("ended")


def test_requests_count_for_the_engine_that_they_came_to() -> None:
    api, behind, first, second = Api(Offer()), Behind(), object(), object()
    api._service = behind  # type: ignore[assignment]
    everybody, release, paths = Everybody((api,)), asyncio.Event(), list[str]()

    async def routes(scope: Any, _receive: Any, _send: Any) -> None:
        paths.append(scope["path"])
        await release.wait()

    async def page(scope: Any, _receive: Any, _send: Any) -> None:
        paths.append(f"page {scope['path']}")

    async def asked() -> None:
        front = api.beside(page)
        one = asyncio.ensure_future(front({"type": "http", "path": "/v1/models"}, None, None))  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        assert paths == [], "who comes before the routes are there waits for them"
        api._app = routes
        everybody.expect(ModelChoice())(first)  # type: ignore[arg-type]
        while not paths:
            await asyncio.sleep(0.01)
        everybody.expect(ModelChoice())(second)  # type: ignore[arg-type]
        assert (everybody.busy(first), everybody.busy(second)) == (1, 0)  # type: ignore[arg-type]
        everybody.stop(second)  # type: ignore[arg-type]
        everybody.leave()
        everybody.stop(first)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        release.set()
        await one
        assert everybody.busy(first) == 0  # type: ignore[arg-type]
        await front({"type": "http", "path": "/v2"}, None, None)  # type: ignore[arg-type]
        await front({"type": "websocket", "path": "/v1/models"}, None, None)  # type: ignore[arg-type]

    asyncio.run(asked())
    assert paths == ["/v1/models", "page /v2", "page /v1/models"]
    assert behind.told == [("opened", first), ("opened", second), "closed", "ended"]


def test_a_request_counts_once_its_body_is_there() -> None:
    api, engine = Api(Offer()), object()
    api._service = Behind()  # type: ignore[assignment]
    busy: list[int] = []
    parts = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.request", "body": b"}"},
    ]

    async def routes(_scope: Any, receive: Any, _send: Any) -> None:
        for _ in range(2):
            busy.append(api.busy(engine))  # type: ignore[arg-type]
            await receive()
        busy.append(api.busy(engine))  # type: ignore[arg-type]

    async def receive() -> Any:
        return parts.pop(0)

    api._app = routes
    api.expect(ModelChoice())(engine)  # type: ignore[arg-type]
    front = api.beside(routes)
    asyncio.run(front({"type": "http", "path": "/v1/messages", "method": "POST"}, receive, None))  # type: ignore[arg-type]
    assert busy == [0, 0, 1]
    assert api.busy(engine) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("serve", "tiny", "--studio"),
            "Serving tiny at http://127.0.0.1:8123: base URL http://127.0.0.1:8123/v1 for OpenAI clients",
        ),
        (("studio", "--model", "tiny", "--no-browser"), "Starting the studio at http://127.0.0.1:8123"),
    ],
)
def test_the_studio_serves_by_the_options_of_serve(
    command: tuple[str, ...], said: str, tmp_path: Path, run_pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def launch(**how: Any) -> None:
        asked.update(how)
        how.get("ready", print)("http://127.0.0.1:8123")

    import app.studio.model

    module = ModuleType("app.studio")
    module.__dict__.update(launch=launch, model=app.studio.model, __path__=[])
    monkeypatch.setitem(sys.modules, "app.studio", module)
    words = ("--port", "8123", "--api-key", "one", "--alias", "other", "--isolate", "--grace", "2")
    monkeypatch.setenv("PML_OPERATOR_KEYS", "ops, more")
    (tmp_path / "keys").write_text("third\n\nops\n")
    operators = ("--operator-keys-file", tmp_path / "keys")
    limits = ("--parallel", "3", "--waiting", "0", "--max-new-tokens", "7", "--body", "1MB")
    limits = (*limits, "--strict-ttl", "--min-cache-tokens", "9")
    result = run_pml(
        *(*command, *words, *limits, *operators, "--origin", "http://a.example"),
        *("--reuse", "auto", "--max-kl", "0.1"),
        *("--allowed-host", "Host.docker.internal", "--allowed-host", "[fe80::1]"),
        "--cache-dir",
        tmp_path,
    )
    assert result.status == 0, result.err
    assert said in result.out
    assert asked["offer"] == Offer(
        *(("one",), frozenset({"http://a.example"}), 1_000_000, 3, 0, ("other",), 7, True, True, 9, 2),
        *(("ops", "more", "third"), frozenset({"host.docker.internal", "[fe80::1]"})),
        {"reuse": "auto", "max_kl": 0.1},
    )
    assert (asked["model"], asked["port"], asked["open_browser"]) == ("tiny", 8123, False)
    assert asked["cache_dir"] == tmp_path


@pytest.mark.parametrize("command", [("serve",), ("serve", "--studio"), ("studio", "--no-browser")])
def test_nobody_is_set_apart_without_keys(command: tuple[str, ...], run_pml: Pml) -> None:
    result = run_pml(*command, "--isolate")
    assert result.status == 2
    assert "--isolate separates clients by key, but there are no keys" in result.err


@pytest.mark.parametrize("name", ["http://proxy", "proxy:8000", "fe80::1", "a b", ""])
def test_a_name_that_is_allowed_is_a_name_alone(name: str, run_pml: Pml) -> None:
    result = run_pml("serve", "--allowed-host", name)
    assert result.status == 2
    assert "Write only the name, without http:// and port" in result.err


def test_an_operators_key_is_no_clients(run_pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PML_OPERATOR_KEYS", "two,one")
    result = run_pml("serve", "--api-key", "one")
    assert result.status == 2
    assert "both an operator key and an API key" in result.err


def test_the_studio_stays_on_this_machine(run_pml: Pml) -> None:
    result = run_pml("serve", "--studio", "--host", "0.0.0.0", "--api-key", "one")
    assert result.status == 2
    assert "127.0.0.1 only" in result.err
