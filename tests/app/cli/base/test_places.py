"""Paths that lead to no file: every command says so in one kind of sentence, and waits for nobody."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.drawing import EVERY

SCHEMA = '<schema name="a"><module name="m">text</module></schema>'
Pml = Callable[..., SimpleNamespace]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe that is closed as soon as somebody reads it: a reader that waits fails, and does not hang."""
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: os.close(os.open(path, os.O_WRONLY)))
    writer.start()
    yield path
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer.join()
    os.close(descriptor)


@pytest.mark.parametrize(
    "command",
    [
        ("check", "PIPE"),
        ("check", "LINK"),
        ("check", "SCHEMA", "--schema", "PIPE"),
        ("format", "PIPE"),
        ("format", "--write", "PIPE"),
        ("layout", "PIPE"),
        ("run", "--schema", "SCHEMA", "PIPE"),
        ("run", "--schema", "SCHEMA", "--batch", "PIPE"),
        ("export", "PIPE", "--to", "pml"),
        ("export", "SCHEMA", "--to", "text", "--prompt", "PIPE"),
        ("import", "PIPE"),
    ],
)
def test_a_pipe_is_refused_in_words(
    run_pml: Pml, pipe: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "a.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "link").symlink_to(pipe)
    paths = {"PIPE": pipe, "SCHEMA": tmp_path / "a.pml", "LINK": tmp_path / "link"}
    refused = run_pml(*(paths.get(word, word) for word in command))
    assert refused.status == 2
    assert "is not a regular file" in refused.err or "is not a plain file" in refused.err
    assert pipe.is_fifo()


READING = [
    ("check", "PATH"),
    ("check", "SCHEMA", "--schema", "PATH"),
    ("format", "PATH"),
    ("format", "--write", "PATH"),
    ("format", "--diff", "PATH"),
    ("layout", "PATH"),
    ("encode", "PATH"),
    ("run", "--schema", "PATH", "PROMPT"),
    ("run", "--schema", "SCHEMA", "PATH"),
    ("run", "--schema", "SCHEMA", "--batch", "PATH"),
    ("fidelity", "--schema", "PATH", "PROMPT"),
    ("fidelity", "--schema", "SCHEMA", "PATH"),
    ("export", "PATH", "--to", "pml"),
    ("export", "SCHEMA", "--to", "text", "--prompt", "PATH"),
    ("import", "PATH", "--from", "messages"),
    ("import", "PATH", "--from", "jinja"),
    ("import", "PATH", "--from", "python"),
    ("cache", "import", "PATH"),
]
SOME = READING if EVERY else READING[::4]
EITHER = [("import", "PATH")]
FOLDERS = [("import", "PATH", "--from", "folder"), ("studio", "--no-browser", "--schemas", "PATH")]
WRITTEN = [
    ("import", "MESSAGES", "-o", "PATH"),
    ("import", "MESSAGES", "--prompt-output", "PATH"),
    ("cache", "export", "PATH"),
    ("run", "--schema", "SCHEMA", "--batch", "MESSAGES", "--output", "PATH"),
]
FILLED = [("export", "SCHEMA", "--to", "pml", "-o", "PATH")]
KEPT = [("cache", "stats"), ("cache", "verify"), ("layout", "SCHEMA")]
KEPT = [(*words, "--cache-dir", "PATH") for words in KEPT]
WRONG = [
    *((words, "none.pml", "does not exist: there is no such file") for words in READING),
    *(
        (words, "none.pml", "does not exist: there is no such file or folder. Check the path")
        for words in EITHER
    ),
    *(
        (words, "none.pml", "does not exist: there is no such file or folder. Check the path")
        for words in FOLDERS
    ),
    *((words, "closed.pml", "may not be read. Check its permissions") for words in SOME),
    *((words, "a.pml/b.pml", "cannot be read: Not a directory. Check the path") for words in SOME + EITHER),
    *(
        (words, f"{'long' * 99}.pml", "cannot be read: File name too long")
        for words in SOME + EITHER + FOLDERS
    ),
    *((words, "folder", "is a folder. Name a file in it") for words in SOME + WRITTEN),
    *((words, "a.pml", "is not a folder. Name the folder that contains it") for words in FOLDERS),
    *((words, "a.pml", "is not a folder. Choose another one (--cache-dir") for words in KEPT),
    *((words, "unplugged", "which does not exist. Connect that disk") for words in KEPT),
    *((words, "unplugged/store", "'unplugged' is a link to") for words in KEPT),
    *((words, "none/b.pml", "its folder does not exist. Create it") for words in WRITTEN + FILLED),
]


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with one of each kind, where the command stands; what stands for them in a command."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "a.prompt.pml").write_text('<prompt schema="a"><m/></prompt>', encoding="utf-8")
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "Hello"}]', encoding="utf-8")
    (tmp_path / "closed.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "unplugged").symlink_to("disk")
    monkeypatch.setenv("PML_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    plain = os.open

    def closed(path: Any, *how: Any, **more: Any) -> int:
        if str(path) == "closed.pml":  # whoever may do everything is refused nothing by a mode
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return plain(path, *how, **more)

    monkeypatch.setattr(os, "open", closed)
    return {"SCHEMA": "a.pml", "PROMPT": "a.prompt.pml", "MESSAGES": "chat.json"}


@pytest.mark.parametrize(("words", "path", "says"), WRONG, ids=lambda part: " ".join(part)[:60])
def test_a_path_that_leads_to_nothing_is_wrong_usage_and_said_so(
    run_pml: Pml, paths: dict[str, str], words: tuple[str, ...], path: str, says: str
) -> None:
    given = [(paths | {"PATH": path}).get(word, word) for word in words]
    before = sorted(Path().rglob("*"))
    refused = run_pml(*given)
    assert refused.status == 2, refused.err
    (line,) = refused.err.splitlines()
    assert path in line
    assert says in line
    assert line.endswith(".")
    assert "[Errno" not in line
    assert [found for found in sorted(Path().rglob("*")) if found.parts[0] != "cache"] == before
    if words[0] == "studio" or "--batch" in words:
        return
    told = json.loads(run_pml(*given, "--json").out)
    assert says in str(told.get("error") or [one.get("error", "") for one in told["files"]])


@pytest.mark.parametrize("words", [*SOME, *EITHER, *FOLDERS, *WRITTEN, *FILLED], ids=" ".join)
def test_a_tilde_that_the_shell_has_left_is_the_home_folder(
    run_pml: Pml,
    paths: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    refused = run_pml(*((paths | {"PATH": "~/none/it"}).get(word, word) for word in words))
    assert refused.status == 2
    assert str(tmp_path / "home" / "none") in refused.err


@pytest.mark.parametrize("words", [*SOME, *EITHER, *FOLDERS, *WRITTEN, *FILLED, *KEPT], ids=" ".join)
def test_an_empty_path_is_not_the_working_folder(
    run_pml: Pml, paths: dict[str, str], words: tuple[str, ...]
) -> None:
    before = sorted(Path().rglob("*"))
    refused = run_pml(*((paths | {"PATH": ""}).get(word, word) for word in words))
    assert refused.status == 2
    assert "The path is empty. Write one" in refused.err
    assert sorted(Path().rglob("*")) == before


def test_a_store_in_the_home_folder_is_named_by_a_tilde(
    run_pml: Pml, paths: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run_pml("cache", "stats", "--cache-dir=~/given").status == 0
    monkeypatch.setenv("PML_CACHE_DIR", "~/set")
    assert run_pml("cache", "stats").status == 0
    assert sorted(one.name for one in (tmp_path / "home").iterdir()) == ["given", "set"]
    assert not Path("~").exists()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        *((words, "empty.pml") for words in SOME if words[0] != "import"),
        *((words, f"empty.{ending}") for words in EITHER for ending in ("json", "jinja", "py")),
        *((words, "folder") for words in EITHER),
    ],
    ids=lambda part: part if isinstance(part, str) else " ".join(part),
)
def test_a_file_or_folder_with_nothing_in_it_is_said_to_hold_nothing(
    run_pml: Pml, paths: dict[str, str], words: tuple[str, ...], name: str
) -> None:
    if name != "folder":
        Path(name).touch()
    refused = run_pml(*((paths | {"PATH": name}).get(word, word) for word in words))
    assert refused.status == 1, refused.err
    assert name in refused.err + refused.out
    assert "unexpected" not in refused.err


def test_what_the_shell_holds_open_is_read() -> None:
    words = f"{sys.executable} -m app check <(printf '<schema name=\"a\">text</schema>')"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4])}
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "schema, ok" in done.stdout
