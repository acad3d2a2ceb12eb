"""What the server counts: for Prometheus, and the latest requests one by one."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from app.server.usage import Usage
from engine.events import Answer

_RECENT = 500
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
Outcome = str


class Request:
    """A request as the figures know it.

    Attributes:
        dialect: the dialect of the client.
        model: the name that it called the model by.
        at: when it came, in seconds since 1970.
        usage: its tokens, as far as they are known.
        ttft_ms: from its arrival to the first token, waiting included; None before.
        outcome: "waiting", "answering", "done", or "ended" before its time.
        stopped: what ended the answer.
    """

    def __init__(self, dialect: str, model: str, at: float) -> None:
        self.dialect, self.model, self.at = dialect, model, at
        self.usage: Usage | None = None
        self.ttft_ms: float | None = None
        self.outcome: Outcome = "waiting"
        self.stopped = ""
        self.seconds = 0.0

    def first(self, ttft_ms: float, usage: Usage) -> None:
        """The first token is there."""
        self.ttft_ms, self.usage, self.outcome = ttft_ms, usage, "answering"

    def done(self, answer: Answer) -> None:
        """The answer is complete."""
        self.usage, self.outcome, self.stopped = Usage.of(answer.tokens), "done", answer.stopped

    def to_json(self) -> dict[str, Any]:
        """Returns what a page shows."""
        usage = self.usage
        tokens = None if usage is None else {**vars(usage), "rest": usage.rest}
        told = ("dialect", "model", "at", "ttft_ms", "outcome", "stopped", "seconds")
        return {**{name: getattr(self, name) for name in told}, "tokens": tokens}


class Figures:
    """Counters and the latest requests. Of one event loop; read from any thread.

    Attributes:
        recent: the latest requests, the oldest first.
    """

    def __init__(self) -> None:
        self.recent: deque[Request] = deque(maxlen=_RECENT)
        self._registry = registry = CollectorRegistry()
        self._inside = Gauge("pml_requests_inside", "Requests that are answered or wait.", registry=registry)
        self._ended = Counter(
            "pml_requests", "Requests that have ended.", ["dialect", "outcome"], registry=registry
        )
        self._refused = Counter(
            "pml_requests_refused", "Requests for which there was no place.", registry=registry
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

    def begun(self, request: Request) -> None:
        """A request was taken in."""
        self.recent.append(request)
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
