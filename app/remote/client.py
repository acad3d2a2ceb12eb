"""The command's side: finds a studio with matching terms and lets it compute a run."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

from app.remote.lines import Line, raise_fault
from app.remote.presence import HOST, Presence, forget, present
from app.remote.terms import Terms
from engine.base.errors import PromptCacheError

GREETING, RUN = "/runs/greeting", "/runs/answer"
FULL = 503  # HTTP status if the studio is full
GREETING_SECONDS = 2.0
_SECRET = "authorization"


class LostError(Exception):
    """A studio disconnected, failed or responded unexpectedly during a run."""


@dataclass(frozen=True)
class Choice:
    """The studios that may take a run."""

    studios: tuple[Presence, ...] = ()  # candidates, in order; empty if the command computes itself
    why_not: str = ""  # why a studio was not used; "" if that needs no explanation


def choose(server: str, wanted: Terms) -> Choice:
    """Finds the studios that may take a run: `server` is "auto", "never", or the URL of a studio."""
    if server == "never":
        return Choice()
    named = server != "auto"
    studios = [studio for studio in present() if not named or studio.url == server.rstrip("/")]
    serving = [studio for studio in studios if studio.held.serves(wanted)]
    refusals = [studio.held.refusal(wanted) for studio in serving]
    if "" in refusals:
        return Choice(tuple(studio for studio, refusal in zip(serving, refusals, strict=True) if not refusal))
    if serving:
        return Choice(why_not=f"The studio at {serving[0].url} is not used, because {refusals[0]}.")
    if not named:
        return Choice()
    if studios:
        return Choice(why_not=f"The studio at {server} has another model or another cache folder.")
    return Choice(why_not=f"No studio of yours runs at {server}.")


def asked(studio: Presence, request: dict[str, Any]) -> Generator[Line, None, None]:
    """Lets a studio answer, and yields the same lines as `engine`. Closing the iterator stops the answer.

    Raises:
        PromptError: a document has errors.
        PromptCacheError: the run cannot be computed.
        LostError: the studio is missing, disconnected or failed.
    """
    connection = http.client.HTTPConnection(HOST, studio.port, timeout=GREETING_SECONDS)
    try:
        _greet(connection, studio)
        connection.auto_open = 0  # a new connection might reach another process
        with _losing():
            if connection.sock is not None:
                connection.sock.settimeout(None)  # a step may take any time
            lines = _post(connection, RUN, request, {_SECRET: f"Bearer {studio.secret}"})
        yield from _lines(lines)
    finally:
        connection.close()


def _greet(connection: http.client.HTTPConnection, studio: Presence) -> None:
    """Verifies that the process on the port knows the secret, before sending anything."""
    challenge = secrets.token_hex(16)
    try:
        with _losing(), _cut_after(connection, 2 * GREETING_SECONDS), _losing():
            answer = json.loads(_post(connection, GREETING, {"challenge": challenge}, {}).read(1 << 12))
            proof = str(answer["proof"]).encode()
            if not compare_digest(proof, studio.proof(challenge).encode()):
                raise LostError("it does not know the studio's secret")
    except LostError as lost:
        if not isinstance(lost.__cause__, OSError) or isinstance(lost.__cause__, ConnectionRefusedError):
            forget(studio)  # the port is free or foreign; after a timeout the studio may just be slow
        raise


def _post(
    connection: http.client.HTTPConnection, path: str, sent: dict[str, Any], headers: dict[str, str]
) -> http.client.HTTPResponse:
    connection.request("POST", path, json.dumps(sent), {"content-type": "application/json", **headers})
    answer = connection.getresponse()
    if answer.status == FULL:
        raise LostError("its queue is full")
    if answer.status != 200:
        raise LostError(f"it answers with status {answer.status}")
    return answer


def _lines(answer: http.client.HTTPResponse) -> Iterator[Line]:
    while True:
        with _losing():
            line: Any = json.loads(answer.readline() or b'{"event": ""}')
            kind = line["event"]
        if kind == "over":
            return
        if kind == "":
            raise LostError("its response ended early")
        if kind == "fault":
            if line.get("own") is True:
                raise LostError(str(line["message"]))
            with _losing():
                raise_fault(line)
        yield line


@contextlib.contextmanager
def _cut_after(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Connects with a total time limit, because a socket's timeout restarts at every byte.

    Raises:
        LostError: the limit is over.
    """
    connection.connect()
    line, late = connection.sock, threading.Event()  # a foreign response may close the connection

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, cut)
    watch.daemon = True
    watch.start()
    try:
        yield
    except LostError:
        if late.is_set():  # not slow but endless; whether the cut shows as an end or a reset is a race
            raise LostError("its answer does not end") from None
        raise
    finally:
        watch.cancel()


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    """Turns errors of a connection or an invalid response into LostError."""
    try:
        yield
    except (LostError, PromptCacheError):
        raise
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, RecursionError) as error:
        raise LostError(f"{type(error).__name__}: {error}".rstrip(": ")) from error
