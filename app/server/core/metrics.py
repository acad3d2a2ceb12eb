"""Counters for Prometheus and a list of the latest requests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Literal

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from app.server.core.usage import Usage
from app.server.recent.records import Record

_RECENT = 500
_SHOWN = 200  # maximum length of client text in a list
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
Outcome = Literal["waiting", "answering", "done", "ended", "refused"]
GONE = "The client disconnected before the end."


class Request:
    """A request as recorded by the metrics. One event loop writes it; any thread may read it.

    Attributes:
        number: its number, from 1 on; 0 if it is not listed.
        changed: counts the changes of all requests, up to its last one.
        at: arrival time, in seconds since 1970.
        client: a digest of its API key; "" before the key is checked.
        model: the requested model name; "" if unknown.
        usage: its token counts; None before they are known.
        ttft_ms: time to first token, including queueing; None before that.
        outcome: "waiting", "answering", "done", "ended" early, or "refused" before it began.
        stopped: why the answer stopped.
        status: the HTTP status; None before the response.
        sentence: the error message that the client got; "" without an error.
        seconds: time from arrival to end; 0 before that.
        record: its prompt; None before its first token, or if it is not recorded.
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
        self.record: Record | None = None
        self._changes = changes
        self.changed = next(changes)

    def asks(self, model: str) -> None:
        """Records the requested model."""
        self.model = model[:_SHOWN]
        self.changed = next(self._changes)

    def first(self, ttft_ms: float, usage: Usage) -> None:
        """Records the first token."""
        self.ttft_ms, self.usage, self.outcome = ttft_ms, usage, "answering"
        self.changed = next(self._changes)

    def done(self, usage: Usage, stopped: str = "") -> None:
        """Records a complete answer."""
        self.usage, self.outcome, self.stopped = usage, "done", stopped
        self.changed = next(self._changes)

    def failed(self, sentence: str) -> None:
        """Records a failure; the first message stays."""
        self.sentence = self.sentence or sentence
        self.changed = next(self._changes)

    def over(self) -> None:
        """Records the end of the response."""
        if self.outcome == "waiting":
            self.outcome = "refused" if (self.status or 0) >= 400 else "ended"
        if self.outcome == "ended" and not self.sentence:
            self.sentence = GONE
        self.seconds = self.seconds or max(time.time() - self.at, 1e-9)
        self.changed = next(self._changes)
        if self.number:
            self._trace()

    def _trace(self) -> None:
        """Reports the request as a span, if the program that runs the server collects them."""
        name = self.path.rpartition("/")[2]
        operation = {"completions": "text_completion", "embeddings": "embeddings"}.get(name, "chat")
        operation = "chat" if self.path.endswith("/chat/completions") else operation
        attributes: dict[str, str | int | Sequence[str]] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "prompt_cache_studio",
            "gen_ai.request.model": self.model,
        }
        if (usage := self.usage) is not None:
            attributes |= {
                "gen_ai.usage.input_tokens": usage.prompt,
                "gen_ai.usage.output_tokens": usage.generated,
                "gen_ai.usage.cache_read.input_tokens": usage.read,
                "gen_ai.usage.cache_creation.input_tokens": usage.written,
            }
        if self.stopped:
            attributes["gen_ai.response.finish_reasons"] = [self.stopped]
        span = trace.get_tracer("prompt-cache-studio").start_span(
            f"{operation} {self.model}".strip(),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            start_time=int(self.at * 1e9),
        )
        if self.outcome != "done":
            span.set_status(trace.StatusCode.ERROR, self.sentence)
        span.end(int((self.at + self.seconds) * 1e9))


class Figures:
    """Counters and the latest requests. One event loop writes them; any thread may read them.

    Attributes:
        recent: the latest requests, oldest first.
    """

    def __init__(self) -> None:
        self.recent: deque[Request] = deque(maxlen=_RECENT)
        self._numbers, self._changes = count(1), count(1)
        self._registry = registry = CollectorRegistry()
        self._inside = Gauge("pml_requests_inside", "Running and waiting requests.", registry=registry)
        self._answered = Counter(
            "pml_responses",
            "Requests to /v1 and /api by path, API and status; status none if the client disconnected.",
            ["dialect", "path", "status"],
            registry=registry,
        )
        self._ended = Counter(
            "pml_requests",
            "Requests with a started answer: done if complete; ended if the client disconnected, the server "
            "stopped or it failed. Rejected requests are in pml_responses only.",
            ["dialect", "outcome"],
            registry=registry,
        )
        self._refused = Counter(
            "pml_requests_refused",
            "Requests rejected because the server was full (status 429).",
            registry=registry,
        )
        self._prompt = Counter(
            "pml_prompt_tokens", "Prompt tokens by cache use.", ["cache"], registry=registry
        )
        self._generated = Counter("pml_generated_tokens", "Generated tokens.", registry=registry)
        self._ttft = Histogram(
            "pml_time_to_first_token_seconds",
            "Time from a request's arrival to its first token, with waiting.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._took = Histogram(
            "pml_request_seconds",
            "Time from a request's arrival to its end.",
            buckets=_SECONDS,
            registry=registry,
        )

    def came(self, path: str, dialect: str) -> Request:
        """Creates the record of a new request; the request is not listed yet."""
        return Request(path, dialect, self._changes)

    def listed(self, request: Request) -> None:
        """Lists a request among the latest."""
        request.number = next(self._numbers)
        self.recent.append(request)
        request.changed = next(self._changes)

    def since(self, change: int) -> tuple[int, list[Request]]:
        """Returns the number of the last change, and the recent requests that changed after `change`."""
        recent = [(request.changed, request) for request in list(self.recent)]
        last = max((changed for changed, _ in recent), default=0)
        return last, [request for changed, request in recent if changed > change]

    def answered(self, path: str, request: Request) -> None:
        """Counts the response to a request to /v1, or a disconnected client."""
        self._answered.labels(request.dialect, path, str(request.status or "none")).inc()

    def begun(self) -> None:
        """Counts an accepted request."""
        self._inside.inc()

    def refused(self) -> None:
        """Counts a request that was rejected because the server is full."""
        self._refused.inc()

    def ended(self, request: Request) -> None:
        """Counts the end of a request. Repeated calls have no effect."""
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
        """Returns the metrics in Prometheus' text format."""
        return bytes(generate_latest(self._registry))
