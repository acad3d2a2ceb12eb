"""Scenes of the store: other people's files, hostile archives, full disks, damage, and processes that die."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.hard_use.stage import ROOT, Stage, UnplayableError, answered, refused, require

SECRET = "eight years of work"


def a_folder_of_somebody_else(stage: Stage) -> str:
    """A cache folder that holds files of the user and is no store is refused, and nothing in it changes."""
    thesis = stage.cache / "files" / "thesis.docx"
    thesis.parent.mkdir(parents=True)
    thesis.write_text(SECRET)
    for words in (
        ("cache", "stats"),
        ("cache", "clear"),
        ("cache", "verify", "--repair"),
        ("encode", "schema.pml"),
    ):
        refused(stage.pml(*words), "cache")
    require(thesis.is_file() and thesis.read_text() == SECRET, "the file is gone")
    there = [path.name for path in stage.cache.iterdir()]
    require(there == ["files"], f"made there: {there}")
    return "four commands refused it; the file is there, and nothing beside it"


def a_file_among_segments(stage: Stage) -> str:
    """A file of the user among the segments outlives every command that deletes."""
    stage.filled()
    thesis, picture = stage.cache / "files" / "thesis.docx", stage.cache / "quarantine" / "holiday.jpg"
    picture.parent.mkdir(exist_ok=True)
    thesis.write_text(SECRET)
    picture.write_text(SECRET)
    for words in (("stats",), ("verify", "--repair"), ("prune", "--max-bytes", "0"), ("clear",)):
        ran = stage.pml("cache", *words)
        require(not ran.crashed, f"cache {words[0]}: {ran.said}")
    require(thesis.is_file() and picture.is_file(), "a file is gone")
    return "stats, verify --repair, prune and clear left both"


def an_index_that_points_elsewhere(stage: Stage) -> str:
    """An index whose rows name files outside the store deletes and reads nothing there."""
    stage.filled()
    precious = stage.folder / "precious.txt"
    precious.write_text(SECRET)
    with contextlib.closing(sqlite3.connect(stage.cache / "index.sqlite")) as index, index:
        index.execute("update segments set file = '../../precious.txt'")
    for words in (("prune", "--max-bytes", "0"), ("verify", "--repair"), ("clear",)):
        ran = stage.pml("cache", *words)
        require(not ran.crashed, ran.said)
        require(
            precious.is_file() and precious.read_text() == SECRET,
            f"{words[0]} removed it",
        )
    answered(stage.run())
    return "prune, verify --repair and clear left the file outside alone; the answer came"


def _archive(stage: Stage) -> tuple[list[dict[str, Any]], list[bytes]]:
    """An honest archive, taken apart: its rows, and their files."""
    stage.filled()
    path = stage.folder / "good.tar"
    require(stage.pml("cache", "export", str(path)).status == 0, "an honest export failed")
    with tarfile.open(path) as tar:
        parts = [opened.read() for member in tar if (opened := tar.extractfile(member))]
    _, *rows = (json.loads(line) for line in parts.pop(0).splitlines())
    return rows, parts


def _add(tar: tarfile.TarFile, name: str, data: bytes, **headers: str) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.pax_headers = len(data), headers
    tar.addfile(member, io.BytesIO(data))


def _manifest(rows: Sequence[dict[str, Any]]) -> bytes:
    head = {"format": 2, "segments": len(rows)}
    return b"".join(json.dumps(line).encode() + b"\n" for line in (head, *rows))


def _write(path: Path, rows: Sequence[dict[str, Any]], parts: Sequence[bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        _add(tar, "manifest.jsonl", _manifest(rows))
        for row, data in zip(rows, parts, strict=True):
            _add(tar, f"{row['key']}.safetensors", data)


def an_archive_that_writes_elsewhere(stage: Stage) -> str:
    """An archive whose keys are paths is refused, and nothing outside the store changes."""
    rows, parts = _archive(stage)
    victim = stage.folder / "victim"
    victim.mkdir()
    rows[0]["key"] = "../../victim/model"
    _write(stage.folder / "evil.tar", rows, parts)
    shutil.rmtree(stage.cache)
    refused(stage.pml("cache", "import", "evil.tar"), "evil.tar")
    require(list(victim.iterdir()) == [], f"it wrote {list(victim.iterdir())}")
    return "refused, and nothing was written outside"


def an_archive_of_lies(stage: Stage) -> str:
    """Rows with infinite seconds, huge numbers, control characters or no tokens are refused in words."""
    rows, parts = _archive(stage)
    lies = {
        "seconds": float("inf"),
        "tokens": 2**70,
        "bytes": -1,
        "token_ids": "zz",
        "key": "\x1b]0;owned\x07" + "a" * 40,
        "shape": "[" * 100_000,
        "dtype": "\x9b31m",
    }
    for field, lie in lies.items():
        _write(stage.folder / "lie.tar", [{**rows[0], field: lie}, *rows[1:]], parts)
        with _an_empty_store(stage):
            ran = stage.pml("cache", "import", "lie.tar")
            refused(ran, "lie.tar")
            require("\x1b" not in ran.said and "\x9b" not in ran.said, f"{field}: it moves the terminal")
    return f"{len(lies)} kinds refused, each in words"


@contextlib.contextmanager
def _an_empty_store(stage: Stage) -> Iterator[None]:
    """The scene's store put aside for a while."""
    aside = stage.folder / "aside"
    if stage.cache.exists():
        stage.cache.rename(aside)
    try:
        yield
    finally:
        shutil.rmtree(stage.cache, ignore_errors=True)
        if aside.exists():
            aside.rename(stage.cache)


def an_archive_that_swells(stage: Stage) -> str:
    """A sparse archive of a few kilobytes that claims gigabytes is refused before they are taken."""
    rows, _ = _archive(stage)
    size = rows[0]["bytes"] = 3 << 30
    path = stage.folder / "bomb.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "manifest.jsonl", _manifest(rows[:1]))
        hole = f"1\n{size}\n0\n".encode().ljust(512, b"\0")  # a map of one run of no bytes, at the end
        sparse = {"major": "1", "minor": "0", "realsize": str(size), "name": f"{rows[0]['key']}.safetensors"}
        _add(tar, "hole", hole, **{f"GNU.sparse.{name}": value for name, value in sparse.items()})
    require(path.stat().st_size < 20_000, "the archive itself is large")
    shutil.rmtree(stage.cache)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    refused(stage.pml("cache", "import", "bomb.tar"), "bomb.tar")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    require(most < max(before, 1 << 20) + (1 << 19), f"it took {most >> 10} MiB of memory")
    taken = sum(p.stat().st_blocks * 512 for p in stage.cache.rglob("*")) if stage.cache.exists() else 0
    require(taken < 64 << 20, f"it left {taken >> 20} MiB")
    return f"refused, with {most >> 10} MiB at most"


def a_full_disk(stage: Stage) -> str:
    """On a full disk the answer comes, the store opens, and what the message names makes room."""
    stage.cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(stage.cache)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise UnplayableError("mounting a small disk needs root")
    try:
        stage.filled()
        listed = json.loads(stage.pml("cache", "list", "--json").out)
        require(len(listed.get("segments", ())) > 0, f"nothing is stored: {listed}")
        with (stage.cache / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(b"\0" * 4096):
                pass
        with (stage.cache / "ballast").open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(b"\0"):
                pass
        known = answered(stage.run())
        require(known["tokens"]["from_cache"] > 0, "nothing was read from the store")
        other = '<prompt schema="trip"><tokyo/>Another question, never asked before?</prompt>\n'
        (stage.folder / "prompt.pml").write_text(other, encoding="utf-8")
        (stage.folder / "schema.pml").write_text(
            (stage.folder / "schema.pml").read_text().replace("midnight", "one"), encoding="utf-8"
        )
        new = stage.run()
        answered(new)
        require("full" in new.said or "No space" in new.said, f"it says nothing of the disk: {new.err}")
        for words in (("list",), ("stats",), ("prune", "--max-bytes", "0")):
            ran = stage.pml("cache", *words)
            require(not ran.crashed and ran.status == 0, f"cache {words[0]}: {ran.said}")
        left = json.loads(stage.pml("cache", "list", "--json").out)
        require(left.get("segments") == [], f"prune left {left}")
        free = shutil.disk_usage(stage.cache).free
        require(free > 0, "no byte was freed")
        answered(stage.run())
        return f"answers came, list, stats and prune worked, {free:,} bytes were freed"
    finally:
        subprocess.run(["umount", "-l", str(stage.cache)], check=False)


def a_malformed_index(stage: Stage) -> str:
    """Over a broken index the answer comes, and the store mends itself from its files."""
    stage.filled()
    for at, what in ((0, b"garbage!" * 512), (4096, b"\xff" * 4096)):
        with (stage.cache / "index.sqlite").open("r+b") as index:
            index.seek(at)
            index.write(what)
        for more in ("index.sqlite-wal", "index.sqlite-shm"):
            (stage.cache / more).unlink(missing_ok=True)
        answered(stage.run())
    ran = stage.pml("cache", "verify", "--json")
    require(not ran.crashed and json.loads(ran.out).get("clean") is True, f"verify: {ran.said}")
    again = answered(stage.run())
    require(all(use["outcome"] == "hit" for use in again["segments"]), "segments were lost")
    require(stage.pml("cache", "clear").status == 0, "clear failed")
    return "answers came, verify is clean, every segment was found again"


_STARVED = """
import os, resource, sys
from pathlib import Path
from engine import Engine
engine = Engine.open("demo", cache_dir=Path(sys.argv[1]))
prompt = engine.schema(Path("schema.pml")).prompt(Path("prompt.pml"))
most = max(int(name) for name in os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
answer = prompt.answer(max_new_tokens=8)
print(len(answer.token_ids))
"""


def no_descriptors(stage: Stage) -> str:
    """A process without free descriptors answers, and destroys no segment."""
    stage.filled()
    before = json.loads(stage.pml("cache", "stats", "--json").out)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"}
    starved = subprocess.run(
        [sys.executable, "-c", _STARVED, str(stage.cache)],
        cwd=stage.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    after = json.loads(stage.pml("cache", "stats", "--json").out)
    require(after["corrupt"] == before["corrupt"], f"{after['corrupt']} segments were set aside as damaged")
    require(after["segments"] >= before["segments"], f"{before['segments']} → {after['segments']} segments")
    require(starved.returncode == 0 and starved.stdout.strip() == "8", f"no answer: {starved.stderr}")
    again = answered(stage.run())
    require(all(use["outcome"] == "hit" for use in again["segments"]), "segments were lost")
    return f"the answer came; {after['segments']} segments before and after"


def pipes_and_damage(stage: Stage) -> str:
    """Named pipes among the files do not hang it; what was changed on disk is never answered from."""
    stage.filled()
    right = answered(stage.run())["token_ids"]
    files = sorted((stage.cache / "files").glob("*.safetensors"))
    size = files[0].stat().st_size
    files[0].unlink()
    os.mkfifo(files[0])
    answered(stage.run(patience=60))
    for file in (stage.cache / "files").glob("*.safetensors"):
        if file.is_file():
            file.chmod(0o600)
            with file.open("r+b") as opened:
                opened.seek(size // 2)
                opened.write(os.urandom(64))
    again = answered(stage.run("--verify", "always"))
    require(again["token_ids"] == right, "another answer came from damaged files")
    return "no hang, and the same answer"


def killed_at_any_instant(stage: Stage) -> str:
    """A process that is killed while it encodes leaves a store that agrees with its files."""
    draw, hits = random.Random(0), 0
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PML_CACHE_DIR": str(stage.cache),
        "OMP_NUM_THREADS": "1",
    }
    for _ in range(4):
        command = [sys.executable, "-m", "app", "encode", str(ROOT / "sample_schemas" / "travel.pml")]
        running = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        files = stage.cache / "files"
        before = len(list(files.iterdir())) if files.is_dir() else 0
        until = time.monotonic() + 60
        while time.monotonic() < until and running.poll() is None:
            if files.is_dir() and len(list(files.iterdir())) > before:
                break
            time.sleep(0.002)
        time.sleep(draw.random() * 0.05)
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            hits += 1
        running.wait()
        ran = stage.pml("cache", "verify", "--json")
        require(not ran.crashed and json.loads(ran.out)["clean"], f"verify: {ran.said}")
    require(hits > 0, "no kill came in time")
    return f"{hits} kills after the first file appeared; verify clean after each"
