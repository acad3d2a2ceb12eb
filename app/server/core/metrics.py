"""What the server counts: for Prometheus, and the latest requests one by one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from app.server.core.usage import Usage
from engine.base.events import Answer

_RECENT = 500
_SHOWN = 200  # characters of what a client has written, in a list
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
Outcome = Literal["waiting", "answering", "done", "ended", "refused"]
GONE = "The client went away before the end."


class Request:
    """A request as the figures know it. Written by one event loop, read from any thread.

    Args:
        path: what was asked for.
        dialect: the dialect of the client.
        changes: counts the changes of all requests.

    Attributes:
        number: which one it is, from 1 on; 0 while it is in no list.
        changed: the number of its last change, among those of all requests.
        at: when it came, in seconds since 1970.
        client: a digest of the key that it brought; "" before that was looked at.
        model: the name that it called the model by; "" where that is not known.
        usage: its tokens, as far as they are known.
        ttft_ms: from its arrival to the first token, waiting included; None before.
        outcome: "waiting", "answering", "done", "ended" before its time, or "refused" before it was begun.
        stopped: what ended the answer.
        status: of the answer in HTTP; None before.
        sentence: why there is no whole answer, as the client was told; "" where there is, or may be.
        seconds: from its arrival to its end; 0 before.
    """

    def __init__(self, path: str, dialect: str, changes: Iterator[int]) -> None:
        self.path, self.dialect, self.at = path[:_SHOWN], dialect, time.time()
        self.number, self.client, self.model = 0, "", ""
        self.usage: Usage | None = None
        self.ttft_ms: float | None = None
        self.outcome: Outcome = "waiting"
        self.stopped, self.sentence = "", ""
        self.status: int | None = None
        self.seconds = 0.0
        self._changes = changes
        self.changed = next(changes)

    def asks(self, model: str) -> None:
        """It calls the model by a name."""
        self.model = model[:_SHOWN]
        self.changed = next(self._changes)

    def first(self, ttft_ms: float, usage: Usage) -> None:
        """The first token is there."""
        self.ttft_ms, self.usage, self.outcome = ttft_ms, usage, "answering"
        self.changed = next(self._changes)

    def done(self, answer: Answer) -> None:
        """The answer is complete."""
        self.usage, self.outcome, self.stopped = Usage.of(answer), "done", answer.stopped
        self.changed = next(self._changes)

    def failed(self, sentence: str) -> None:
        """There will be no whole answer; why is what was said first."""
        self.sentence = self.sentence or sentence
        self.changed = next(self._changes)

    def over(self) -> None:
        """Nobody answers it any more."""
        if self.outcome == "waiting":
            self.outcome = "refused" if (self.status or 0) >= 400 else "ended"
        if self.outcome == "ended" and not self.sentence:
            self.sentence = GONE
        self.seconds = self.seconds or max(time.time() - self.at, 1e-9)
        self.changed = next(self._changes)


class Figures:
    """Counters and the latest requests. Of one event loop; read from any thread.

    Attributes:
        recent: the latest requests, the oldest first.
    """

    def __init__(self) -> None:
        self.recent: deque[Request] = deque(maxlen=_RECENT)
        self._numbers, self._changes = count(1), count(1)
        self._registry = registry = CollectorRegistry()
        self._inside = Gauge("pml_requests_inside", "Requests that are answered or wait.", registry=registry)
        self._answered = Counter(
            "pml_responses",
            "Requests to /v1, by path, dialect and the status of the answer; none where its client was gone.",
            ["dialect", "path", "status"],
            registry=registry,
        )
        self._ended = Counter(
            "pml_requests",
            "Requests whose answer was begun: done where it is whole; ended where it broke off: the client "
            "went away, the server stopped, or it failed. What is refused is in pml_responses alone.",
            ["dialect", "outcome"],
            registry=registry,
        )
        self._refused = Counter(
            "pml_requests_refused", "Requests for which there was no place (status 429).", registry=registry
        )
        self._prompt = Counter(
            "pml_prompt_tokens", "Tokens of prompts, by what was done.", ["cache"], registry=registry
        )
        self._generated = Counter("pml_generated_tokens", "Tokens of answers.", registry=registry)
        self._ttft = Histogram(
            "pml_time_to_first_token_seconds",
            "From a request's arrival to its first token, waiting included.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._took = Histogram(
            "pml_request_seconds", "From a request's arrival to its end.", buckets=_SECONDS, registry=registry
        )

    def came(self, path: str, dialect: str) -> Request:
        """Somebody asks for something; it is in no list yet."""
        return Request(path, dialect, self._changes)

    def listed(self, request: Request) -> None:
        """A request is among the latest."""
        request.number = next(self._numbers)
        self.recent.append(request)
        request.changed = next(self._changes)

    def since(self, change: int) -> tuple[int, list[Request]]:
        """Returns the number of the last change, and those of the latest requests that changed after one.

        Args:
            change: the number of a change; 0 for all.
        """
        recent = [(one.changed, one) for one in list(self.recent)]
        last = max((changed for changed, _ in recent), default=0)
        return last, [one for changed, one in recent if changed > change]

    def answered(self, path: str, request: Request) -> None:
        """A request to /v1 was answered, or refused, or its client is gone.

        Args:
            path: of the endpoint, one of few.
            request: what is known of it.
        """
        self._answered.labels(request.dialect, path, str(request.status or "none")).inc()

    def begun(self) -> None:
        """A request was taken in."""
        self._inside.inc()

    def refused(self) -> None:
        """There was no place for a request."""
        self._refused.inc()

    def ended(self, request: Request) -> None:
        """A request has ended, in one way or another; a second time does nothing."""
        if request.seconds:
            return
        request.seconds = max(time.time() - request.at, 1e-9)
        if request.outcome != "done":
            request.outcome = "ended"
        self._inside.dec()
        self._ended.labels(request.dialect, request.outcome).inc()
        self._took.observe(request.seconds)
        if request.ttft_ms is not None:
            self._ttft.observe(request.ttft_ms / 1000)
        if (usage := request.usage) is not None:
            for cache, tokens in (("read", usage.read), ("written", usage.written), ("computed", usage.rest)):
                self._prompt.labels(cache).inc(tokens)
            self._generated.inc(usage.generated)

    def exposition(self) -> bytes:
        """Returns Prometheus' text."""
        return bytes(generate_latest(self._registry))
