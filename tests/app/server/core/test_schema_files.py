"""The files of schemas: a look at many reads no text, times are kept, and nobody is told a false fault."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from filelock import lock_descriptor

from app.server.core import schema_files
from app.server.core.schema_files import SchemaFiles
from app.server.core.stored_schema import Terms
from engine.base.errors import StoreError
from tests.app.server.core.test_schemas import PATH, named, put
from tests.app.server.raw import eventually
from tests.app.server.served import served

TEXT = "words " * 8000
MANY = 40


class Reads:
    """What is read of schemas' files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        self.bytes = 0
        real_open, real_fdopen = os.open, os.fdopen

        def opened(path: Any, flags: int, *given: Any, **more: Any) -> int:
            descriptor = real_open(path, flags, *given, **more)
            if str(path).endswith(".json"):
                self.files.append(Path(path).name)
            return descriptor

        def as_file(descriptor: int, *given: Any, **more: Any) -> Any:
            file = real_fdopen(descriptor, *given, **more)
            if isinstance(file, io.BufferedReader):
                read = file.read
                file.read = lambda size=-1: self._counted(read(size))  # type: ignore[method-assign,misc]
            return file

        monkeypatch.setattr(os, "open", opened)
        monkeypatch.setattr(os, "fdopen", as_file)

    def _counted(self, data: bytes) -> bytes:
        self.bytes += len(data)
        return data

    def forget(self) -> None:
        self.files.clear()
        self.bytes = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    files = SchemaFiles(tmp_path)
    for number in range(MANY):
        files.put(f"client {number % 2}", f"s{number:03}", f"{number} {TEXT}", Terms())
    return tmp_path


def test_a_list_reads_heads_and_each_once(full: Path, reads: Reads) -> None:
    files, other = SchemaFiles(full), SchemaFiles(full)
    first = files.all("client 0")
    assert [one.name for one in first] == [f"s{number:03}" for number in range(0, MANY, 2)]
    assert [one.bytes for one in first] == [len(f"{number} {TEXT}") for number in range(0, MANY, 2)]
    assert len(reads.files) == MANY / 2
    assert reads.bytes <= MANY / 2 * 4096
    reads.forget()
    assert files.all("client 0") == first
    assert reads.files == []
    kept, _ = other.put("client 0", "s000", "Other words.", Terms())
    other.remove("client 0", "s002")
    reads.forget()
    again = files.all("client 0")
    assert len(reads.files) == 1
    assert again == [kept.head("client 0"), *first[2:]]


def test_what_is_over_is_known_without_reading(full: Path, reads: Reads) -> None:
    now = 1000.0
    files, other = SchemaFiles(full, lambda: now), SchemaFiles(full, lambda: now)
    files.put("client 1", "brief", TEXT, Terms(True, 1060.0, True))
    assert files.sweep() == []
    time.sleep(0.01)
    reads.forget()
    assert files.sweep() == []
    assert reads.files == []
    now = 1061.0
    (gone,) = files.sweep()
    assert (gone.owner, gone.name, gone.pinned) == ("client 1", "brief", True)
    assert len(reads.files) <= 2
    assert files.get("client 1", "brief") is None
    assert len([*(full / "schemas").glob("*.json")]) == MANY
    other.put("client 0", "theirs", TEXT, Terms(True, 1100.0))
    now = 1101.0
    eventually(lambda: [one.name for one in files.sweep()] == ["theirs"], "what another server has put")
    assert files.sweep() == []


def test_one_schema_is_asked_for_and_no_other_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for number in range(6):
            assert put(client, f"s{number}", named(f"s{number}")).status_code == 201
        reads = Reads(monkeypatch)
        file = server.service.schemas
        for method, path in (("GET", "s1"), ("PATCH", "s2"), ("GET", "none"), ("DELETE", "s3")):
            reads.forget()
            more: Any = {"json": {"ttl": "5m"}} if method == "PATCH" else {}
            told = client.request(method, f"{PATH}/{path}", **more)
            assert told.status_code == {"GET": 404 if path == "none" else 200, "PATCH": 200}.get(method, 204)
            assert len({*reads.files}) == (path != "none"), (method, path)
        reads.forget()
        assert len(client.get(PATH).json()["schemas"]) == 5
        assert reads.files == []
        assert [one.name for one in file.all("")] == ["s0", "s1", "s2", "s4", "s5"]


def test_files_without_a_head_are_read_whole_and_once(full: Path, reads: Reads) -> None:
    files = SchemaFiles(full)
    name = 'odd", "text": "x'
    files.put("", name, TEXT, Terms())
    (file,) = (one for one in (full / "schemas").glob("*.json") if b"odd" in one.read_bytes()[:200])
    (head,) = files.all("")
    assert (head.name, head.bytes) == (name, len(TEXT))
    said = json.loads(file.read_bytes())
    fields = ("version", "owner", "name", "text", "created_at", "expires_at", "pinned")
    file.write_text(json.dumps({one: said[one] for one in fields}))
    reads.forget()
    assert files.all("") == [head]
    assert len(reads.files) == 1
    assert files.all("") == [head]
    assert len(reads.files) == 1
    kept = files.get("", name)
    assert kept is not None
    assert kept.text == TEXT
    file.write_bytes(json.dumps(said, ensure_ascii=False).encode()[:-9] + b'"}')  # the head says more
    kept = files.get("", name)
    assert kept is not None
    assert files.all("") == [kept.head("")] != [head]


def test_a_schema_that_is_written_anew_is_never_missing(tmp_path: Path) -> None:
    files, ended = SchemaFiles(tmp_path), threading.Event()
    files.put("", "busy", "0", Terms())

    def write() -> None:
        for number in range(1, 100):
            files.put("", "busy", str(number), Terms())
        ended.set()

    missing = 0
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not ended.is_set() and not writing.done():
            missing += files.get("", "busy") is None
            missing += len(SchemaFiles(tmp_path).all("")) != 1
        writing.result()
    assert missing == 0


@pytest.mark.long
def test_a_queue_of_writers_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own lock, as programs have that share a folder, and a disk that is slow."""
    real = schema_files.writing

    def slow(*given: Any) -> Any:
        time.sleep(0.1)
        return real(*given)

    monkeypatch.setattr(schema_files, "writing", slow)
    monkeypatch.setattr(schema_files, "PATIENCE_SECONDS", 0.8)
    programs = [SchemaFiles(tmp_path) for _ in range(14)]
    with ThreadPoolExecutor(14) as pool:
        put = [pool.submit(one.put, "", "busy", str(at), Terms()) for at, one in enumerate(programs)]
        assert {one.result()[0].name for one in put} == {"busy"}


def test_a_writer_that_does_not_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_files, "PATIENCE_SECONDS", 0.1)
    files = SchemaFiles(tmp_path)
    files.put("", "one", "1", Terms())
    with (tmp_path / "schemas" / ".lock").open("rb+") as held:
        assert lock_descriptor(held.fileno(), blocking=False)
        with pytest.raises(StoreError, match="does not finish"):
            files.put("", "one", "2", Terms())
    assert files.put("", "one", "2", Terms())[0].text == "2"
