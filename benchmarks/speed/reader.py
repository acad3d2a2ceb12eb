"""A process that reads streams of a server and notes the time of each event. It parses nothing meanwhile.

`python -m benchmarks.speed.reader HOST PORT TIMES` reads a list of requests, `[{"path", "body"}, ...]`, per
line of its input. It sends them at once, TIMES times over one connection each, and writes the events of the
last time for each request: `[[ms, event], ...]`, or `{"refused": text}`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from types import TracebackType
from typing import Any, Self

from engine.base.errors import PromptCacheError

Events = list[tuple[float, dict[str, Any]]]
SECONDS = 600.0  # of silence
_MOST = 256  # requests at once


class Reader:
    """The process, for the side that measures."""

    def __init__(self, host: str, port: int, times: int = 1) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.reader", host, str(port), str(times)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, path: str, bodies: Sequence[dict[str, Any]]) -> list[Events]:
        """Sends requests at once; returns the events of each, with milliseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([{"path": path, "body": body} for body in bodies]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PromptCacheError(f"the reader of {path} ended with status {self._process.wait()}.")
        answers: list[Events] = []
        for found in json.loads(line):
            if isinstance(found, dict):
                raise PromptCacheError(f"{path} was refused: {found['refused'][:500]}")
            answers.append([(ms, json.loads(event)) for ms, event in found])
            for _, event in answers[-1]:
                if event.get("error"):
                    raise PromptCacheError(f"{path} broke off: {event['error']}")
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def read(host: str, port: int, path: str, body: dict[str, Any], times: int) -> Any:
    """Sends a request over one connection; returns the events of the last time, or why it was refused."""
    connection = HTTPConnection(host, port, timeout=SECONDS)
    data, head = json.dumps(body), {"Content-Type": "application/json"}
    found: list[tuple[float, str]] = []
    for _ in range(times):
        found, started = [], time.perf_counter()
        connection.request("POST", path, data, head)
        response = connection.getresponse()
        if response.status != 200:
            return {"refused": response.read().decode(errors="replace")}
        while line := response.readline():
            if line.startswith(b"data: {"):
                found.append(((time.perf_counter() - started) * 1000, line[6:].decode()))
    return found


def _main() -> None:
    host, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with ThreadPoolExecutor(_MOST) as pool:
        for line in sys.stdin:
            asked = json.loads(line)
            found = pool.map(lambda one: read(host, port, one["path"], one["body"], times), asked)
            print(json.dumps(list(found)), flush=True)


if __name__ == "__main__":
    _main()
