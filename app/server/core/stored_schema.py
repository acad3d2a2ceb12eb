"""A schema that a client has put, and how it is written: what there is to say of it first, then its text.

So a look at many of them reads no text. A file is one object of JSON, and its version the first: what knows
no heads reads it too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

HEAD_BYTES = 4096
"""So much of a file is read for its head; names are mostly short."""
LARGEST = 32 * 1000 * 1000
"""The most bytes of a file that is read."""
_TEXT = b', "text": '  # quotes within texts are escaped, so what stands so is a field


@dataclass(frozen=True)
class Head:
    """What there is to say of a schema, but for its text.

    Attributes:
        owner: the client that has put it, "" for all of them.
        name: its name.
        created_at: when its text was put, in seconds since 1970.
        expires_at: when it goes; None for never.
        pinned: whether its segments are never evicted.
        bytes: of its text.
        digest: of its text.
    """

    owner: str
    name: str
    created_at: float
    expires_at: float | None
    pinned: bool
    bytes: int
    digest: str

    def is_there(self, now: float) -> bool:
        """Whether its time is not over."""
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True)
class KeptSchema:
    """A schema that a client has put.

    Attributes:
        name: its name.
        text: its PML.
        created_at: when this text was put, in seconds since 1970.
        expires_at: when it goes; None for never.
        pinned: whether its segments are never evicted.
    """

    name: str
    text: str
    created_at: float
    expires_at: float | None = None
    pinned: bool = False

    def is_there(self, now: float) -> bool:
        """Whether its time is not over."""
        return self.expires_at is None or now < self.expires_at

    def head(self, owner: str) -> Head:
        """Returns what there is to say of it, as a client's."""
        data = self.text.encode("utf-8")
        digest = hashlib.sha256(data).hexdigest()
        return Head(owner, self.name, self.created_at, self.expires_at, self.pinned, len(data), digest)


@dataclass(frozen=True)
class Terms:
    """What a client says of how long a schema stays; what it does not say stays as it is.

    Attributes:
        expires: whether `expires_at` is said.
        expires_at: when it goes, in seconds since 1970; None for never.
        pinned: whether it is pinned; None where that is not said.
    """

    expires: bool = False
    expires_at: float | None = None
    pinned: bool | None = None

    def put_on(self, kept: KeptSchema) -> KeptSchema:
        """Returns a schema under these terms."""
        expires_at = self.expires_at if self.expires else kept.expires_at
        pinned = kept.pinned if self.pinned is None else self.pinned
        return replace(kept, expires_at=expires_at, pinned=pinned)


def written(kept: KeptSchema, owner: str) -> bytes:
    """Returns a schema as it stands in its file."""
    head = kept.head(owner)
    text = json.dumps(kept.text, ensure_ascii=False).encode()
    said = {"version": 1, **vars(head), "length": len(text)}
    return json.dumps(said, ensure_ascii=False).encode()[:-1] + _TEXT + text + b"}"


def head_of(beginning: bytes, size: int) -> Head | None:
    """Reads a head.

    Args:
        beginning: of a file.
        size: how many bytes the whole file has.

    Returns:
        It; None where all of the file has to be read for it, or none of ours is.
    """
    end = beginning.find(_TEXT)
    if end < 0:
        return None
    try:
        found = json.loads(beginning[:end] + b"}")
    except (ValueError, RecursionError):
        return None
    if not _is_head(found) or end + len(_TEXT) + found["length"] + 1 != size:
        return None
    return Head(
        found["owner"],
        found["name"],
        found["created_at"],
        found["expires_at"],
        found["pinned"],
        found["bytes"],
        found["digest"],
    )


def kept_of(data: bytes) -> tuple[str, KeptSchema] | None:
    """Reads a whole file; gives the client and its schema, None where it says something else.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it nests too deep.
    """
    found = json.loads(data)
    if not isinstance(found, dict) or not _is_kept(found):
        return None
    name, text, pinned = found["name"], found["text"], found["pinned"]
    owner = str(found.get("owner"))
    return owner, KeptSchema(name, text, found["created_at"], found["expires_at"], pinned)


def _is_head(found: Any) -> bool:
    texts, numbers = ("owner", "digest"), ("bytes", "length")
    return (
        isinstance(found, dict)
        and _has_terms(found)
        and all(isinstance(found.get(one), str) for one in texts)
        and all(type(found.get(one)) is int for one in numbers)
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
    """Whether a text is made of whole characters."""
    with contextlib.suppress(UnicodeEncodeError):
        text.encode("utf-8")
        return True
    return False
