"""A file of the Python index, fetched so that what a break or an end has left is not fetched again.

pip fetches from the beginning each time. So the address is read off the index that pip is set to, and the
bytes are asked for from where the part that is there ends.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.base.errors import ModelError
from engine.checkpoint.fingerprint import Progress

_INDEX = "https://pypi.org/simple"
_SET = re.compile(r"^(?:\S*[.:])?index-url='(.+)'$", re.MULTILINE)
_NONE = re.compile(r"^(?:\S*[.:])?no-index='(?:1|true|yes|on)'$", re.MULTILINE | re.IGNORECASE)
_PATIENCE = 20.0  # seconds that a server may say nothing
_TRIES = 5  # without a byte more
_PAUSE = 1.0  # seconds before another one
_PARTIAL, _BEYOND = 206, 416


def address_of(project: str, digest: str) -> str:
    """Returns where the index that pip is set to has a file.

    Args:
        project: whose file it is.
        digest: of the file, SHA-256.

    Raises:
        ModelError: the index cannot be asked, or has no such file.
    """
    from huggingface_hub import get_session

    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if _NONE.search(said):
        raise ModelError("pip is set to ask no index")
    found = _SET.findall(said)
    page = f"{(found[0] if found else _INDEX).rstrip('/')}/{project}/"
    try:
        given = get_session().get(
            page, headers={"Accept": "text/html"}, follow_redirects=True, timeout=_PATIENCE
        )
        given.raise_for_status()
        link = re.search(rf'href="([^"#]+)#sha256={digest}"', given.text)
        if link is not None:
            return str(given.url.join(link[1].replace("&amp;", "&")))
    except Exception as error:  # of the library, for no network, no index, or a setting that forbids to ask
        raise ModelError("the Python index is out of reach") from error
    raise ModelError(f"the Python index has no file of {project} with the digest {digest[:12]}…")


def fetch_on(address: str, part: Path, size: int, what: str, progress: Progress | None = None) -> None:
    """Fetches what a part of a file lacks; what is there stays, whatever ends this.

    Args:
        address: of the file.
        part: what is there of it, or nothing yet.
        size: bytes of the whole.
        what: what the progress calls it.
        progress: called with (bytes done, bytes in all, what); what it raises ends the fetching.

    Raises:
        ModelError: the server breaks off again and again.
        OSError: the part cannot be written.
    """
    tries = 0
    while (begun := part.stat().st_size if part.exists() else 0) < size:
        try:
            for whole, block in _blocks(address, begun):
                with part.open("wb" if whole else "ab") as file:
                    file.write(block)
                tries = 0
                if progress is not None:
                    progress(min(part.stat().st_size, size), size, what)
        except _BrokenError as error:
            tries += 1
            if tries == _TRIES:
                raise ModelError(f"the Python index broke off at {begun >> 20} MiB") from error
            time.sleep(_PAUSE)
        else:
            tries += 1
            if tries > _TRIES:
                raise ModelError(f"the Python index gave {begun} of {size} bytes")


class _BrokenError(Exception):
    """A server gave no answer, or not all of it."""


def _blocks(address: str, begun: int) -> Iterator[tuple[bool, bytes]]:
    """The bytes from a place on; with the first block, whether it is the first of the whole file.

    Raises:
        _BrokenError: the server breaks off.
    """
    from huggingface_hub import get_session

    session: Any = get_session()
    asked = {"Accept-Encoding": "identity", **({"Range": f"bytes={begun}-"} if begun else {})}
    try:
        with session.stream("GET", address, headers=asked, follow_redirects=True, timeout=_PATIENCE) as given:
            if given.status_code == _BEYOND:
                return
            given.raise_for_status()
            whole = given.status_code != _PARTIAL
            blocks = given.iter_raw()  # what came before a break is given too
            while (block := next(blocks, None)) is not None:
                yield whole, block
                whole = False
    except Exception as error:  # of the library, which raises many kinds
        raise _BrokenError from error
