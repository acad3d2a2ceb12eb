"""Answers submissions one after the other, on a thread that ends soon after its last prompt."""

from __future__ import annotations

import contextlib
from collections import deque

from engine.batch.submission import Submission
from engine.batch.ticket import Reply, Ticket, cancelled
from engine.batch.worker_queue import Inbox
from engine.cache.segment_cache import SegmentCache
from engine.inference.step_lock import Computing


class OneByOne:
    """An `Answerer` for one prompt at a time. Its steps take turns with the engine's other answers."""

    appetite = 1
    alone = "each answer must have the same bits as alone"

    def __init__(self, cache: SegmentCache, computing: Computing) -> None:
        self._cache, self._computing = cache, computing
        self._waiting: Inbox[tuple[Submission, Reply]] = Inbox(self._work)
        self._dropped: deque[Reply] = deque()  # appended to without a lock

    def submit(self, submission: Submission) -> Ticket:
        """Queues a prompt and returns at once.

        Raises:
            ClosedError: the engine was closed.
        """
        self._computing.require_open()
        reply = Reply(submission.side, self._dropped.append, lambda: self._waiting.here)
        self._waiting.put((submission, reply))
        return Ticket(reply)

    def close(self) -> None:
        """Waits until all prompts have ended; call it after `Computing.close`."""
        self._waiting.close()

    def _work(self) -> None:
        self._end_dropped()
        items: list[tuple[Submission, Reply]] = []
        while self._waiting.take(items, 1):
            submission, reply = items.pop()
            if reply.outcome is None:
                self._answer(submission, reply)
            self._end_dropped()

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
        """Ends cancelled prompts in the queue, except the current one."""
        while self._dropped:
            reply = self._dropped.popleft()
            if reply is not but:
                reply.end(cancelled())
