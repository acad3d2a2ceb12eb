"""The user's folder of documents: read as text, written back so that nothing another program wrote is lost.

Knows bytes, encodings and line ends; knows nothing about what the texts mean.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from filelock import lock_descriptor

from app.base.safe_write import move_new, write_bytes
from engine.base.errors import PromptCacheError
from engine.files.text_files import BOM, EncodingError, MissingFileError, decode, open_file, read_file

ENDINGS = (".pml", ".xml")
LONGEST_NAME = 200  # in bytes; a temporary name is longer
DEEPEST = 8
MOST_DOCUMENTS = 2000
PATIENCE_SECONDS = 5.0  # for another studio that writes into the same folder
_STEP_SECONDS = 0.01
MOST_SEEN = 20_000  # entries that are looked at to find them
NOT_IN_NAMES = frozenset('/\\:*?"<>|')
Newline = Literal["\r\n", "\n", "\r"]
Encoding = Literal["utf-8", "windows-1252", "utf-16"]
ENCODINGS: dict[Encoding, str] = {"utf-8": "UTF-8", "windows-1252": "Windows-1252", "utf-16": "UTF-16"}

# What Windows-1252 has otherwise than Latin-1; its five gaps stay as they are, as browsers read them.
WINDOWS = {
    byte: character
    for byte in range(0x80, 0xA0)
    if (character := bytes([byte]).decode("windows-1252", "ignore"))
}


@dataclass(frozen=True)
class Stamp:
    """A file as it was last read or written.

    Attributes:
        digest: digest of the file's bytes; empty where it was never read.
        bom: whether it begins with a byte order mark.
        newline: the line end that the file uses.
    """

    digest: str = ""
    bom: bool = False
    newline: Newline = "\n"

    def spell(self, text: str) -> bytes:
        r"""The bytes of a text whose lines end with `\n`.

        Raises:
            PromptCacheError: a character of it has no bytes.
        """
        try:
            data = text.replace("\n", self.newline).encode("utf-8")
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise PromptCacheError(
                f"Line {line} holds half of a surrogate pair (U+{ord(text[error.start]):04X}), which no file "
                "can hold. Remove it, and save again."
            ) from None
        return BOM + data if self.bom else data


class NotUtf8Error(PromptCacheError):
    """A file that is text in another encoding than UTF-8, as far as one can tell.

    Attributes:
        encoding: the encoding to offer.
        why: what in it is not UTF-8, in a few words.
    """

    def __init__(self, name: str, encoding: Encoding, why: str) -> None:
        super().__init__(
            f"{name!r} is not UTF-8 ({why}). Open it as {ENCODINGS[encoding]}? It will be saved as UTF-8."
        )
        self.encoding, self.why = encoding, why


class ChangedFileError(PromptCacheError):
    """A file that another program changed or removed since it was opened, so it was not written.

    Attributes:
        gone: whether the file is not there any more.
    """

    def __init__(self, name: str, *, gone: bool, ours: bool = False) -> None:
        who = "saved from another tab or window of the studio" if ours else "changed by another program"
        what = "is not there any more" if gone else f"was {who} since it was opened here"
        super().__init__(f"{name!r} {what}, so nothing was written.")
        self.gone = gone


class ElsewhereError(PromptCacheError):
    """A document of another folder than the studio's, or of an unknown one, so nothing was written.

    Attributes:
        known: whether it is known where the document came from.
    """

    def __init__(self, words: str, *, known: bool) -> None:
        super().__init__(words)
        self.known = known


@dataclass(frozen=True)
class Found:
    """A document of the folder.

    Attributes:
        name: its path in the folder, with `/`.
        size: in bytes.
        changed: when it was changed last, in seconds since 1970.
    """

    name: str
    size: int
    changed: float


class Folder:
    """One folder with those inside it; links to folders are not followed. Safe to use from several threads.

    Args:
        path: the folder's path; without one there are no documents.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = None if path is None else path.resolve()
        self._written: dict[str, set[str]] = {}
        self._lock = threading.Lock()  # use `_alone`

    def names(self) -> list[str]:
        """Names of its documents, those in no folder inside it first."""
        return [found.name for found in self.documents()]

    def documents(self) -> list[Found]:
        """Its documents, those in no folder inside it first; not more than `MOST_DOCUMENTS` of them."""
        found: list[Found] = []
        pending = [] if self.path is None else [(self.path, "", 0)]
        seen = 0
        while pending and seen < MOST_SEEN and len(found) < MOST_DOCUMENTS:
            place, prefix, depth = pending.pop(0)
            with contextlib.suppress(OSError), os.scandir(place) as entries:
                here = sorted(islice(entries, MOST_SEEN - seen), key=lambda entry: entry.name)
                seen += len(here)
                for entry in here:
                    with contextlib.suppress(OSError):  # it went away, or may not be looked at
                        if entry.is_dir(follow_symlinks=False):
                            if depth < DEEPEST and not entry.name.startswith("."):
                                pending.append((Path(entry.path), f"{prefix}{entry.name}/", depth + 1))
                        elif entry.name.lower().endswith(ENDINGS) and entry.is_file():
                            about = entry.stat()
                            found.append(Found(prefix + entry.name, about.st_size, about.st_mtime))
        return found[:MOST_DOCUMENTS]

    def origin(self, name: str) -> str:
        """Where a document of this folder comes from, as workspaces keep it: ``file:`` and its path."""
        return f"file:{self._path(name).as_posix()}"

    def owns(self, origin: str) -> bool:
        """Whether a document of this origin is one of this folder, or of one inside it."""
        return self._below(origin) is not None

    def _below(self, origin: str) -> str | None:
        """The path in this folder of a document; None where it is of another."""
        kind, _, path = origin.partition(":")
        if kind != "file" or "/" not in path or self.path is None:
            return None
        inside: list[str] = []
        for above in Path(path).parents:
            same = above == self.path
            with contextlib.suppress(OSError, ValueError):  # then the names decide
                same = above.samefile(self.path)
            if same:
                name = "/".join((*reversed(inside), Path(path).name))
                return name if _plain(name) else None
            inside.append(above.name)
        return None

    def name_of(self, origin: str, *, here: bool = False) -> str:
        """The name in this folder of a document that is to be written back.

        Args:
            origin: the document's source, as `origin` gives it.
            here: whether a document of an unknown folder is taken for one of this folder.

        Raises:
            ElsewhereError: it is not known to be one of this folder.
        """
        path = origin.partition(":")[2]
        name = path.rpartition("/")[2]
        below = self._below(origin)
        if below is not None:
            return below
        if "/" in path:
            parent = Path(path).parent
            raise ElsewhereError(
                f"{name!r} is from another folder ({parent}), so nothing was written. Save it under a name "
                f"of your choice, or open it with pml studio --schemas {shlex.quote(str(parent))}.",
                known=True,
            )
        if not here:
            raise ElsewhereError(
                f"An earlier version of the studio did not keep which folder {name!r} is from, so nothing "
                f"was written. If it is this one ({self.path}), write it here; or save it under another "
                "name.",
                known=False,
            )
        return name

    def read(self, name: str, encoding: Encoding = "utf-8") -> tuple[str, Stamp]:
        r"""The text of a document, its lines ended by `\n`, and its stamp.

        Args:
            name: one of `names`.
            encoding: a key of `ENCODINGS`.

        Raises:
            NotUtf8Error: it is not, and `encoding` says nothing else.
            PromptCacheError: it is gone, too large, or cannot be read.
        """
        path = self._path(name)
        if not name.lower().endswith(ENDINGS):
            raise PromptCacheError(
                f"{name!r} is no document, whose name ends in .pml or .xml. Choose one from the list."
            )
        try:
            data = read_file(path, repr(name))
        except MissingFileError:
            raise PromptCacheError(f"{name!r} is not there any more. Choose another file.") from None
        return _lines(decoded(data, name, encoding)), stamp_of(data)

    def save(self, name: str, text: str, known: Stamp, *, force: bool = False) -> Stamp:
        r"""Writes a document back; one that holds this text already is left as it is.

        Args:
            name: the document's name.
            text: the document's text, whose lines end with `\n`; in the file they end as they did.
            known: the stamp of the file that the text was opened from.
            force: whether to write it although the file was changed or removed since.

        Raises:
            ChangedFileError: it is not the file that was opened.
            PromptCacheError: it cannot be written; what was there is still there.
        """
        path = self._path(name)
        if not name.lower().endswith(ENDINGS):
            raise PromptCacheError(
                f"{name!r} is no document, whose name ends in .pml or .xml, so nothing was written. Save it "
                "under another name."
            )
        with self._alone():
            try:
                found: bytes | None = read_file(path, repr(name))
            except MissingFileError:
                found = None
            if found is not None and holds(found, text):
                return stamp_of(found)
            if not force and (found is None or stamp_of(found).digest != known.digest):
                ours = found is not None and stamp_of(found).digest in self._written.get(name, ())
                raise ChangedFileError(name, gone=found is None, ours=ours)
            return self._write(path, name, known.spell(text), overwrite=True)

    def has(self, name: str) -> bool:
        """Whether there is a document of this name."""
        with contextlib.suppress(OSError, PromptCacheError):
            return self._path(name).is_file()
        return False

    def head(self, name: str, most: int) -> bytes:
        """The first bytes of a document.

        Raises:
            PromptCacheError: it is gone, or cannot be read.
        """
        with open_file(self._path(name), repr(name)) as file:
            try:
                return file.read(most)
            except OSError as error:
                raise PromptCacheError(f"{name!r} cannot be read: {error.strerror or error}.") from error

    def look(self, name: str, known: Stamp) -> Literal["same", "changed", "gone"]:
        """Whether a document is still what it was when it was read or written.

        Raises:
            PromptCacheError: it is there, and cannot be read.
        """
        try:
            data = read_file(self._path(name), repr(name))
        except MissingFileError:
            return "gone"
        return "same" if stamp_of(data).digest == known.digest else "changed"

    def create(self, name: str, text: str, like: Stamp) -> Stamp:
        """Writes a new document, with the line ends of `like`.

        Args:
            name: a file name, in front of it the folders inside this one that it goes to.
            text: the document's text.
            like: the stamp of the file that it looks like.

        Raises:
            PromptCacheError: there is one of this name, or it cannot be written.
        """
        _require_name(name)
        with self._alone():
            return self._write(self._path(name), name, like.spell(text), overwrite=False)

    def rename(self, name: str, new: str) -> None:
        """Gives a document another name, in its folder or in another one inside this one.

        Raises:
            PromptCacheError: there is one of that name, or the document is not there any more.
        """
        _require_name(new)
        old, place = self._path(name), self._path(new)
        try:
            with self._alone():
                move_new(old, place)
        except FileExistsError:
            raise PromptCacheError(f"There is a file {new!r} already. Choose another name.") from None
        except FileNotFoundError:
            missing = new if old.exists() else name
            what = "has no such folder to be in" if missing == new else "is not there any more"
            raise PromptCacheError(f"{missing!r} {what}, so nothing was renamed.") from None
        except OSError as error:
            raise PromptCacheError(
                f"{name!r} was not renamed: {error.strerror or error}. The file is as it was."
            ) from error
        self._written[new] = self._written.pop(name, set())

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps out other threads and other studios; where a folder cannot be locked, threads only."""
        with self._lock, contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # systems that open no folder, network disks without locks
                if self.path is not None:
                    descriptor = os.open(self.path, os.O_RDONLY)
                    stack.callback(os.close, descriptor)
                    until = time.monotonic() + PATIENCE_SECONDS
                    while not lock_descriptor(descriptor, blocking=False) and time.monotonic() < until:
                        time.sleep(_STEP_SECONDS)
            yield

    def _write(self, path: Path, name: str, data: bytes, *, overwrite: bool) -> Stamp:
        if not overwrite and path.is_symlink():
            raise PromptCacheError(f"There is a link {name!r} already. Choose another name.")
        if self.path is not None and not path.resolve().is_relative_to(self.path):
            raise PromptCacheError(
                f"{name!r} is a link to {str(path.resolve())!r}, which is not in the studio's folder, so "
                "nothing was written. Save under another name, or open that folder with pml studio --schemas."
            )
        try:
            write_bytes(path, data, overwrite=overwrite)
            whole = path.read_bytes() == data
        except FileExistsError:
            raise PromptCacheError(f"There is a file {name!r} already. Choose another name.") from None
        except OSError as error:
            raise PromptCacheError(
                f"{name!r} was not written: {error.strerror or error}. The text is kept in your draft; "
                "mend that and save again, or download it."
            ) from error
        if not whole:
            raise PromptCacheError(
                f"{name!r} does not hold what was written. Save again, or download the text."
            )
        stamp = stamp_of(data)
        self._written.setdefault(name, set()).add(stamp.digest)
        return stamp

    def _path(self, name: str) -> Path:
        if self.path is None:
            raise PromptCacheError(
                "The studio has no folder of documents, so no file was written. Start it with --schemas DIR, "
                "or download the text."
            )
        if not _plain(name):
            raise PromptCacheError(
                f"{name!r} names no file of the studio's folder, or of a folder inside it. Open the file "
                "from the File menu, or save under another name."
            )
        path = self.path / name
        if not path.parent.resolve().is_relative_to(self.path):
            raise PromptCacheError(
                f"{name!r} lies behind a link that leads out of the studio's folder. Choose another name."
            )
        return path


def _plain(name: str) -> bool:
    """Whether a name is a path that stays in its folder, in the one spelling that there is for it."""
    parts = name.split("/")
    own = all(Path(part).name == part and part not in ("", "..") for part in parts)
    return own and name.isprintable() and "\\" not in name


def _require_name(name: str) -> None:
    own = name.rpartition("/")[2]
    hidden = any(part.startswith(".") for part in name.split("/"))  # which the list of documents leaves out
    odd = hidden or not own.isprintable() or NOT_IN_NAMES & set(own)
    if odd or not own.lower().endswith(ENDINGS) or len(own.encode()) > LONGEST_NAME or not _plain(name):
        why = " What begins with a dot is hidden, and not listed." if hidden else ""
        raise PromptCacheError(
            f"{name!r} cannot name a document. Write a plain file name that ends in .pml or .xml.{why}"
        )


def stamp_of(data: bytes) -> Stamp:
    """The stamp of a file with these bytes; of mixed line ends, the most frequent counts."""
    pairs = data.count(b"\r\n")
    alone = data.count(b"\n") - pairs
    counts: dict[Newline, int] = {"\n": alone, "\r\n": pairs, "\r": data.count(b"\r") - pairs}
    newline = max(counts, key=counts.__getitem__)
    return Stamp(hashlib.blake2b(data, digest_size=20).hexdigest(), data.startswith(BOM), newline)


def holds(data: bytes, text: str) -> bool:
    """Whether a file says exactly this text, whatever its line ends."""
    try:
        return _lines(decode(data)) == text
    except EncodingError:
        return False


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decoded(data: bytes, name: str, encoding: Encoding) -> str:
    """The text of a file's bytes.

    Raises:
        NotUtf8Error: it is not UTF-8, and `encoding` says nothing else.
        PromptCacheError: it is not in that encoding, or no text at all.
    """
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    if encoding == "utf-16" and wide:
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError:
            raise PromptCacheError(f"{name!r} is broken UTF-16. Convert it to UTF-8 first.") from None
    if encoding == "windows-1252":
        return data.decode("latin-1").translate(WINDOWS)
    try:
        return decode(data, name)
    except EncodingError as error:
        if b"\0" in data and not error.wide:
            raise PromptCacheError(
                f"{name!r} is no text: it holds bytes that only binary files have. Choose another file."
            ) from None
        raise NotUtf8Error(name, "utf-16" if error.wide else "windows-1252", error.why) from None
