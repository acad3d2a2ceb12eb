"""The command's side: finds a studio that computes on the wanted terms, and has it answer."""

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
FULL = 503  # the status of an answer to a run for which there is no room
GREETING_SECONDS = 2.0
_SECRET = "authorization"


class LostError(Exception):
    """A studio went away, failed by its own fault, or does not speak as expected, before a run was over."""


@dataclass(frozen=True)
class Choice:
    """Which studios may take a run.

    Attributes:
        studios: those to ask, one after the other; none where the command computes itself.
        why_not: why a studio that was there, or that was asked for, is not asked; "" where nobody wonders.
    """

    studios: tuple[Presence, ...] = ()
    why_not: str = ""


def choose(server: str, wanted: Terms) -> Choice:
    """Finds the studios that may take a run.

    Args:
        server: "auto", "never", or the URL of a studio on this machine.
        wanted: the terms of the run.
    """
    if server == "never":
        return Choice()
    named = server != "auto"
    there = [one for one in present() if not named or one.url == server.rstrip("/")]
    serving = [one for one in there if one.held.serves(wanted)]
    refusals = [one.held.refusal(wanted) for one in serving]
    if "" in refusals:
        return Choice(tuple(one for one, refusal in zip(serving, refusals, strict=True) if not refusal))
    if serving:
        return Choice(why_not=f"The studio at {serving[0].url} is not asked, for {refusals[0]}.")
    if not named:
        return Choice()
    if there:
        return Choice(why_not=f"The studio at {server} has another model or another cache folder.")
    return Choice(why_not=f"No studio of yours tells that it is at {server}.")


def asked(studio: Presence, request: dict[str, Any]) -> Generator[Line, None, None]:
    """Has a studio answer, as the lines of `engine` itself. Closing the iterator stops the answer there.

    Args:
        studio: the one to ask.
        request: schema, prompt, settings and mode.

    Raises:
        PromptError: a document has errors.
        PromptCacheError: the run cannot be computed.
        LostError: the studio is not there, went away, or failed by its own fault.
    """
    connection = http.client.HTTPConnection(HOST, studio.port, timeout=GREETING_SECONDS)
    try:
        _greet(connection, studio)
        connection.auto_open = 0  # whoever has the port by the next connection has proved nothing
        with _losing():
            if connection.sock is not None:
                connection.sock.settimeout(None)  # a step may take as long as it takes
            lines = _post(connection, RUN, request, {_SECRET: f"Bearer {studio.secret}"})
        yield from _lines(lines)
    finally:
        connection.close()


def _greet(connection: http.client.HTTPConnection, studio: Presence) -> None:
    """Has whoever listens on the port prove that it knows the secret, before it learns anything."""
    challenge = secrets.token_hex(16)
    try:
        with _losing(), _cut_after(connection, 2 * GREETING_SECONDS):
            answer = json.loads(_post(connection, GREETING, {"challenge": challenge}, {}).read(1 << 12))
            proof = str(answer["proof"]).encode()
            if not compare_digest(proof, studio.proof(challenge).encode()):
                raise LostError("it does not prove to be the studio that the file tells of")
    except LostError as lost:
        if not isinstance(lost.__cause__, OSError) or isinstance(lost.__cause__, ConnectionRefusedError):
            forget(studio)  # the port is free or another's; who is only slow may be the studio
        raise


def _post(
    connection: http.client.HTTPConnection, path: str, sent: dict[str, Any], headers: dict[str, str]
) -> http.client.HTTPResponse:
    connection.request("POST", path, json.dumps(sent), {"content-type": "application/json", **headers})
    answer = connection.getresponse()
    if answer.status == FULL:
        raise LostError("as many runs as it takes wait there already")
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
            raise LostError("it ended before the answer did")
        if kind == "fault":
            if line.get("own") is True:
                raise LostError(str(line["message"]))
            with _losing():
                raise_fault(line)
        yield line


@contextlib.contextmanager
def _cut_after(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Connects, and cuts what takes longer: the timeout of a socket begins anew at every byte."""
    connection.connect()
    held = connection.sock  # a foreign answer may have the connection let go of it

    def cut() -> None:
        with contextlib.suppress(OSError):
            held.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, cut)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    """Turns whatever a connection or a foreign answer raises into one kind.

    Raises:
        LostError: in its place.
    """
    try:
        yield
    except (LostError, PromptCacheError):
        raise
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, RecursionError) as error:
        raise LostError(f"{type(error).__name__}: {error}".rstrip(": ")) from error
