"""Reads and writes the documents of the user's folder without losing other programs' changes."""

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
PATIENCE_SECONDS = 5.0  # waits for another studio that writes to the same folder
_STEP_SECONDS = 0.01
MOST_SEEN = 20_000  # entries to examine
NOT_IN_NAMES = frozenset('/\\:*?"<>|')
Newline = Literal["\r\n", "\n", "\r"]
Encoding = Literal["utf-8", "windows-1252", "utf-16"]
ENCODINGS: dict[Encoding, str] = {"utf-8": "UTF-8", "windows-1252": "Windows-1252", "utf-16": "UTF-16"}

# Where Windows-1252 differs from Latin-1. Its five undefined bytes stay as they are, as in browsers.
WINDOWS = {
    byte: character
    for byte in range(0x80, 0xA0)
    if (character := bytes([byte]).decode("windows-1252", "ignore"))
}


@dataclass(frozen=True)
class Stamp:
    """A file as last read or written.

    Attributes:
        digest: the digest of the file's bytes; "" if it was never read.
        bom: whether it begins with a byte order mark.
        newline: the file's line ending.
    """

    digest: str = ""
    bom: bool = False
    newline: Newline = "\n"

    def spell(self, text: str) -> bytes:
        r"""Returns the bytes of a text with `\n` line endings.

        Raises:
            PromptCacheError: a character cannot be encoded.
        """
        try:
            data = text.replace("\n", self.newline).encode("utf-8")
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise PromptCacheError(
                f"Line {line} has half of a surrogate pair (U+{ord(text[error.start]):04X}), which "
                "files cannot store. Remove it, and save again."
            ) from None
        return BOM + data if self.bom else data


class NotUtf8Error(PromptCacheError):
    """A text file that is not UTF-8.

    Attributes:
        encoding: the encoding to suggest.
        why: the reason, in a few words.
    """

    def __init__(self, name: str, encoding: Encoding, why: str) -> None:
        super().__init__(
            f"{name!r} is not UTF-8 ({why}). Open it as {ENCODINGS[encoding]}? It will be saved as UTF-8."
        )
        self.encoding, self.why = encoding, why


class ChangedFileError(PromptCacheError):
    """Another program changed or removed the file, so it was not written.

    Attributes:
        gone: whether the file was removed.
    """

    def __init__(self, name: str, *, gone: bool, ours: bool = False) -> None:
        cause = "saved from another tab or window of the studio" if ours else "changed by another program"
        state = "no longer exists" if gone else f"was {cause} since it was opened here"
        super().__init__(f"{name!r} {state}, so nothing was written.")
        self.gone = gone


class ElsewhereError(PromptCacheError):
    """The document may belong to another folder, so it was not written.

    Attributes:
        known: whether the document's folder is known.
    """

    def __init__(self, words: str, *, known: bool) -> None:
        super().__init__(words)
        self.known = known


@dataclass(frozen=True)
class Found:
    """A document in the folder.

    Attributes:
        name: its path in the folder, with `/`.
        size: bytes.
        changed: the modification time in seconds since 1970.
    """

    name: str
    size: int
    changed: float


class Folder:
    """A folder with its subfolders; links to folders are not followed. Safe to use from several threads.

    Args:
        path: the folder's path; None has no documents.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = None if path is None else path.resolve()
        self._written: dict[str, set[str]] = {}
        self._lock = threading.Lock()  # use `_alone`

    def choose(self, place: str) -> Path:
        """Takes another folder, which is made if it does not exist.

        Raises:
            PromptCacheError: the path is not complete, or the folder cannot be made.
        """
        try:
            place.encode("utf-8")
            path = Path(place.strip()).expanduser()
            if not path.is_absolute():
                raise PromptCacheError("Write the whole path of the folder, such as ~/prompts.")
            path.mkdir(parents=True, exist_ok=True)
        except RuntimeError:
            raise PromptCacheError(
                "The home folder of this path is unknown. Write the whole path of the folder."
            ) from None
        except ValueError:
            raise PromptCacheError("The path has a character that folders cannot have. Remove it.") from None
        except OSError as error:
            raise PromptCacheError(f"The folder cannot be used: {error.strerror or error}.") from error
        self.path = path.resolve()
        self._written = {}
        return self.path

    def names(self) -> list[str]:
        """Returns the names of all documents, top level first."""
        return [document.name for document in self.documents()]

    def documents(self) -> list[Found]:
        """Returns all documents, top level first, up to `MOST_DOCUMENTS`."""
        documents: list[Found] = []
        pending = [] if self.path is None else [(self.path, "", 0)]
        entry_count = 0
        while pending and entry_count < MOST_SEEN and len(documents) < MOST_DOCUMENTS:
            place, prefix, depth = pending.pop(0)
            with contextlib.suppress(OSError), os.scandir(place) as entries:
                here = sorted(islice(entries, MOST_SEEN - entry_count), key=lambda entry: entry.name)
                entry_count += len(here)
                for entry in here:
                    with contextlib.suppress(OSError):  # removed meanwhile, or unreadable
                        if entry.is_dir(follow_symlinks=False):
                            if depth < DEEPEST and not entry.name.startswith("."):
                                pending.append((Path(entry.path), f"{prefix}{entry.name}/", depth + 1))
                        elif entry.name.lower().endswith(ENDINGS) and entry.is_file():
                            about = entry.stat()
                            documents.append(Found(prefix + entry.name, about.st_size, about.st_mtime))
        return documents[:MOST_DOCUMENTS]

    def origin(self, name: str) -> str:
        """Returns a document's origin for workspaces: ``file:`` and its path."""
        return f"file:{self._path(name).as_posix()}"

    def owns(self, origin: str) -> bool:
        """Whether a document of this origin is in this folder or a subfolder."""
        return self._below(origin) is not None

    def _below(self, origin: str) -> str | None:
        """Returns a document's path in this folder; None if it is elsewhere."""
        kind, _, path = origin.partition(":")
        if kind != "file" or "/" not in path or self.path is None:
            return None
        inside: list[str] = []
        for above in Path(path).parents:
            same = above == self.path
            with contextlib.suppress(OSError, ValueError):  # then compare names
                same = above.samefile(self.path)
            if same:
                name = "/".join((*reversed(inside), Path(path).name))
                return name if _plain(name) else None
            inside.append(above.name)
        return None

    def name_of(self, origin: str, *, here: bool = False) -> str:
        """Returns the name in this folder under which a document is saved.

        Args:
            origin: the document's source, as from `origin`.
            here: whether to assume this folder for a document of an unknown folder.

        Raises:
            ElsewhereError: the document is not known to be in this folder.
        """
        path = origin.partition(":")[2]
        name = path.rpartition("/")[2]
        below = self._below(origin)
        if below is not None:
            return below
        if "/" in path:
            parent = Path(path).parent
            raise ElsewhereError(
                f"{name!r} is from another folder ({parent}), so nothing was written. Save it under "
                f"another name, or open it with pml studio --schemas {shlex.quote(str(parent))}.",
                known=True,
            )
        if not here:
            raise ElsewhereError(
                f"The folder of {name!r} is unknown, so nothing was written. If it is {self.path}, "
                "save it here; otherwise save it under another name.",
                known=False,
            )
        return name

    def read(self, name: str, encoding: Encoding = "utf-8") -> tuple[str, Stamp]:
        r"""Returns a document's text with `\n` line endings, and its stamp.

        Args:
            name: one of `names`.
            encoding: a key of `ENCODINGS`.

        Raises:
            NotUtf8Error: the file is not UTF-8, and `encoding` is.
            PromptCacheError: the file is missing, too large, or unreadable.
        """
        path = self._path(name)
        if not name.lower().endswith(ENDINGS):
            raise PromptCacheError(
                f"{name!r} is not a document: its name must end in .pml or .xml. Choose one from the list."
            )
        try:
            data = read_file(path, repr(name))
        except MissingFileError:
            raise PromptCacheError(f"{name!r} no longer exists. Choose another file.") from None
        return _lines(decoded(data, name, encoding)), stamp_of(data)

    def save(self, name: str, text: str, known: Stamp, *, force: bool = False) -> Stamp:
        r"""Saves a document unless the file already has this text.

        Args:
            name: the document's name.
            text: the text with `\n` line endings; the file keeps its own.
            known: the stamp of the file when it was opened.
            force: also overwrite a file that was changed or removed meanwhile.

        Raises:
            ChangedFileError: the file was changed or removed since it was opened.
            PromptCacheError: the file cannot be written; its old content remains.
        """
        path = self._path(name)
        if not name.lower().endswith(ENDINGS):
            raise PromptCacheError(
                f"{name!r} is not a document: its name must end in .pml or .xml. Nothing was written. "
                "Save it under another name."
            )
        with self._alone():
            try:
                data: bytes | None = read_file(path, repr(name))
            except MissingFileError:
                data = None
            if data is not None and holds(data, text):
                return stamp_of(data)
            if not force and (data is None or stamp_of(data).digest != known.digest):
                own = data is not None and stamp_of(data).digest in self._written.get(name, ())
                raise ChangedFileError(name, gone=data is None, ours=own)
            return self._write(path, name, known.spell(text), overwrite=True)

    def has(self, name: str) -> bool:
        """Whether there is a document of this name."""
        with contextlib.suppress(OSError, PromptCacheError):
            return self._path(name).is_file()
        return False

    def head(self, name: str, most: int) -> bytes:
        """Returns the first bytes of a document.

        Raises:
            PromptCacheError: the file is missing or unreadable.
        """
        with open_file(self._path(name), repr(name)) as file:
            try:
                return file.read(most)
            except OSError as error:
                raise PromptCacheError(f"{name!r} cannot be read: {error.strerror or error}.") from error

    def look(self, name: str, known: Stamp) -> Literal["same", "changed", "gone"]:
        """Compares a document with its last read or written state.

        Raises:
            PromptCacheError: the file exists but cannot be read.
        """
        try:
            data = read_file(self._path(name), repr(name))
        except MissingFileError:
            return "gone"
        return "same" if stamp_of(data).digest == known.digest else "changed"

    def create(self, name: str, text: str, like: Stamp) -> Stamp:
        """Writes a new document with the line endings of `like`.

        Args:
            name: a path in this folder.
            text: the document's text.
            like: the stamp to copy line endings from.

        Raises:
            PromptCacheError: the name is in use, or the file cannot be written.
        """
        _require_name(name)
        with self._alone():
            return self._write(self._path(name), name, like.spell(text), overwrite=False)

    def rename(self, name: str, new: str) -> None:
        """Renames or moves a document within this folder.

        Raises:
            PromptCacheError: the new name is in use, or the document is missing.
        """
        _require_name(new)
        old, place = self._path(name), self._path(new)
        try:
            with self._alone():
                move_new(old, place)
        except FileExistsError:
            raise PromptCacheError(f"A file {new!r} already exists. Choose another name.") from None
        except FileNotFoundError:
            missing = new if old.exists() else name
            reason = "is in a folder that does not exist" if missing == new else "no longer exists"
            raise PromptCacheError(f"{missing!r} {reason}, so nothing was renamed.") from None
        except OSError as error:
            raise PromptCacheError(
                f"{name!r} was not renamed: {error.strerror or error}. The file is unchanged."
            ) from error
        self._written[new] = self._written.pop(name, set())

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks out other threads and studios; only threads if the folder cannot be locked."""
        with self._lock, contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # no folder handles, or a network disk without locks
                if self.path is not None:
                    descriptor = os.open(self.path, os.O_RDONLY)
                    stack.callback(os.close, descriptor)
                    until = time.monotonic() + PATIENCE_SECONDS
                    while not lock_descriptor(descriptor, blocking=False) and time.monotonic() < until:
                        time.sleep(_STEP_SECONDS)
            yield

    def _write(self, path: Path, name: str, data: bytes, *, overwrite: bool) -> Stamp:
        if not overwrite and path.is_symlink():
            raise PromptCacheError(f"A link {name!r} already exists. Choose another name.")
        if self.path is not None and not path.resolve().is_relative_to(self.path):
            raise PromptCacheError(
                f"{name!r} is a link to {str(path.resolve())!r}, outside the studio's folder, so "
                "nothing was written. Save under another name, or open that folder with pml studio "
                "--schemas."
            )
        try:
            write_bytes(path, data, overwrite=overwrite)
            whole = path.read_bytes() == data
        except FileExistsError:
            raise PromptCacheError(f"A file {name!r} already exists. Choose another name.") from None
        except OSError as error:
            raise PromptCacheError(
                f"{name!r} was not written: {error.strerror or error}. The text is saved in your "
                "draft. Fix the problem and save again, or download it."
            ) from error
        if not whole:
            raise PromptCacheError(
                f"{name!r} differs from the text that was written. Save again, or download the text."
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
                f"{name!r} is not a file in the studio's folder. Open the file from the File menu, or "
                "save under another name."
            )
        path = self.path / name
        if not path.parent.resolve().is_relative_to(self.path):
            raise PromptCacheError(
                f"{name!r} is behind a link that leaves the studio's folder. Choose another name."
            )
        return path


def _plain(name: str) -> bool:
    """Whether a name is a normalised relative path inside the folder."""
    parts = name.split("/")
    own = all(Path(part).name == part and part not in ("", "..") for part in parts)
    return own and name.isprintable() and "\\" not in name


def _require_name(name: str) -> None:
    own = name.rpartition("/")[2]
    hidden = any(part.startswith(".") for part in name.split("/"))  # the list leaves them out
    odd = hidden or not own.isprintable() or NOT_IN_NAMES & set(own)
    if odd or not own.lower().endswith(ENDINGS) or len(own.encode()) > LONGEST_NAME or not _plain(name):
        why = " Names that begin with a dot are hidden." if hidden else ""
        raise PromptCacheError(
            f"{name!r} is not a valid name of a document. Write a plain file name that ends in .pml "
            f"or .xml.{why}"
        )


def stamp_of(data: bytes) -> Stamp:
    """Returns the stamp of a file with these bytes; the most frequent line ending counts."""
    pairs = data.count(b"\r\n")
    alone = data.count(b"\n") - pairs
    counts: dict[Newline, int] = {"\n": alone, "\r\n": pairs, "\r": data.count(b"\r") - pairs}
    newline = max(counts, key=counts.__getitem__)
    return Stamp(hashlib.blake2b(data, digest_size=20).hexdigest(), data.startswith(BOM), newline)


def holds(data: bytes, text: str) -> bool:
    """Whether a file has exactly this text, apart from line endings."""
    try:
        return _lines(decode(data)) == text
    except EncodingError:
        return False


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decoded(data: bytes, name: str, encoding: Encoding) -> str:
    """Returns the text of a file's bytes.

    Raises:
        NotUtf8Error: the file is not UTF-8, and `encoding` is.
        PromptCacheError: the file is not in that encoding, or not text.
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
            raise PromptCacheError(f"{name!r} is a binary file, not text. Choose another file.") from None
        raise NotUtf8Error(name, "utf-16" if error.wide else "windows-1252", error.why) from None
