"""A request while its answers are computed: several draws of a prompt, or answers to several prompts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from app.server.core.caching import Submitted, as_kept
from app.server.core.metrics import GONE, Request
from app.server.core.request import Asked
from app.server.core.tool_use import Said
from app.server.core.usage import Usage
from app.server.http.errors import told_of
from app.server.http.thread_limits import Gone
from app.server.recent.records import Record, Records
from app.server.recent.why import Why
from engine.base.errors import CancelledError
from engine.base.events import Answer, Delta, Event, Finished, FirstToken, Listener, TokenLogprob
from engine.batch.ticket import Ticket, cancelled
from engine.model.model import Model
from engine.prompt.template.thinking import ThoughtSplitter

Made = TypeVar("Made")
TOGETHER = 16  # answers of one request in progress at once; other requests get their turns between them


class Work:
    """Cancellable slow work other than an answer."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def cancel(self) -> None:
        """Cancels before the next step. Repeated calls have no effect."""
        self._ended.set()

    def run(self, do: Callable[[Listener], Made]) -> Made:
        """Runs the function; raises CancelledError if the client disconnected."""
        if self._ended.is_set():
            raise CancelledError("The client disconnected before the start.")
        return do(Listener(stopped=self._ended.is_set))


class Recorder(Protocol):
    """Records prompts, to explain cache misses."""

    @property
    def records(self) -> Records:
        """The latest prompts."""

    def note(self, record: Record, noted: Request, usage: Usage) -> None:
        """Records the prompt of a request whose first token has come."""

    def why(self, record: Record) -> Why | None:
        """Explains which tokens a recorded prompt did not read."""


@dataclass(frozen=True)
class Thought:
    """New reasoning of an answer, before its text."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


Told = Event | Thought


@dataclass
class _Choice:
    """One answer of a request. The first draw of a prompt begins before the others, which read its prefix."""

    taken: Submitted
    draw: int  # its number among the draws of its prompt
    ticket: Ticket | None = None  # None before it begins
    given: int = 0  # events
    read: asyncio.Event = field(default_factory=asyncio.Event)  # its prompt was computed
    splitter: ThoughtSplitter | None = None  # None if it has no reasoning

    def __post_init__(self) -> None:
        """Begins to split the answer."""
        if self.taken.thinks is not None:
            self.splitter = ThoughtSplitter(opened=self.taken.thinks)

    def split(self, event: Event) -> Iterator[Told]:
        """Yields an event with its reasoning apart from its text."""
        if self.splitter is None or not isinstance(event, Delta | Finished):
            yield event
            return
        delta = event if isinstance(event, Delta) else Delta("cached", "")
        ended = isinstance(event, Finished)
        thought, text = self.splitter.rest() if ended else self.splitter.add(delta.text)
        if thought:
            yield Thought(thought, () if text else delta.logprobs)
        if text or (delta.logprobs and not thought):
            yield replace(delta, text=text)
        if ended:
            yield event


class Running:
    """A request with running answers.

    Args:
        taken: its prompts; the answer to the first one has begun.
        asked: the request.
        noted: its record.
        arrived: the time of its arrival, by `time.perf_counter`.
        model: the model that answers.
        recorder: records its prompts.
        ended: called once the request is closed.

    Attributes:
        asked: the request.
        kept: the outcomes of its marks, final at the end.
        model: the model that answers.
        seconds: compute times of the segments it read, by key; set at the end if the report is requested.
        usage: the tokens of all answers; a prompt with several draws counts once.
        record: its first prompt.
    """

    def __init__(
        self,
        taken: Sequence[Submitted],
        asked: Asked,
        noted: Request,
        arrived: float,
        model: Model,
        recorder: Recorder,
        ended: Callable[[Running], None],
    ) -> None:
        self.asked, self.kept, self.model = asked, taken[0].kept, model
        self.seconds: dict[str, float] = {}
        self.usage, self.record, self._recorder = Usage(0), taken[0].record, recorder
        draws = range(asked.draws)
        self._choices = [_Choice(one, draw, None if draw else one.ticket) for one in taken for draw in draws]
        self._request, self._gone, self._cancelled = noted, False, False
        self._arrived, self._ended, self._finished = arrived, ended, 0

    def __len__(self) -> int:
        """Returns the number of answers."""
        return len(self._choices)

    def cancel(self) -> None:
        """Cancels before the next step. Repeated calls have no effect."""
        self._cancelled = True
        for choice in self._choices:
            if choice.ticket is not None:
                choice.ticket.cancel()

    async def events(self) -> AsyncIterator[Told]:
        """Yields the events of the only answer; raises PromptCacheError if it fails."""
        try:
            async for event in await self._begun(self._choices[0]):
                await self._note(0, event)
                for piece in self._choices[0].split(event):
                    yield piece
        except Exception as error:
            self._failed(error)
            raise

    async def each(self) -> AsyncIterator[tuple[int, Told]]:
        """Yields the events of all answers, each with the number of its answer, as they come.

        Answers begin in their order, because OpenAI's client needs it.
        """
        if len(self) == 1:
            async for piece in self.events():
                yield 0, piece
            return
        news = asyncio.Queue[tuple[int, Event | Exception]]()
        room = asyncio.Semaphore(TOGETHER)
        held, begun = defaultdict[int, list[Event]](list), 0
        tasks = [asyncio.ensure_future(self._follow(number, news, room)) for number in range(len(self))]
        try:
            while self._finished < len(self):
                number, found = await news.get()
                if isinstance(found, Exception):
                    raise found
                held[number].append(found)
                ready = [number] if number < begun else []
                while begun in held:
                    ready.append(begun)
                    begun += 1
                for place in ready:
                    for event in held.pop(place):
                        await self._note(place, event)
                        for piece in self._choices[place].split(event):
                            yield place, piece
        except Exception as error:
            self._failed(error)
            raise
        finally:
            for task in tasks:
                task.cancel()

    async def _follow(
        self, number: int, news: asyncio.Queue[tuple[int, Event | Exception]], room: asyncio.Semaphore
    ) -> None:
        """Passes the events of an answer on, or its error."""
        choice = self._choices[number]
        if choice.draw:
            await self._choices[number - choice.draw].read.wait()
        try:
            async with room:
                async for event in await self._begun(choice):
                    news.put_nowait((number, event))
                    if isinstance(event, FirstToken | Finished):
                        choice.read.set()
        except Exception as error:
            news.put_nowait((number, error))

    async def _begun(self, choice: _Choice) -> Ticket:
        if choice.ticket is None:
            choice.ticket = await asyncio.to_thread(choice.taken.start, choice.draw)
            if self._cancelled:
                choice.ticket.cancel()
                raise cancelled()
        return choice.ticket

    async def _note(self, number: int, event: Event) -> None:
        """Records an event."""
        choice = self._choices[number]
        choice.given += 1
        record = choice.taken.record
        if isinstance(event, FirstToken):
            if self._request.ttft_ms is None:
                self._request.first((time.perf_counter() - self._arrived) * 1000, Usage.of(event))
            if not choice.draw:
                self._recorder.note(record, self._request, Usage.of(event))
        elif isinstance(event, Finished):
            self._finished += 1
            self.usage += Usage.of(event.answer).drawn(choice.draw)
            if not (choice.draw or record.number):  # it had no first token: it only warms the cache
                self._recorder.note(record, self._request, Usage.of(event.answer))
            if number == 0:
                self.kept = as_kept(self.kept, event.answer)
                if self.asked.report:
                    self.seconds = await asyncio.to_thread(choice.taken.seconds, event.answer)
            if self._finished == len(self):
                self._request.done(self.usage, event.answer.stopped)

    def _failed(self, error: Exception) -> None:
        self._request.failed(GONE if self._gone else told_of(error).message)

    @property
    def thinks(self) -> bool:
        """Whether answers may have reasoning, which comes apart from the text."""
        return self._choices[0].splitter is not None

    def text_follows(self, number: int = 0) -> bool:
        """Returns whether the next event of an answer is text and ready, so both can be sent together."""
        choice = self._choices[number]
        following = None if choice.ticket is None else choice.ticket.peek(choice.given)
        return isinstance(following, Delta) and following.text != "" and choice.splitter is None

    async def answers(self, gone: Gone) -> list[Answer]:
        """Returns the complete answers; a disconnect cancels them. Raises PromptCacheError if one fails."""
        watcher = asyncio.ensure_future(gone())
        watcher.add_done_callback(self._left_alone)
        try:
            found = {
                number: event.answer async for number, event in self.each() if isinstance(event, Finished)
            }
            return [found[number] for number in range(len(self))]
        finally:
            watcher.cancel()

    async def answer(self, gone: Gone) -> Answer:
        """Returns the only answer, like `answers`."""
        (answer,) = await self.answers(gone)
        return answer

    def named(self, answer_id: str, request_id: str) -> None:
        """Sets the ids under which clients know the request."""
        for choice in self._choices:
            choice.taken.record.names[:] = [answer_id, request_id]

    def why(self) -> Why | None:
        """Explains which tokens were not read, after the first token; None if that is not known."""
        return self._recorder.why(self.record)

    def compared(self) -> Record | None:
        """Returns the earlier request that the client names, or None."""
        record = self.record
        return self._recorder.records.find(record.previous, record.client) if record.previous else None

    async def parts(self, answer: Answer) -> Said:
        """Separates an answer's text from its tool calls; on a thread if there are tools."""
        parts = self._choices[0].taken.parts
        return await asyncio.to_thread(parts, answer) if self.asked.tools else parts(answer)

    def _left_alone(self, watcher: asyncio.Future[None]) -> None:
        self._gone = not watcher.cancelled()
        self.cancel()

    def close(self) -> None:
        """Closes the request and cancels unfinished answers. Repeated calls have no effect."""
        self.cancel()
        self._ended(self)
