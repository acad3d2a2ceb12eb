"""The file that announces a running studio to commands of the same user.

It is in the user's cache folder, readable by this account only, and has the secret for delegated runs. It is
deleted when the studio ends. A stale file is ignored, because no process on its port knows the secret.
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
_LARGEST = 64 << 10  # maximum size in bytes
_MOST = 32  # maximum number of files read


def folder() -> Path:
    """Returns the folder of the announcements."""
    return user_cache() / "studios"


@dataclass(frozen=True)
class Presence:
    """A studio that accepts runs.

    Attributes:
        port: port on 127.0.0.1.
        held: its model and store.
        secret: shared with this user's commands.
    """

    port: int
    held: Held
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    @property
    def url(self) -> str:
        """Returns the URL of its page."""
        return f"http://{HOST}:{self.port}"

    def proof(self, challenge: str) -> str:
        """Returns the response to a challenge, which requires the secret."""
        return hmac.new(self.secret.encode(), challenge.encode(), sha256).hexdigest()

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Writes the file for the duration of the context; without it, commands compute themselves."""
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
    """Deletes the file of a stopped studio, unless a later studio on its port replaced it."""
    path = folder() / _name(found.port)
    if (current := _read(path)) is not None and current.secret == found.secret:
        with contextlib.suppress(OSError):
            path.unlink()


def present() -> list[Presence]:
    """Returns the studios announced on this machine, latest first."""
    studios = []
    with contextlib.suppress(OSError):
        paths = sorted(folder().glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        studios = [studio for path in paths[:_MOST] if (studio := _read(path)) is not None]
    return studios


def _name(port: int) -> str:
    return f"{re.sub('[^A-Za-z0-9-]', '-', platform.node())}-{port}.json"


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read(path: Path) -> Presence | None:
    """Reads an announcement; None if it is invalid, another user's, or readable by others."""
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
        state = {**row["held"], "terms": Terms(**row["held"]["terms"])}
        port, secret = row["port"], row["secret"]
        if type(port) is not int or not 0 < port < 65536 or not isinstance(secret, str) or len(secret) < 32:
            return None
        return Presence(port, Held(**state), secret)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
