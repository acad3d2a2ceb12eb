"""GGUF files of the Hugging Face hub, against a server on this machine that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session, constants

from engine.base.errors import ModelError
from engine.checkpoint import hub
from engine.model.loading import load
from engine.model.model_info import look, look_up
from tests.engine.model.gguf.written import write
from tests.engine.tiny import save_tiny, tiny_network

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories in folders, served as by the hub.

    Attributes:
        url: of the server.
        given: the files that were fetched, as owner/name/file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.given = folder, list[str]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                steps = self.path.partition("?")[0].strip("/").split("/")
                if steps[:2] == ["api", "models"]:
                    return self._listed("/".join(steps[2:4]), tree="tree" in steps)
                if len(steps) < 5:
                    return self._say(200, b"", {})
                owner, name, _, _, *rest = steps
                self._file(f"{owner}/{name}/{'/'.join(rest)}")

            def _listed(self, name: str, *, tree: bool) -> None:
                folder = outer.folder / name
                if not folder.is_dir():
                    return self._say(404, b"{}", {"X-Error-Code": "RepoNotFound"})
                files = sorted(one for one in folder.rglob("*") if one.is_file())
                names = [str(one.relative_to(folder)) for one in files]
                rows: Any = (
                    [
                        {"type": "file", "path": path, "size": file.stat().st_size, "oid": "0" * 40}
                        for path, file in zip(names, files, strict=True)
                    ]
                    if tree
                    else {"id": name, "sha": COMMIT, "siblings": [{"rfilename": one} for one in names]}
                )
                self._say(200, json.dumps(rows).encode(), {"Content-Type": "application/json"})

            def _file(self, name: str) -> None:
                path = outer.folder / name
                if not path.is_file():
                    return self._say(404, b"", {"X-Error-Code": "EntryNotFound"})
                if self.command == "GET":
                    outer.given.append(name)
                body = path.read_bytes()
                self._say(200, body, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(body).hexdigest()}"'})

            def _say(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server that the hub's library of this process asks, with an empty cache."""
    server = Hub(tmp_path / "hub")
    for name, value in {
        "ENDPOINT": server.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    close_session()
    yield server
    close_session()
    server.stop()


@pytest.fixture
def folder(served: Hub) -> Path:
    """The folder of the repository owner/name."""
    made = served.folder / "owner" / "name"
    made.mkdir(parents=True)
    return made


def test_one_file_and_its_parts_are_fetched_and_nothing_else(
    served: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "a.gguf", tiny_network("llama-gqa"), shard=15)
    parts = sorted(one.name for one in folder.glob("a-*.gguf"))
    assert len(parts) > 1
    (folder / "b.gguf").write_bytes(b"GGUF")
    assert hub.fetch(f"owner/name:{parts[0]}").name == parts[0]
    assert sorted(one.rpartition("/")[2] for one in served.given) == parts
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load(f"owner/name:{parts[0]}").family == "llama"  # with what is here


@pytest.mark.parametrize("ask", [hub.fetch, look_up])
def test_a_file_that_the_repository_does_not_have_is_named(
    ask: Callable[[str], object], folder: Path
) -> None:
    (folder / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError) as refused:
        ask("owner/name:c.gguf")
    assert str(refused.value) == (
        "'owner/name' has no file 'c.gguf' on the Hugging Face hub. Check its name."
    )


def test_a_repository_of_gguf_files_asks_for_one(served: Hub, folder: Path) -> None:
    for name in ("b.gguf", "mmproj-b.gguf", "c-00001-of-00002.gguf", "c-00002-of-00002.gguf"):
        (folder / name).write_bytes(b"GGUF")
    with pytest.raises(ModelError) as refused:
        look_up("owner/name")
    assert str(refused.value) == (
        "'owner/name' has GGUF files. Name one of them: owner/name:b.gguf, owner/name:c-00001-of-00002.gguf."
    )
    assert not served.given
    save_tiny(folder)
    assert look_up("owner/name").kind == "hub"


def test_a_gguf_file_is_looked_at_by_its_beginning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(folder / "b.gguf", tiny_network("llama3-scaling"))
    monkeypatch.setattr(hub, "_HEADER", 20_000)
    there, here = look_up("owner/name:b.gguf"), look(str(file))
    assert (there.kind, there.fetch_bytes) == ("hub", file.stat().st_size)
    assert (there.parameters, there.weight_bytes) == (here.parameters, here.weight_bytes)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("owner/name:b.gguf", ("owner/name", "b.gguf")),
        ("owner/name:folder/b.GGUF", ("owner/name", "folder/b.GGUF")),
        ("owner/name:../b.gguf", ("owner/name:../b.gguf", "")),
        ("owner/name:/b.gguf", ("owner/name:/b.gguf", "")),
        ("name:b.gguf", ("name:b.gguf", "")),
        ("owner/name", ("owner/name", "")),
    ],
)
def test_a_name_on_the_hub_is_parted(name: str, found: tuple[str, str]) -> None:
    assert hub.parted(name) == found


@pytest.mark.parametrize("name", ["./none.gguf", "a/b/none.gguf", "none.gguf"])
def test_a_path_to_no_file_is_refused_without_asking_anybody(name: str) -> None:
    with pytest.raises(ModelError, match="there is no"):
        hub.local_files(name)
