"""Indexes the user's folder: each document's kind and schema name, from its first bytes."""

from __future__ import annotations

import re
import threading
from pathlib import PurePosixPath
from typing import Literal

from typing_extensions import TypedDict

from app.studio.documents.folder import Folder, Found
from engine.base.errors import PromptCacheError
from engine.pml import document_kind

HEAD = 16 * 1024  # bytes that contain the root element
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NAMES = {
    kind: re.compile(rf"""<{kind}\b[^>]*?\s{attribute}\s*=\s*(?:"([^"<]*)"|'([^'<]*)')""")
    for kind, attribute in (("schema", "name"), ("prompt", "schema"))
}


class Entry(TypedDict):
    """A document in the folder: `schema` is its schema's name, or "". `changed` is in seconds since 1970."""

    name: str
    kind: Literal["schema", "prompt", "other"]
    schema: str
    size: int
    changed: float


class Catalogue:
    """The documents of a folder by kind. Safe to use from several threads.

    Args:
        folder: the folder. Results are cached until a file changes.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._known: dict[Found, Entry] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """Returns every document of the folder, in the order of `Folder.documents`."""
        documents = self._folder.documents()
        with self._lock:
            self._known = {file: self._known.get(file) or self._entry(file) for file in documents}
            return list(self._known.values())

    def schemas(self, name: str, beside: str = "") -> list[str]:
        """Returns the files that define a schema; those next to the file `beside` come first."""
        place = PurePosixPath(beside).parent
        files = [
            item["name"] for item in self.entries() if (item["kind"], item["schema"]) == ("schema", name)
        ]
        return sorted(files, key=lambda item: PurePosixPath(item).parent != place)

    def _entry(self, found: Found) -> Entry:
        kind: Literal["schema", "prompt", "other"] = "other"
        schema = ""
        try:
            head = self._folder.head(found.name, HEAD).decode("utf-8", "replace").removeprefix("\ufeff")
        except PromptCacheError:  # removed meanwhile, or unreadable
            head = ""
        root = document_kind(head)
        if root is not None:
            kind = root
            named = _NAMES[root].search(_COMMENT.sub("", head))
            schema = (named[1] or named[2] or "") if named else ""
        return {
            "name": found.name,
            "kind": kind,
            "schema": schema,
            "size": found.size,
            "changed": found.changed,
        }
