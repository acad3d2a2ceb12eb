"""Answers a question of a chat as a background job, and stores the answer."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, cast

from app.studio.chat.store import ChatStore
from app.studio.chat.turns import Exchange, clean
from app.studio.runs.run_state import Clock, Run, apply
from app.studio.web.jobs import Job
from engine.base.errors import CancelledError, PromptCacheError
from engine.base.events import Listener

if TYPE_CHECKING:
    from engine import PreparedPrompt

logger = logging.getLogger(__name__)

WAITS = "Waits for other work."
SAVE_SECONDS = 2.0  # a killed studio loses at most this much of an answer
NOT_KEPT = "This answer could not be saved."


class Answering:
    """One answer as it arrives.

    Args:
        chats: the stored chats.
        chat: the id of the chat; it has the exchange already.
        exchange: the exchange to answer.
        run: the run of the cached side.
    """

    def __init__(self, chats: ChatStore, chat: str, exchange: Exchange, run: Run) -> None:
        self._chats, self._chat, self._exchange, self._run = chats, chat, exchange, run

    def job(self, prompt: PreparedPrompt) -> Job:
        """Returns the job; its key is the exchange's id. A finished one does not refer to the model.

        Args:
            prompt: the prompt with the turns of the exchange's branch.
        """
        return Job(self._exchange["id"], lambda job: self._work(job, prompt), "chat", result=self)

    def to_json(self) -> dict[str, Any]:
        """Returns the exchange so far."""
        return dict(self._exchange)

    def _work(self, job: Job, prompt: PreparedPrompt) -> Answering:
        clock, state, message, saved = Clock(), "done", "", time.monotonic()
        listener = Listener(stopped=lambda: job.stopping)
        try:
            stream = prompt.stream(self._run.settings, listener=listener)
            with contextlib.closing(stream):
                for event in stream:
                    with job.changing():
                        apply(self._run, event, time.perf_counter(), clock)
                        self._show()
                    if job.stopping:
                        break
                    if self._exchange["answer"] and time.monotonic() - saved >= SAVE_SECONDS:
                        with contextlib.suppress(PromptCacheError):  # the end reports it
                            self._keep(self._exchange)
                        saved = time.monotonic()
        except CancelledError:
            pass
        except Exception as error:  # the page shows it with the earlier output
            state, message = "failed", str(error)
            if not isinstance(error, PromptCacheError):
                logger.exception("An answer of a chat failed")
                message = f"The answer failed: {error!r}. The terminal of the studio shows the details."
        if state == "done" and self._run.sides["cached"].state != "done":
            state = "stopped"
        ended = cast(Exchange, {**self._exchange, "state": state, "working": "", "message": message})
        try:
            self._keep(ended)
        except PromptCacheError as error:  # the answer is complete without it
            ended["message"] = f"{message} {NOT_KEPT} {error}".strip()
        with job.changing():
            self._exchange = ended
        return self

    def _keep(self, exchange: Exchange) -> None:
        with self._chats.changing(self._chat) as chat:
            chat.add(exchange)

    def _show(self) -> None:
        side = self._run.sides["cached"]
        noun = " tokens" if side.working.startswith("encoding") else ""
        counted = f": {side.done} of {side.total}{noun}" if side.total > 1 else ""
        tokens = side.tokens
        stored = tokens["from_cache"] - tokens["encoded"] if tokens else None
        taken, unread = self._run.reuse, ""
        if tokens and tokens["encoded"]:
            limit = " if the KL limit allows it" if taken is not None and taken.combination else ""
            unread = (
                f"The next answer reads the modules and turns before this question from the cache{limit}."
            )
        elif taken is not None and not taken.scope:
            unread = f"Not read from the cache: {taken.why.removeprefix('Computed without reuse: ')}."
        self._exchange = {
            **self._exchange,
            "answer": clean(side.text),
            "working": WAITS if side.waits else f"{side.working}{counted}",
            "ttft_ms": side.ttft_ms,
            "from_cache": stored,
            "computed": tokens["prompt"] - stored if stored is not None else None,
            "unread": "" if stored else unread,
            "generated": tokens.get("generated", 0),
            "ended": side.ended,
        }
