"""The file format of a stored schema: one JSON object, the head first, then the text.

Listing schemas reads heads only. A reader without support for heads can parse the whole object.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

HEAD_BYTES = 4096  # bytes read for the head of a file; most names are short
LARGEST = 32 * 1000 * 1000  # maximum size of a file in bytes
_TEXT = b', "text": '  # quotes within strings are escaped, so this is always a field


@dataclass(frozen=True)
class Head:
    """A schema without its text."""

    owner: str  # the client that stored it; "" for shared schemas
    name: str
    created_at: float  # when its text was stored, in seconds since 1970
    expires_at: float | None  # when it expires; None for never
    pinned: bool  # whether its segments are never evicted
    bytes: int  # size of the text
    digest: str

    def is_there(self, now: float) -> bool:
        """Returns whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True)
class KeptSchema:
    """A stored schema of a client."""

    name: str
    text: str
    created_at: float  # when this text was stored, in seconds since 1970
    expires_at: float | None = None  # when it expires; None for never
    pinned: bool = False  # whether its segments are never evicted

    def is_there(self, now: float) -> bool:
        """Returns whether it has not expired."""
        return self.expires_at is None or now < self.expires_at

    def head(self, owner: str) -> Head:
        """Returns the head for a client."""
        data = self.text.encode("utf-8")
        digest = hashlib.sha256(data).hexdigest()
        return Head(owner, self.name, self.created_at, self.expires_at, self.pinned, len(data), digest)


@dataclass(frozen=True)
class Terms:
    """A requested change of a schema's lifetime. Absent fields change nothing."""

    expires: bool = False  # whether `expires_at` is present
    expires_at: float | None = None  # when it expires, in seconds since 1970; None for never
    pinned: bool | None = None  # whether it is pinned; None if absent

    def put_on(self, kept: KeptSchema) -> KeptSchema:
        """Returns the schema under these terms."""
        expires_at = self.expires_at if self.expires else kept.expires_at
        pinned = kept.pinned if self.pinned is None else self.pinned
        return replace(kept, expires_at=expires_at, pinned=pinned)


def written(kept: KeptSchema, owner: str) -> bytes:
    """Returns the contents of a schema's file."""
    head = kept.head(owner)
    text = json.dumps(kept.text, ensure_ascii=False).encode()
    fields = {"version": 1, **vars(head), "length": len(text)}
    return json.dumps(fields, ensure_ascii=False).encode()[:-1] + _TEXT + text + b"}"


def head_of(beginning: bytes, size: int) -> Head | None:
    """Parses the head of a file from its first bytes and its size.

    Returns:
        The head; None if the file has no head or needs a complete read.
    """
    end = beginning.find(_TEXT)
    if end < 0:
        return None
    try:
        fields = json.loads(beginning[:end] + b"}")
    except (ValueError, RecursionError):
        return None
    if not _is_head(fields) or end + len(_TEXT) + fields["length"] + 1 != size:
        return None
    return Head(
        fields["owner"],
        fields["name"],
        fields["created_at"],
        fields["expires_at"],
        fields["pinned"],
        fields["bytes"],
        fields["digest"],
    )


def kept_of(data: bytes) -> tuple[str, KeptSchema] | None:
    """Parses a whole file into client and schema; None for other JSON.

    Raises:
        ValueError: the file is not JSON.
        RecursionError: the JSON nests too deep.
    """
    fields = json.loads(data)
    if not isinstance(fields, dict) or not _is_kept(fields):
        return None
    name, text, pinned = fields["name"], fields["text"], fields["pinned"]
    owner = str(fields.get("owner"))
    return owner, KeptSchema(name, text, fields["created_at"], fields["expires_at"], pinned)


def _is_head(found: Any) -> bool:
    texts, numbers = ("owner", "digest"), ("bytes", "length")
    return (
        isinstance(found, dict)
        and _has_terms(found)
        and all(isinstance(found.get(key), str) for key in texts)
        and all(type(found.get(key)) is int for key in numbers)
    )


def _is_kept(found: dict[str, Any]) -> bool:
    text = found.get("text")
    return _has_terms(found) and isinstance(text, str) and _is_whole(text)


def _has_terms(found: dict[str, Any]) -> bool:
    created_at, expires_at = found.get("created_at"), found.get("expires_at")
    return (
        found.get("version") == 1
        and isinstance(found.get("name"), str)
        and isinstance(found.get("pinned"), bool)
        and _is_time(created_at)
        and "expires_at" in found
        and (expires_at is None or _is_time(expires_at))
    )


def _is_time(given: object) -> TypeGuard[float]:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def _is_whole(text: str) -> bool:
    """Whether a text has no unpaired surrogates."""
    with contextlib.suppress(UnicodeEncodeError):
        text.encode("utf-8")
        return True
    return False
