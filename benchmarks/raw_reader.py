"""A reader of streams in a process of its own: it takes bytes off a socket, notes when, and does no more.

`python -m benchmarks.raw_reader PORT TIMES` reads a request, `{"path", "body"}`, from each line of its input,
sends it so often over one new connection, and writes of the last time what came when: `[[ms, text], ...]`,
from the moment before it was sent. What is no stream it writes as `{"refused": text}`. Nothing is parsed
before the stream has ended, so no reading of events is in any time.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

from engine.base.errors import PromptCacheError

Arrival = tuple[float, str]
END = b"0\r\n\r\n"  # of a body in chunks; no event ends so
SECONDS = 600.0  # that nothing may come
_MOST = 65536


class RawReader:
    """The other process, as whoever measures has it.

    Args:
        port: of the server, on this machine.
        times: how often each request is sent; only the last time counts.
    """

    def __init__(self, port: int, times: int = 2) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.raw_reader", str(port), str(times)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, path: str, body: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
        """Asks; of the last time the events, each with the milliseconds after which it was there.

        Raises:
            PromptCacheError: the server has refused it, or the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps({'path': path, 'body': body})}\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline()
        if not told:
            raise PromptCacheError(f"the reader of {path} has ended with status {self._process.wait()}.")
        found = json.loads(told)
        if isinstance(found, dict):
            raise PromptCacheError(f"{path} was refused: {found['refused'][:500]}")
        return events_of(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def events_of(arrivals: list[Arrival]) -> list[tuple[float, dict[str, Any]]]:
    """The events of a stream in chunks, each with the time at which its last byte was there.

    Args:
        arrivals: what came when, the head of the answer first.
    """
    times, raw = list[tuple[int, float]](), b""
    for ms, text in arrivals:
        raw += text.encode("latin-1")
        times.append((len(raw), ms))
    at, body, ends = raw.index(b"\r\n\r\n") + 4, b"", list[tuple[int, int]]()
    while True:
        begin = raw.index(b"\r\n", at) + 2
        size = int(raw[at:begin], 16)
        if not size:
            break
        body += raw[begin : begin + size]
        at = begin + size + 2
        ends.append((len(body), at))
    found, length = list[tuple[float, dict[str, Any]]](), 0
    for event in body.split(b"\n\n")[:-1]:
        length += len(event) + 2
        for line in event.split(b"\n"):
            if line.startswith(b"data: {"):  # no comment, and not [DONE]
                there = next(place for inside, place in ends if inside >= length)
                found.append((next(ms for taken, ms in times if taken >= there), json.loads(line[6:])))
    return found


def read(port: int, path: str, body: dict[str, Any], times: int = 2) -> list[Arrival] | str:
    """Asks over one connection; of the last time what came when, or the body of a refusal."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    asked = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(times):
            arrivals, clock = list[tuple[float, bytes]](), time.perf_counter
            started, came = clock(), b""
            line.sendall(asked)
            while not came.endswith(END):
                came = line.recv(_MOST)
                arrivals.append(((clock() - started) * 1000, came))
                if not came or not arrivals[0][1].startswith(b"HTTP/1.1 200"):
                    return _refusal(line, b"".join(came for _, came in arrivals))
    return [(ms, came.decode("latin-1")) for ms, came in arrivals]


def _refusal(line: socket.socket, begun: bytes) -> str:
    """The body of an answer of which this has come, or what there is of it."""
    while True:
        head, _, body = begun.partition(b"\r\n\r\n")
        sizes = [one[15:] for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")]
        if sizes and len(body) >= int(sizes[0]):
            return body.decode(errors="replace")
        came = line.recv(_MOST)
        if not came:
            return begun.decode(errors="replace")
        begun += came


def main() -> None:
    """Does what it is told until nobody tells it anything."""
    port, times = int(sys.argv[1]), int(sys.argv[2])
    for line in sys.stdin:
        told = json.loads(line)
        found = read(port, told["path"], told["body"], times)
        print(json.dumps({"refused": found} if isinstance(found, str) else found), flush=True)


if __name__ == "__main__":
    main()
