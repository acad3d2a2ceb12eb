"""Sends a conversation to a server with OpenAI's API on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
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
_ENDED: Final[dict[str, Ended]] = {"stop": "eos", "length": "length"}


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
    """Returns the server at a base URL.

    Raises:
        PromptCacheError: the URL is not valid, or names another machine.
    """
    text = base_url.strip()
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        port = url.port or 80
    except ValueError:
        raise PromptCacheError("This is not a URL. Write one such as http://127.0.0.1:8080/v1.") from None
    if url.scheme != "http" or url.hostname not in LOCAL or url.username is not None:
        raise PromptCacheError(
            "Only servers on this machine can be compared. Write a URL such as http://127.0.0.1:8080/v1."
        )
    if any(ord(char) < 33 or ord(char) > 126 for char in url.path + key):
        raise PromptCacheError("The URL and the key must consist of printable ASCII characters.")
    return LocalServer(url.hostname, port, url.path.rstrip("/") or "/v1", model.strip(), key)


def models_of(server: LocalServer) -> list[str]:
    """Returns the names of a server's models.

    Raises:
        PromptCacheError: the server does not answer.
    """
    connection = http.client.HTTPConnection(server.host, server.port, timeout=LOOK_SECONDS)
    with _in_words(server), contextlib.closing(connection):
        connection.request("GET", f"{server.path}/models", headers=_headers(server))
        content = _read(connection.getresponse(), server)
        return [str(model["id"]) for model in content["data"]]


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
                    {**_headers(server), "Content-Type": "application/json"},
                )
                answer = connection.getresponse()
                if answer.status != 200:
                    _read(answer, server)
                yield from _pieces(answer)
        except PromptCacheError:
            if not stopping():
                raise


def _pieces(answer: http.client.HTTPResponse) -> Iterator[Piece]:
    left = LONGEST_ANSWER
    while line := answer.readline(LONGEST_LINE):
        left -= len(line)
        if left < 0:
            raise ValueError("its answer does not end")
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        chunk = json.loads(data)
        if error := chunk.get("error"):
            raise ValueError(_message(error))
        choice = (chunk.get("choices") or [{}])[0]
        text = (choice.get("delta") or {}).get("content") or ""
        if not isinstance(text, str):
            raise ValueError("its answer is no text")
        yield Piece(text, _tokens(chunk), _ENDED.get(choice.get("finish_reason") or "", ""))
    raise ValueError("its answer ended early")


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
    return {"Accept": "application/json", **({"Authorization": f"Bearer {server.key}"} if server.key else {})}


def _read(answer: http.client.HTTPResponse, server: LocalServer) -> Any:
    """Returns the JSON of a short answer.

    Raises:
        PromptCacheError: its status is an error.
    """
    text = answer.read(LONGEST_LINE).decode("utf-8", "replace")
    if answer.status != 200:
        try:
            why = _message(json.loads(text).get("error"))
        except (ValueError, AttributeError):
            why = ""
        raise PromptCacheError(
            f"The server at {server.address} answers with status {answer.status}{f': {why}' if why else ''}."
        )
    return json.loads(text)


def _message(error: object) -> str:
    """Returns the message of an error in OpenAI's form, in one line."""
    words = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(words or "it reports an error").split())[:300].rstrip(".")


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
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError) as error:
        words = str(error) or type(error).__name__
        raise PromptCacheError(f"The server at {server.address} gave no valid answer: {words}.") from error
