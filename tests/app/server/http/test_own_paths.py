"""No client is told where things lie on the server's machine; the log is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from app.server.http.redact_paths import PLACE, for_clients, without_paths
from engine.base.errors import StoreError
from engine.store.blobs.local_files import LocalBlobs
from engine.store.write_behind import Behind
from tests.app.server.served import LONG, Served, served


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server whose disk is full once it is open, and which finds that out before an answer ends."""
    with served(tmp_path / "it's secret") as running:

        def full(blobs: LocalBlobs, *_: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(running.engine.store.folder / "x"))

        monkeypatch.setattr(LocalBlobs, "write", full)
        monkeypatch.setattr(Behind, "put", lambda _self, work, _key="", _size=0: work())
        yield running


@pytest.mark.parametrize(
    ("path", "stream"), [("messages", True), ("chat/completions", False), ("responses", True)]
)
def test_warnings_name_no_folder_and_the_log_does(
    faulty: Served, caplog: pytest.LogCaptureFixture, path: str, stream: bool
) -> None:
    part: dict[str, Any] = {"type": "text", "text": LONG, "module": "a"}
    body: dict[str, Any] = {"model": faulty.model, "include": ["prompt_cache"], "stream": stream}
    turn = {"role": "user", "content": [part, {"type": "text", "text": "Well?"}]}
    body |= {"input": [turn]} if path == "responses" else {"messages": [turn], "max_tokens": 2}
    text = faulty.http.post(f"/v1/{path}", json=body).text
    assert "could not be written" in text
    assert PLACE in text
    assert "secret" not in text
    assert str(faulty.engine.store.folder)[:9] not in text
    assert any("secret" in record.getMessage() for record in caplog.records)


def test_a_fault_of_the_store_names_no_folder(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise StoreError("the cache folder '/srv/somewhere/pml' cannot be used: it is full. Choose another.")

    monkeypatch.setattr(server.engine, "conversation", broken)
    body = {"model": server.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    for path in ("messages", "chat/completions"):
        answer = server.http.post(f"/v1/{path}", json=body)
        assert answer.status_code == 500
        message = answer.json()["error"]["message"]
        assert message.startswith(
            f"the cache folder {PLACE} cannot be used: it is full. Choose another. (req"
        )
    assert any("/srv/somewhere" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("a file '/a b/c' is full", f"a file {PLACE} is full"),
        ("""a file "/it's/c" and 'D:\\\\x' are full""", f"a file {PLACE} and {PLACE} are full"),
        ("[Errno 28] No space left: '/x/y'. Go on.", f"[Errno 28] No space left: {PLACE}. Go on."),
        ("the block 'a' sees 'b/c', and/or nothing", "the block 'a' sees 'b/c', and/or nothing"),
        ("the model's own / and the server's", "the model's own / and the server's"),
    ],
)
def test_what_is_a_path(sentence: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    assert without_paths(sentence) == told
    assert for_clients([sentence]) == [told]
    assert [record.getMessage() for record in caplog.records] == ([] if told == sentence else [sentence])
