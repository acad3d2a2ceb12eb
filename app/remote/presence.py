"""The file by which a studio tells the same user's commands that it is there.

It lies in the user's cache folder, for this account only, and holds the secret that opens the studio's way
for runs. It goes when the studio ends; one that stayed behind names a port on which nobody proves to know
the secret, and is ignored.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import platform
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from app.remote.terms import Held, Terms
from engine.files import atomic
from engine.files.places import user_cache

HOST = "127.0.0.1"
_FORMAT = 1
_LARGEST = 64 << 10  # bytes of a file
_MOST = 32  # files that are looked at


def folder() -> Path:
    """Returns where studios of this user tell that they are there."""
    return user_cache() / "studios"


@dataclass(frozen=True)
class Presence:
    """A studio that takes runs.

    Attributes:
        port: on 127.0.0.1.
        held: what it computes with.
        secret: that it and this user's commands know.
    """

    port: int
    held: Held
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"http://{HOST}:{self.port}"

    def proof(self, challenge: str) -> str:
        """Returns what only who knows the secret can answer to a challenge."""
        return hmac.new(self.secret.encode(), challenge.encode(), sha256).hexdigest()

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Keeps the file as long as this is held; where it cannot be written, commands compute themselves."""
        row = {"format": _FORMAT, "host": platform.node(), **asdict(self)}
        name = _name(self.port)
        with contextlib.suppress(OSError):
            folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic.writing(folder(), name) as file:
                file.write(json.dumps(row).encode())
        try:
            yield
        finally:
            forget(self)


def forget(found: Presence) -> None:
    """Takes the file of a studio away that is not there any more; that of a later one on its port stays."""
    path = folder() / _name(found.port)
    if (there := _read(path)) is not None and there.secret == found.secret:
        with contextlib.suppress(OSError):
            path.unlink()


def present() -> list[Presence]:
    """Returns the studios that this user's files on this machine tell of, latest first."""
    found = []
    with contextlib.suppress(OSError):
        paths = sorted(folder().glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        found = [one for path in paths[:_MOST] if (one := _read(path)) is not None]
    return found


def _name(port: int) -> str:
    return f"{re.sub('[^A-Za-z0-9-]', '-', platform.node())}-{port}.json"


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read(path: Path) -> Presence | None:
    """What a file tells; None where it is another user's, or others may read it, or it is no such."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            if os.name == "posix" and (about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077):
                return None
            row: Any = json.loads(file.read(_LARGEST))
        if row["format"] != _FORMAT or row["host"] != platform.node():
            return None
        held = {**row["held"], "terms": Terms(**row["held"]["terms"])}
        port, secret = row["port"], row["secret"]
        if type(port) is not int or not 0 < port < 65536 or not isinstance(secret, str) or len(secret) < 32:
            return None
        return Presence(port, Held(**held), secret)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
