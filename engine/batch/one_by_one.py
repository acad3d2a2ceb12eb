"""Answers what is submitted one after the other, on a thread that ends soon after its last prompt."""

from __future__ import annotations

import contextlib
import threading
from collections import deque

from engine.batch.submission import Submission
from engine.batch.ticket import Reply, Ticket, cancelled
from engine.cache.segment_cache import SegmentCache
from engine.inference.computing import Computing

_IDLE_SECONDS = (
    1.0  # that the thread waits for a further prompt: a new one would set up torch's threads again
)
_LAST_SECONDS = 10.0  # that closing waits for a thread which nothing is computed for any more


class OneByOne:
    """An `Answerer` that takes one prompt after the other, each step in turn with the engine's other answers.

    Args:
        cache: segments of one model, and the model.
        computing: decides whose step is computed; when it is closed, everything here ends.
    """

    appetite = 1
    alone = "each is to be computed to the last bit as by itself"

    def __init__(self, cache: SegmentCache, computing: Computing) -> None:
        self._cache, self._computing = cache, computing
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Submission, Reply]] = deque()
        self._closed = False
        self._dropped: deque[Reply] = deque()  # appended to without a lock
        self._thread: threading.Thread | None = None

    def submit(self, submission: Submission) -> Ticket:
        """Takes a prompt in and returns at once.

        Raises:
            ClosedError: the engine was closed.
        """
        self._computing.require_open()
        reply = Reply(submission.side, self._dropped.append, self._is_here)
        with self._changed:
            self._waiting.append((submission, reply))
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():  # as in a child of a fork
                # The engine's turn is never given to it once the program ends, so it need not be waited for.
                self._thread = threading.Thread(target=self._work, name="answers", daemon=True)
                try:
                    self._thread.start()
                except BaseException:
                    self._thread = None
                    self._waiting.pop()
                    raise
        return Ticket(reply)

    def _is_here(self) -> bool:
        """Whether this is the thread that answers."""
        return self._thread is threading.current_thread()

    def close(self) -> None:
        """Waits until all has ended; for after `Computing.close`, which lets no further step begin."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_SECONDS)

    def _work(self) -> None:
        while True:
            self._end_dropped()
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed, _IDLE_SECONDS)
                if not self._waiting:
                    self._thread = None
                    return
                submission, reply = self._waiting.popleft()
            if reply.outcome is None:
                self._answer(submission, reply)

    def _answer(self, submission: Submission, reply: Reply) -> None:
        try:
            with contextlib.closing(submission.steps(self._cache, self._computing)) as steps:
                while not reply.cancelled:
                    try:
                        reply.say(next(steps))
                    except StopIteration as end:
                        reply.end(end.value)
                        return
                    self._end_dropped(but=reply)
        except Exception as error:
            reply.end(error)
        else:
            reply.end(cancelled())

    def _end_dropped(self, but: Reply | None = None) -> None:
        """Ends what was cancelled while it waited; the one that is being answered is stopped first."""
        while self._dropped:
            reply = self._dropped.popleft()
            if reply is not but:
                reply.end(cancelled())
