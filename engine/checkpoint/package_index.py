"""Resumable fetches of files from the Python index.

pip restarts from the beginning each time. This module asks pip's index for the address of a file and fetches
only the missing bytes.
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
_PATIENCE = 20.0  # seconds without data from a server
_TRIES = 5  # without new bytes
_PAUSE = 1.0  # seconds between tries
_PARTIAL, _BEYOND = 206, 416


def address_of(project: str, digest: str) -> str:
    """Returns the address of a project's file in pip's index, by its SHA-256.

    Raises:
        ModelError: the index is unreachable or has no such file.
    """
    from huggingface_hub import get_session

    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    settings = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if _NONE.search(settings):
        raise ModelError("pip is configured without an index")
    indexes = _SET.findall(settings)
    page = f"{(indexes[0] if indexes else _INDEX).rstrip('/')}/{project}/"
    try:
        response = get_session().get(
            page, headers={"Accept": "text/html"}, follow_redirects=True, timeout=_PATIENCE
        )
        response.raise_for_status()
        link = re.search(rf'href="([^"#]+)#sha256={digest}"', response.text)
        if link is not None:
            return str(response.url.join(link[1].replace("&amp;", "&")))
    except Exception as error:  # raised for no network, no index, or offline mode
        raise ModelError("the Python index cannot be reached") from error
    raise ModelError(f"the Python index has no file of {project} with the digest {digest[:12]}…")


def fetch_on(address: str, part: Path, size: int, what: str, progress: Progress | None = None) -> None:
    """Fetches the missing rest of a file of `size` bytes; fetched bytes stay after an interruption.

    `progress` is called with (bytes done, total bytes, `what`); an exception from it ends the fetch.

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
                raise ModelError(f"the Python index stopped at {begun >> 20} MiB") from error
            time.sleep(_PAUSE)
        else:
            tries += 1
            if tries > _TRIES:
                raise ModelError(f"the Python index gave {begun} of {size} bytes")


class _BrokenError(Exception):
    """A server gave no answer or an incomplete one."""


def _blocks(address: str, begun: int) -> Iterator[tuple[bool, bytes]]:
    """Yields blocks from an offset, each with a flag that marks the first of a whole file."""
    from huggingface_hub import get_session

    session: Any = get_session()
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={begun}-"} if begun else {})}
    try:
        with session.stream(
            "GET", address, headers=headers, follow_redirects=True, timeout=_PATIENCE
        ) as response:
            if response.status_code == _BEYOND:
                return
            response.raise_for_status()
            whole = response.status_code != _PARTIAL
            blocks = response.iter_raw()  # includes bytes from before a break
            while (block := next(blocks, None)) is not None:
                yield whole, block
                whole = False
    except Exception as error:  # the library raises many kinds
        raise _BrokenError from error
