"""The user's folder of documents: read as text, written back so that nothing another program wrote is lost.

Knows bytes, encodings and line ends; knows nothing about what the texts mean.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.writing import write_bytes
from engine.errors import PromptCacheError
from engine.pml.text_files import BOM, EncodingError, MissingFileError, decode, read_file

ENDINGS = (".pml", ".xml")
LONGEST_NAME = 200  # in bytes; a temporary name is longer
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
    """

    def __init__(self, name: str, encoding: Encoding, why: str) -> None:
        super().__init__(
            f"{name!r} is not UTF-8 ({why}). Open it as {ENCODINGS[encoding]}? It will be saved as UTF-8."
        )
        self.encoding = encoding


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


class Folder:
    """One folder, without the folders in it. Safe to use from several threads.

    Args:
        path: the folder's path; without one there are no documents.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = None if path is None else path.resolve()
        self._written: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Names of its documents."""
        if self.path is None or not self.path.is_dir():
            return []
        return sorted(p.name for p in self.path.iterdir() if p.suffix.lower() in ENDINGS and p.is_file())

    def origin(self, name: str) -> str:
        """Where a document of this folder comes from, as workspaces keep it: ``file:`` and its path."""
        return f"file:{self._path(name).as_posix()}"

    def owns(self, origin: str) -> bool:
        """Whether a document of this origin is one of this folder."""
        kind, _, path = origin.partition(":")
        if kind != "file" or "/" not in path or self.path is None:
            return False
        parent = Path(path).parent
        with contextlib.suppress(OSError, ValueError):  # then the names decide
            return parent.samefile(self.path)
        return parent == self.path

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
        if self.owns(origin):
            return name
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
        if name not in self.names():
            raise PromptCacheError(
                f"There is no document {name!r} in the studio's folder. Choose one from the list."
            )
        try:
            data = read_file(self._path(name), repr(name))
        except MissingFileError:
            raise PromptCacheError(f"{name!r} is not there any more. Choose another file.") from None
        return _lines(_decoded(data, name, encoding)), stamp_of(data)

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
        with self._lock:
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

    def create(self, name: str, text: str, like: Stamp) -> Stamp:
        """Writes a new document, with the line ends of `like`.

        Raises:
            PromptCacheError: there is one of this name, or it cannot be written.
        """
        odd = name.startswith(".") or not name.isprintable() or NOT_IN_NAMES & set(name)
        if odd or not name.lower().endswith(ENDINGS) or len(name.encode()) > LONGEST_NAME:
            raise PromptCacheError(
                f"{name!r} cannot name a document. Write a plain file name that ends in .pml or .xml."
            )
        with self._lock:
            return self._write(self._path(name), name, like.spell(text), overwrite=False)

    def _write(self, path: Path, name: str, data: bytes, *, overwrite: bool) -> Stamp:
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
        if Path(name).name != name or not name.isprintable():
            raise PromptCacheError(
                f"{name!r} names no file of the studio's folder, which is a name without a path. Open the "
                "file from the File menu, or save under another name."
            )
        return self.path / name


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


def _decoded(data: bytes, name: str, encoding: Encoding) -> str:
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
        raise NotUtf8Error(name, "utf-16" if error.wide else "windows-1252", error.why) from None
