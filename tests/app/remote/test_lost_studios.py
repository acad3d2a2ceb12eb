"""Studios that go away, fail, or are others by now: nobody else learns anything, nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.base.options import ModelOptions
from app.remote import client
from app.remote.client import LostError, asked
from app.remote.presence import Presence, forget, present
from app.studio.model import remote_runs
from app.studio.web.streaming import in_a_thread, send_lines
from engine import Engine
from engine.base.errors import ClosedError, StoreError
from engine.store import Store
from tests.app.remote.test_handover import (
    BEGUN,
    FIRST,
    PROMPT,
    RUN,
    SCHEMA,
    LoadedError,
    held,
    impostor,
    terms,
)

Run = Callable[..., SimpleNamespace]


@pytest.fixture(autouse=True)
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No studio of other tests tells that it is there, and the command must not load a model."""

    def refuse(_: ModelOptions) -> Engine:
        raise LoadedError

    monkeypatch.setattr(ModelOptions, "open", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def test_the_secret_goes_only_where_it_was_proved_to_be_known(tmp_path: Path) -> None:
    heard: list[tuple[str, int]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
            heard.append((self.path, self.client_address[1]))
            body = json.dumps({"proof": studio.proof(sent.get("challenge", ""))}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        studio = Presence(server.server_port, held(terms(tmp_path)))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with pytest.raises(LostError):
            list(asked(studio, {"schema": "", "prompt": "", "settings": {}, "mode": "cached"}))
        server.shutdown()
    assert [path for path, _ in heard] == ["/runs/greeting"]


def test_a_line_that_cannot_be_written_ends_the_answer() -> None:
    sent: list[Any] = []

    def lines() -> Iterator[dict[str, Any]]:
        yield {"event": "begun", "probe": object()}

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def bounded() -> None:
        computed = in_a_thread(lines(), asyncio.Semaphore(1))
        await asyncio.wait_for(send_lines(computed, receive, send), 5)

    with pytest.raises(TypeError, match="JSON"):
        asyncio.run(bounded())
    assert sent[1:] == [{"type": "http.response.body", "body": b""}]


ANSWER: dict[str, Any] = {
    "ttft_ms": 1.0,
    "tpot_ms": None,
    "timeline_ms": {},
    "tokens": {"prompt": 1, "from_cache": 0, "encoded": 0, "computed": 1, "generated": 1},
    "warnings": [],
}
FINISHED = {"event": "finished", "side": "cached", "answer": ANSWER}
WHOLE = [BEGUN, FIRST, FINISHED, {"event": "over"}]
SECRET = "s" * 64


def test_a_file_whose_port_is_anothers_is_forgotten_and_the_next_studio_asked(
    run_pml: Run, tmp_path: Path
) -> None:
    here = held(terms(tmp_path))
    with (
        impostor(WHOLE, Presence(1, here, SECRET).proof) as (port, _),
        impostor([], lambda challenge: challenge) as (other, heard),
        Presence(port, here, SECRET).told(),
        Presence(other, here).told(),
    ):
        for _ in range(2):
            found = run_pml(*RUN, "--cache-dir", tmp_path)
            assert (found.status, found.err) == (0, "")
        assert [one.port for one in present()] == [port]
    assert [path for path, _ in heard] == ["/runs/greeting"]


def test_the_file_of_a_studio_that_took_the_port_stays(tmp_path: Path) -> None:
    here = held(terms(tmp_path))
    later = Presence(7860, here)
    with later.told():
        forget(Presence(7860, here))
        assert present() == [later]


@pytest.mark.parametrize("fault", [MemoryError(), ClosedError("the engine is closed")])
@pytest.mark.parametrize("printed", [False, True])
def test_a_fault_of_the_studios_own_is_not_the_runs(
    run_pml: Run, tmp_path: Path, fault: Exception, printed: bool
) -> None:
    here = held(terms(tmp_path))
    lines = [BEGUN, *([FIRST] if printed else []), remote_runs.of_fault(fault)]
    with impostor(lines, Presence(1, here, SECRET).proof) as (port, _), Presence(port, here, SECRET).told():
        found = run_pml(*RUN, "--cache-dir", tmp_path)
    assert found.status == 1
    assert ("Loaded" in found.err) != printed
    assert (str(fault) or "MemoryError") in found.err


def test_a_studio_without_room_for_a_run_has_it_computed_here(run_pml: Run, tmp_path: Path) -> None:
    here = held(terms(tmp_path))
    proof = Presence(1, here, SECRET).proof
    with impostor(WHOLE, proof, client.FULL) as (port, _), Presence(port, here, SECRET).told():
        found = run_pml(*RUN, "--cache-dir", tmp_path)
        assert len(present()) == 1, "it is asked again the next time"
    assert "its queue is full" in found.err
    assert "Loaded" in found.err


def test_what_could_not_be_stored_is_told_with_the_run(
    run_pml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = threading.Event()

    def full(*_: Any, **__: Any) -> None:
        finished.wait(60)
        raise StoreError("no block is left")

    monkeypatch.setattr(Store, "save", full)
    run: remote_runs.HandedRun = {
        "schema": SCHEMA.read_text(),
        "prompt": PROMPT.read_text(),
        "settings": {"max_new_tokens": 2},
        "mode": "cached",
    }
    lines = []
    with Engine.open("demo", cache_dir=tmp_path / "cache") as engine:
        for line in remote_runs.computed(engine, run):
            lines.append(line)
            if line["event"] == "finished":
                finished.set()
        assert engine.segment_cache.unsaved() is None, "it was told"
    assert [line["event"] for line in lines][-4:] == ["finished", "read", "unsaved", "over"]
    here = held(terms(tmp_path))
    with impostor(lines, Presence(1, here, SECRET).proof) as (port, _), Presence(port, here, SECRET).told():
        found = run_pml(*RUN, "--cache-dir", tmp_path)
        as_json = run_pml(*RUN, "--cache-dir", tmp_path, "--json")
    assert found.status == 0
    assert "pml: The answer is complete, but" in found.err
    assert "no block is left" in found.err
    assert "could not be stored" in json.loads(as_json.out)["cached"]["warnings"][0]


@contextlib.contextmanager
def stranger(sent: bytes, seconds: float) -> Iterator[tuple[int, list[int]]]:
    """A port on which somebody answers every request with these bytes, one after the other, so far apart."""
    over, gone = threading.Event(), list[int]()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                held, _ = listener.accept()
                held.recv(1 << 16)
                for byte in sent:
                    gone.append(held.send(bytes([byte])))
                    if over.wait(seconds):
                        break
                over.wait(2)  # closed with words unread, it would be an error of the line
                held.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1], gone
        over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4096\r\n"


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (HEAD + b"\r\n" + b" " * 4096, 0.02),  # a body that drips
        pytest.param(HEAD + b"x: y\r\n" * 4096, 0.02, marks=pytest.mark.long),  # headers that do
        pytest.param(HEAD + b"connection: close\r\n\r\n" + b" " * 4096, 0.02, marks=pytest.mark.long),
        (HEAD + b"\r\n" + b"[" * 4096, 0.0),
    ],
)
def test_a_stranger_on_the_port_of_a_studio_that_was_killed_is_not_waited_for(
    run_pml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, seconds: float
) -> None:
    monkeypatch.setattr(client, "GREETING_SECONDS", 1.0)
    with stranger(sent, seconds) as (port, gone), Presence(port, held(terms(tmp_path))).told():
        found = run_pml(*RUN, "--cache-dir", tmp_path)
        assert len(gone) < len(sent) / 4 or not seconds, "all of it was waited for"
        assert "does not answer" in found.err
        assert "Loaded" in found.err
        assert present() == [], "the next run does not ask there again"


def test_a_text_that_no_document_can_hold_is_answered_here(run_pml: Run, tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("one page\x0canother")
    schema, prompt = tmp_path / "s.pml", tmp_path / "p.pml"
    schema.write_text('<schema name="s"><module name="page" src="page.txt"/></schema>')
    prompt.write_text('<prompt schema="s"><page/>What has it?</prompt>')
    with Presence(1, held(terms(tmp_path))).told():
        found = run_pml("run", prompt, "--schema", schema, "--cache-dir", tmp_path)
    assert "No studio is used, because" in found.err
    assert "U+000C" in found.err
    assert "Loaded" in found.err


def test_a_pipe_among_the_files_of_studios_keeps_nobody_waiting(run_pml: Run, tmp_path: Path) -> None:
    with Presence(1, held(terms(tmp_path))).told():
        (place,) = {path.parent for path in (tmp_path / "home").rglob("*.json")}
    assert place.name == "studios"
    os.mkfifo(place / "pipe.json", 0o600)
    assert "Loaded" in run_pml(*RUN, "--cache-dir", tmp_path).err
