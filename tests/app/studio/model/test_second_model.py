"""A stored run's prompt on another model or server: both runs stay, and the first model answers again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.models import model_fit
from app.models.model_choice import ModelChoice
from app.studio.history import Record
from app.studio.history.exchange import answers_of, promptfoo_config
from app.studio.model.local_server import models_of, server_at, stream
from engine import Engine
from engine.base.errors import ModelError, PromptCacheError
from engine.inference.run_settings import RunSettings
from engine.quantize.memory_fit import Free
from tests.app.studio.asked import Asked
from tests.app.studio.history.test_kept_runs import frame, record
from tests.app.studio.model.test_switching import TEXTS

KEY = "sk-secret-of-nobody"
SETTINGS = {"max_new_tokens": 3, "repeats": 1}


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Asked]:
    """A studio with the bundled model and one stored run."""
    asked = Asked(tmp_path)
    kept = {"cache_dir": tmp_path / "cache"}
    asked.parts.switching.begun(Engine.open("demo", **kept), ModelChoice(), kept)
    asked.ask("run_prompt", {"key": "first", **TEXTS, "settings": SETTINGS, "mode": "both"})
    assert asked.ended("first")["result"]["kept"] == first_run(asked)
    yield asked
    asked.parts.opening.leave().close()


@pytest.fixture
def history(tmp_path: Path) -> Asked:
    """A studio with one stored run and no model."""
    asked = Asked(tmp_path)
    asked.parts.kept.keep(record(frame=frame(settings=SETTINGS)))
    return asked


def first_run(studio: Asked) -> str:
    return next(run["id"] for run in studio.parts.kept.summaries() if not run["linked"])


def compared(studio: Asked, name: str | Path, **given: Any) -> dict[str, Any]:
    begun = studio.ask("compare_model", {"key": "k", "run": first_run(studio), "name": str(name), **given})
    assert begun.get("error") is None, begun["error"]
    return studio.ended("k")


def record_of(studio: Asked, run: str) -> Record:
    return studio.parts.kept.find([run])[0]


def test_a_model_that_fits_answers_beside_the_first_one(studio: Asked, tiny_model: Path) -> None:
    engine, before = studio.parts.engine, record_of(studio, first_run(studio))
    result = compared(studio, tiny_model)["result"]
    assert studio.parts.engine is engine
    second = record_of(studio, result["second"])
    assert (result["first"], second.linked) == (before.id, before.id)
    assert record_of(studio, before.id) == before
    assert second.told["model"]["fingerprint"] != before.told["model"]["fingerprint"]
    assert (second.schema, second.prompt, second.told["mode"]) == (before.schema, before.prompt, "both")
    assert all(second.told["sides"][side]["ttft_ms"] for side in ("cached", "uncached"))
    assert second.told["settings"] == before.told["settings"]
    assert len(studio.parts.runs.history) == 1, "it is no run of this session's model"
    table = studio.ask("compare_runs", {"ids": [before.id, second.id]})["runs"]
    assert [run["summary"]["linked"] for run in table] == ["", before.id]
    assert studio.ask("models_state")["switching"] is None


def test_a_model_that_does_not_fit_replaces_the_first_one_for_the_run(
    studio: Asked, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, choice = studio.parts.engine, studio.parts.switching.choice
    fits = model_fit.fit
    monkeypatch.setattr(model_fit, "RESERVE", 0)
    monkeypatch.setattr(model_fit, "fit", lambda look, beside: fits(look, beside, Free(0, 1 << 40)))
    used = studio.parts.switching.beside
    monkeypatch.setattr(type(studio.parts.switching), "beside", (used[0], 1 << 40, used[2]))
    refused = studio.ask("compare_model", {"key": "k", "run": first_run(studio), "name": str(tiny_model)})
    assert "Both models do not fit" in refused["error"]
    assert studio.parts.engine is former
    result = compared(studio, tiny_model, apart=True)["result"]
    assert record_of(studio, result["second"]).linked == first_run(studio)
    assert studio.parts.engine is not former
    assert studio.parts.engine.model.fingerprint == former.model.fingerprint
    assert studio.parts.switching.choice == choice
    opened = Engine.open

    def stops(name: str, **options: Any) -> Engine:
        if name == str(tiny_model):
            studio.ask("stop_job", {"key": "k"})
        return opened(name, **options)

    def breaks(name: str, **options: Any) -> Engine:
        if name == str(tiny_model):
            raise ModelError("its file is damaged")
        return opened(name, **options)

    for fails, fault in ((stops, "Stopped."), (breaks, "Its file is damaged")):
        monkeypatch.setattr(Engine, "open", fails)
        gone = studio.parts.engine
        assert compared(studio, tiny_model, apart=True)["fault"] == fault
        assert studio.parts.engine is not gone
        assert studio.parts.engine.model.fingerprint == former.model.fingerprint
        assert len(studio.parts.kept.summaries()) == 2
    monkeypatch.undo()


class Fake(BaseHTTPRequestHandler):
    """A server with OpenAI's API; the second of two equal requests comes from its cache."""

    seen: list[dict[str, Any]]
    status = 200
    hangs = threading.Event()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.reply(json.dumps({"data": [{"id": "one"}, {"id": "two"}]}).encode())

    def reply(self, body: bytes) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cached = 9 if self.seen else 0
        self.seen.append({**body, "authorization": self.headers.get("Authorization")})
        if self.status != 200:
            return self.reply(b'{"error": {"message": "No such model."}}')
        self.send_response(200)
        self.end_headers()
        words = ["Yes", ", ", "it", " is."]
        chunks: list[Any] = [{"choices": [{"delta": {"content": word}}]} for word in words]
        chunks.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
        usage = {
            "prompt_tokens": 12,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        chunks.append({"choices": [], "usage": usage})
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
            if self.hangs.is_set():
                self.rfile.read(1)
        self.wfile.write(b"data: [DONE]\n\n")


@contextmanager
def fake_server(handler: type[Fake] = Fake) -> Iterator[tuple[str, type[Fake]]]:
    """A running server with its base URL."""
    own_handler = type("Own", (handler,), {"seen": [], "hangs": threading.Event()})
    own = ThreadingHTTPServer(("127.0.0.1", 0), own_handler)
    own.daemon_threads = True
    threading.Thread(target=own.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{own.server_port}/v1", own_handler
    own.shutdown()
    own.server_close()


@pytest.fixture
def server() -> Iterator[tuple[str, type[Fake]]]:
    with fake_server() as running:
        yield running


def on_server(studio: Asked, url: str, key: str = "s") -> Any:
    wanted = {"key": key, "run": first_run(studio), "base_url": url, "model": "one", "api_key": KEY}
    begun = studio.ask("compare_server", wanted)
    assert begun.get("error") is None, begun["error"]
    return begun


def test_a_server_of_this_machine_answers_the_same_prompt(
    history: Asked, server: tuple[str, type[Fake]], tmp_path: Path
) -> None:
    url, fake = server
    assert history.ask("server_models", {"base_url": url})["models"] == ["one", "two"]
    on_server(history, url)
    result = history.ended("s")["result"]
    second = record_of(history, result["second"])
    told = second.told
    assert second.linked == first_run(history)
    assert told["model"]["name"] == "one"
    assert told["model"]["device"] == f"server at {url}"
    assert [told["sides"][side]["text"] for side in ("cached", "uncached")] == ["Yes, it is."] * 2
    assert told["sides"]["cached"]["tokens"] == {
        "prompt": 12,
        "generated": 4,
        "from_cache": 9,
        "computed": 3,
    }
    assert told["sides"]["uncached"]["tokens"]["from_cache"] == 0
    assert told["sides"]["cached"]["ended"] == "length"
    assert told["sides"]["cached"]["ttft_ms"]
    once, again = fake.seen
    assert once == again
    assert (once["authorization"], once["max_tokens"], once["model"]) == (f"Bearer {KEY}", 3, "one")
    assert [message["role"] for message in once["messages"]] == ["user"]
    assert "one two" in once["messages"][0]["content"]
    history.parts.database.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    (provider, *_) = promptfoo_config(answers_of(second), "x")["providers"]
    assert provider["config"]["apiBaseUrl"] == url, "promptfoo asks the server that answered"
    assert KEY not in json.dumps(history.ask("job_state", {"key": "s"}))


def test_a_server_that_fails_or_is_stopped_says_so_and_nothing_is_lost(
    history: Asked, server: tuple[str, type[Fake]]
) -> None:
    url, fake = server
    fake.status = 404
    on_server(history, url)
    assert history.ended("s")["fault"] == f"The server at {url[7:-3]} answers with status 404: No such model."
    fake.status = 200
    fake.hangs.set()
    on_server(history, url, "s2")
    while not (
        (run := history.ask("job_state", {"key": "s2"})["result"]["run"]) and "Yes" in json.dumps(run)
    ):
        pass
    history.ask("stop_job", {"key": "s2"})
    stopped = history.ended("s2")["result"]
    assert stopped["run"]["state"] == "stopped"
    assert record_of(history, stopped["second"]).told["sides"]["uncached"]["text"] == "Yes"
    on_server(history, "http://127.0.0.1:1/v1", "s3")
    assert history.ended("s3")["fault"] == "No server answers at 127.0.0.1:1. Start it, then try again."
    assert record_of(history, first_run(history)).told["state"] == "done"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://127.0.0.1/v1",
            "http://example.org/v1",
            "http://127.0.0.1@evil/v1",
            "http://[",
            "file:///x",
        ),
        *("http://@127.0.0.1", "http://u:p@localhost/v1", "http://127.0.0.1/a b", "http://[::1%lo]/v1", ""),
        *("http://127.0.0.1/v1\r\nX: y", "http://127.0.0.1/v1\r\nX:y", "http://127.0.0.1:9/\u00e9"),
        *("http://127.0.0.1?x=1", "http://127.0.0.1/v1?", "http://127.0.0.1/v1#", "http://127.0.0.1/#x"),
        *("127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:x", "127.0.0.1:\uff18"),
    ],
)
def test_only_servers_of_this_machine_are_asked(url: str) -> None:
    with pytest.raises(PromptCacheError):
        server_at(url)


def test_an_address_needs_no_scheme_and_no_path() -> None:
    assert server_at("localhost:8080") == server_at("http://localhost:8080/v1/")
    assert KEY not in repr(server_at("127.0.0.1:1", "one", KEY))
    assert server_at("http://[::1]:65535").base_url == "http://[::1]:65535/v1"


class Odd(Fake):
    """Answers every request with `body`, which is an event of a stream if it is no error."""

    body = b""

    def do_GET(self) -> None:
        self.reply(self.body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))  # unread bytes would reset the connection
        self.reply(b"data: " + self.body + b"\n\n" if self.status == 200 else self.body)


NESTED = b"[" * 200_000
NO_API = "The server's answer is not that of an OpenAI-compatible API ("


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        *((200, body, NO_API) for body in (NESTED, b"[]", b'{"data": null, "choices": 1}', b"9" * 5000)),
        (200, b'{"data": [[1]], "choices": [[1]]}', NO_API),
        (200, b"<html>", NO_API),
        (500, NESTED, "answers with status 500."),
        (401, json.dumps({"error": {"message": f"bad key {KEY}!"}}).encode(), "bad key (the key)!"),
        (401, json.dumps({"error": "x" * 290 + KEY}).encode(), "x(the key)"),
        (401, json.dumps({"error": {"message": [KEY]}}).encode(), "it reports an error"),
    ],
)
def test_an_odd_answer_gets_a_sentence_without_pythons_words_and_the_key(
    status: int, body: bytes, words: str
) -> None:
    with fake_server(type("Own", (Odd,), {"status": status, "body": body})) as (url, _):
        server = server_at(url, "one", KEY)
        with pytest.raises(PromptCacheError) as looked:
            models_of(server)
        with pytest.raises(PromptCacheError) as streamed:
            list(stream(server, [], RunSettings(), lambda: False))
    for told in (str(looked.value), str(streamed.value)):
        assert words in told
        assert KEY[:12] not in told
        assert words != NO_API or url in told


def test_a_stream_that_reports_an_error_shows_no_key() -> None:
    body = json.dumps({"error": {"message": f"bad key {KEY}"}}).encode()
    refused = pytest.raises(PromptCacheError, match=r"bad key \(the key\)\.$")
    with fake_server(type("Own", (Odd,), {"body": body})) as (url, _), refused:
        list(stream(server_at(url, "one", KEY), [], RunSettings(), lambda: False))
