"""Sends a conversation to a server with OpenAI's API on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from app.studio.runs.run_frame import Ended
from engine.base.errors import PromptCacheError
from engine.inference.run_settings import RunSettings

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
SILENT_SECONDS = 600.0  # a long prompt takes minutes before its first token
LOOK_SECONDS = 5.0
STEP_SECONDS = 0.1
LONGEST_LINE = 1 << 20
LONGEST_ANSWER = 16 << 20
_WRITE_URL: Final = "Write one such as http://127.0.0.1:8080/v1."
_ENDED: Final[dict[str, Ended]] = {"stop": "eos", "length": "length"}
T = TypeVar("T")


@dataclass(frozen=True)
class LocalServer:
    """A model of a server on this machine.

    Attributes:
        host: the host, one of `LOCAL`.
        path: the path of its API, such as /v1.
        model: the model's name.
        key: the API key; it is never written.
    """

    host: str
    port: int
    path: str
    model: str = ""
    key: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """The host and the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def base_url(self) -> str:
        """The base URL of its API."""
        return f"http://{self.address}{self.path}"


@dataclass(frozen=True)
class Piece:
    """A part of an answer, with the token counts that the server reports."""

    text: str = ""
    tokens: dict[str, int] = field(default_factory=dict)
    ended: Ended = ""


def server_at(base_url: str, model: str = "", key: str = "") -> LocalServer:
    """Returns the server at a base URL; `http://` and `/v1` may be left out.

    Raises:
        PromptCacheError: the URL is not valid, or names another machine.
    """
    text = base_url.strip()
    if any(not 32 < ord(char) < 127 for char in text + key):
        raise PromptCacheError("Use only printable ASCII characters, without spaces, in the URL and the key.")
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        port = 80 if url.port is None else url.port
    except ValueError:
        raise PromptCacheError(f"This is not a URL. {_WRITE_URL}") from None
    if url.scheme != "http" or url.hostname not in LOCAL:
        raise PromptCacheError(f"Only servers on this machine can be used. {_WRITE_URL}")
    if "@" in url.netloc or "?" in text or "#" in text or not port:
        raise PromptCacheError(f"The URL must have no user, query, fragment or port 0. {_WRITE_URL}")
    return LocalServer(url.hostname, port, url.path.rstrip("/") or "/v1", model.strip(), key)


def ask(
    server: LocalServer,
    place: str,
    read: Callable[[Any], T],
    body: dict[str, Any] | None = None,
    seconds: float = LOOK_SECONDS,
) -> T:
    """Returns what `read` finds in a server's answer.

    Args:
        server: the server.
        place: the path below the one of its API, such as /models.
        read: gets the answer's JSON; its errors mean that the answer is not valid.
        body: the JSON to send; None sends a GET.
        seconds: the longest silence.

    Raises:
        PromptCacheError: the server does not answer, or its answer is not valid.
    """
    connection = http.client.HTTPConnection(server.host, server.port, timeout=seconds)
    with _in_words(server), contextlib.closing(connection):
        method, text = ("GET", None) if body is None else ("POST", json.dumps(body))
        connection.request(method, server.path + place, text, _headers(server))
        with connection.getresponse() as answer:
            return read(_read(answer, server))


def models_of(server: LocalServer) -> list[str]:
    """Returns the names of a server's models.

    Raises:
        PromptCacheError: the server does not answer, or its answer is not valid.
    """
    return ask(server, "/models", lambda content: [str(model["id"]) for model in content["data"]])


def stream(
    server: LocalServer,
    messages: Sequence[dict[str, str]],
    settings: RunSettings,
    stopping: Callable[[], bool],
) -> Iterator[Piece]:
    """Yields the parts of an answer; ends early if `stopping` returns True.

    Raises:
        PromptCacheError: the server does not answer, or its answer is not valid.
    """
    body = {
        "model": server.model,
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": settings.max_new_tokens,
        "temperature": settings.temperature,
        "seed": settings.seed,
        **({"top_p": settings.top_p} if settings.temperature else {}),
        **({"stop": list(settings.stop)} if settings.stop else {}),
    }
    connection = http.client.HTTPConnection(server.host, server.port, timeout=SILENT_SECONDS)
    with contextlib.closing(connection):
        try:
            with _in_words(server), _cut(connection, stopping):
                connection.request(
                    "POST",
                    f"{server.path}/chat/completions",
                    json.dumps(body),
                    _headers(server),
                )
                with connection.getresponse() as answer:
                    if answer.status != 200:
                        _read(answer, server)
                    yield from _pieces(answer, server)
        except PromptCacheError:
            if not stopping():
                raise


def _pieces(answer: http.client.HTTPResponse, server: LocalServer) -> Iterator[Piece]:
    left = LONGEST_ANSWER
    while line := answer.readline(LONGEST_LINE):
        left -= len(line)
        if left < 0:
            raise _invalid(server, "its answer does not end")
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        chunk = json.loads(data)
        if error := chunk.get("error"):
            raise _invalid(server, _message(error, server))
        choice = (chunk.get("choices") or [{}])[0]
        text = (choice.get("delta") or {}).get("content") or ""
        if not isinstance(text, str):
            raise TypeError
        yield Piece(text, _tokens(chunk), _ENDED.get(choice.get("finish_reason") or "", ""))
    raise _invalid(server, "its answer ended early")


def _tokens(chunk: dict[str, Any]) -> dict[str, int]:
    """Returns token counts by our names; llama.cpp reports cached ones in `timings`."""
    usage, timings = chunk.get("usage") or {}, chunk.get("timings") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", timings.get("cache_n"))
    named = {
        "prompt": usage.get("prompt_tokens"),
        "generated": usage.get("completion_tokens"),
        "from_cache": cached,
    }
    counts = {name: value for name, value in named.items() if isinstance(value, int) and value >= 0}
    if "prompt" in counts and "from_cache" in counts:
        counts["computed"] = max(0, counts["prompt"] - counts["from_cache"])
    return counts


def _headers(server: LocalServer) -> dict[str, str]:
    key = {"Authorization": f"Bearer {server.key}"} if server.key else {}
    return {"Accept": "application/json", "Content-Type": "application/json", **key}


def _read(answer: http.client.HTTPResponse, server: LocalServer) -> Any:
    """Returns the JSON of a short answer.

    Raises:
        PromptCacheError: its status is an error.
    """
    text = answer.read(LONGEST_LINE).decode("utf-8", "replace")
    if answer.status != 200:
        try:
            why = _message(json.loads(text).get("error"), server)
        except (ValueError, AttributeError, RecursionError):
            why = ""
        raise PromptCacheError(
            f"The server at {server.address} answers with status {answer.status}{f': {why}' if why else ''}."
        )
    return json.loads(text)


def _message(error: object, server: LocalServer) -> str:
    """Returns the message of an error in OpenAI's form, in one line and without the key."""
    words = error.get("message") if isinstance(error, dict) else error
    text = words if words and isinstance(words, str) else "it reports an error"
    if server.key:
        text = text.replace(server.key, "(the key)")
    return " ".join(text.split())[:300].rstrip(".")


def _invalid(server: LocalServer, why: str) -> PromptCacheError:
    return PromptCacheError(f"The server at {server.address} gave no valid answer: {why}.")


@contextlib.contextmanager
def _cut(connection: http.client.HTTPConnection, stopping: Callable[[], bool]) -> Iterator[None]:
    """Connects, and ends the connection once `stopping` returns True."""
    connection.connect()
    line, over = connection.sock, threading.Event()

    def watch() -> None:
        while not over.wait(STEP_SECONDS):
            if stopping():
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)
                return

    threading.Thread(target=watch, name="stop of a request", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextlib.contextmanager
def _in_words(server: LocalServer) -> Iterator[None]:
    """Turns errors of a connection or an invalid answer into sentences."""
    try:
        yield
    except PromptCacheError:
        raise
    except ConnectionRefusedError:
        raise PromptCacheError(f"No server answers at {server.address}. Start it, then try again.") from None
    except http.client.IncompleteRead:
        raise _invalid(server, "its answer ended early") from None
    except OSError as error:
        raise _invalid(server, error.strerror or str(error) or type(error).__name__) from None
    except (http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise PromptCacheError(
            f"The server's answer is not that of an OpenAI-compatible API ({server.base_url})."
        ) from None
