"""Selects the text documents of a folder, and reports why other files are skipped."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pathspec import GitIgnoreSpec

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.notes import Notes
from engine.exchange.folder.gitignore import RULES, Ignored, compiled
from engine.files.safe_open import OutsideError, open_beneath
from engine.files.text_files import MAX_BYTES, EncodingError, TextFileError, decode, read_stream
from engine.pml.xml.entities import forbidden_character

Progress = Callable[[int, int, str], None]
"""Called with done, total and the next item; its exceptions end the work."""

MOST_SEEN: Final = 200_000  # maximum number of files and folders
MOST_DEEP: Final = 64  # maximum depth of folders

_SECRETS: Final = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.env", "*.tfstate"),
    *("*.tfvars", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials", "credentials.json"),
    *("client_secret*.json", "service-account*.json", "secrets.json", "secrets.yaml", "secrets.yml"),
    *("secrets.toml", "secrets.ini", "htpasswd"),
)
_NO_PROSE: Final = ("*.svg", "*.map", "*.min.js", "*.min.css", "*.lock", "package-lock.json", "*.ipynb")
_OURS: Final = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*){0,20}<(?:schema(?:\s+name\s*=|\s*>)|prompt[\s>/])", re.DOTALL
)
_PRIVATE_KEY: Final = re.compile(r"\s*-----BEGIN [A-Z ]*PRIVATE KEY")
_PICTURE: Final = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*|<!DOCTYPE[^>]*>\s*){0,20}<svg[\s>]", re.DOTALL
)
_GLOB: Final = re.compile(r"[*?\[\]!]")
_HEAD: Final = 8192
_FOR_PROGRAMS: Final = "left out (drawings, notebooks, lock files, generated files)"


@dataclass(frozen=True)
class Choice:
    """A selection of files in a folder.

    Attributes:
        include: patterns as in `.gitignore`; without any, all prose. A pattern without a wildcard is a path
            and includes its file in any case.
        exclude: patterns of files to skip.
        outputs: files that the import writes, which are skipped.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    outputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Document:
    """A text of a folder, verbatim, and its path in the folder, with / as separator."""

    path: str
    text: str


def documents(
    folder: Path, choice: Choice, notes: Notes, progress: Progress | None = None
) -> Iterator[Document]:
    """Reads the selected documents of a folder, ordered by path; `notes` collects omissions by reason.

    Raises:
        ExchangeError: a pattern is invalid, or the folder has too many files.
    """
    folder = folder.resolve() if folder.is_symlink() else folder
    files = _Files(folder, choice, notes)
    paths = sorted(files.found())
    for number, path in enumerate(paths):
        if progress is not None:
            progress(number, len(paths), path)
        content = _read(folder, path, notes, named=files.named(path))
        if content is not None:
            yield Document(path, content)
    if progress is not None:
        progress(len(paths), len(paths), "")


class _Files:
    def __init__(self, folder: Path, choice: Choice, notes: Notes) -> None:
        self._folder, self._notes = folder, notes
        self._include = compiled(choice.include, "--include")
        self._exclude = compiled(choice.exclude, "--exclude")
        self._named = {path.removeprefix("/") for path in choice.include if not _GLOB.search(path)}
        self._outputs = {os.path.realpath(path) for path in choice.outputs}
        self._output_names = {os.path.basename(path) for path in self._outputs}  # noqa: PTH119
        self._secrets, self._no_prose = (
            GitIgnoreSpec.from_lines(_SECRETS),
            GitIgnoreSpec.from_lines(_NO_PROSE),
        )

    def named(self, path: str) -> bool:
        """Whether an include pattern is exactly this path."""
        return path in self._named

    def found(self) -> Iterator[str]:
        """The selected files, by name."""
        ignored = Ignored(self._folder.resolve(), self._notes)
        seen = 0
        # fwalk opens each folder relative to its parent, so a folder replaced meanwhile cannot redirect it.
        walk: Any = getattr(os, "fwalk", os.walk)(self._folder, onerror=self._failed)
        for above, folders, files, *_ in walk:
            seen += len(folders) + len(files)
            if seen > MOST_SEEN:
                problem = f"{self._folder} holds more than {MOST_SEEN:,} files, too many to look at"
                raise ExchangeError(f"{problem}; import a folder inside it")
            inner = Path(above).relative_to(self._folder).as_posix()
            inner = "" if inner == "." else f"{inner}/"
            if RULES in files:
                ignored.enter(inner)
            folders.sort()
            folders[:] = [name for name in folders if self._is_entered(above, inner, name, ignored)]
            for name in sorted(files):
                why = self._why_not(inner, name, ignored)
                if why == "":
                    yield inner + name
                else:
                    self._notes.count("file", why, inner + name)

    def _failed(self, error: OSError) -> None:
        self._notes.count("folder", "left out (it cannot be opened)", str(error.filename))

    def _is_entered(self, above: str, inner: str, name: str, ignored: Ignored) -> bool:
        path = f"{inner}{name}/"
        if any(named.startswith(path) for named in self._named):
            return True
        why = ""
        if os.path.islink(os.path.join(above, name)):  # noqa: PTH114, PTH118 - names need not be UTF-8
            why = "left out (links to folders)"
        elif name.startswith("."):
            why = "left out (hidden)"
        elif path.count("/") > MOST_DEEP:
            why = f"left out (nested more than {MOST_DEEP} deep)"
        elif path in ignored:
            why = f"left out ({RULES})"
        elif self._exclude is not None and self._exclude.match_file(path):
            why = "left out (--exclude)"
        if why:
            self._notes.count("folder", why, path)
        return not why

    def _why_not(self, inner: str, name: str, ignored: Ignored) -> str:
        path = inner + name
        if forbidden_character(path) is not None:
            return "left out (no valid name for a document)"
        if name in self._output_names and os.path.realpath(self._folder / path) in self._outputs:
            return "left out (written by this import)"
        if self.named(path):
            return ""
        if "/." in f"/{path}":
            return "left out (hidden)"
        if path in ignored:
            return f"left out ({RULES})"
        if self._exclude is not None and self._exclude.match_file(path):
            return "left out (--exclude)"
        if self._secrets.match_file(path.lower()):
            return "left out (may contain secrets)"
        if self._include is not None:
            return "" if self._include.match_file(path) else "left out (not in --include)"
        if self._no_prose.match_file(path.lower()):
            return _FOR_PROGRAMS
        return ""


def _read(folder: Path, path: str, notes: Notes, *, named: bool) -> str | None:
    """The text of a file, or None."""
    try:
        content, why = _content(folder, path)
    except OutsideError:
        content, why = "", "left out (links out of the folder)"
    except OSError:
        content, why = "", "left out (cannot be read)"
    except EncodingError:
        content, why = "", "left out (not UTF-8)"
    except TextFileError:
        content, why = "", f"left out (larger than {MAX_BYTES >> 20} MB)"
    why = why or _fault(content, named=named)
    if why:
        notes.count("file", why, path)
    return None if why else content


def _content(folder: Path, path: str) -> tuple[str, str]:
    """The text of a file, and otherwise the reason why there is none."""
    descriptor = open_beneath(folder, path)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return "", "left out (not regular files)"
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(_HEAD)
        if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
            return "", "left out (binary)"
        file.seek(0)
        return decode(read_stream(file, path), path), ""


def _fault(content: str, *, named: bool) -> str:
    """Why a text becomes no module; empty if it does."""
    if not content.strip():
        return "left out (empty)"
    if forbidden_character(content) is not None:
        return "left out (control characters)"
    if named:
        return ""
    if _OURS.match(content):
        return "left out (schemas and prompts)"
    if _PRIVATE_KEY.match(content):
        return "left out (may contain secrets)"
    if _PICTURE.match(content):
        return _FOR_PROGRAMS
    return ""
