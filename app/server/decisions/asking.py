"""Asks the engine questions about the prompt of a request, whose blocks become reusable segments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

from fastapi import Request

from app.server.core.pml_requests import faults_of
from app.server.core.request import Asked, Block, Caller, Defaults, Message, Named, scoped, settings_from
from app.server.core.service import Service
from app.server.core.usage import Usage
from app.server.http.bodies import Strict, Whole
from app.server.http.errors import INVALID, TOO_LONG, ApiError
from app.server.http.shapes import optional
from app.server.http.streams import gone
from app.server.openai.bodies import SALT, PromptBody
from engine.base.errors import SettingsError
from engine.base.events import Listener
from engine.decisions.asked import QuestionTooLongError
from engine.decisions.questions import Question, QuestionError
from engine.decisions.readout import PLAIN, Decision, Decisions, Readout
from engine.pml.parse.decide_parser import MOST_QUESTIONS

_NAMING = ("system", "user")
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "stream": ((False,), "all answers are sent at once."),
    "temperature": ((1,), "use readout.temperature."),
}
"""Unsupported fields of requests with questions."""


class ReadoutFields(Strict):
    """How probabilities are read. An unknown field is an error."""

    permutations: Whole = optional("Averages over this many orders of the options, 1 to 64.", 1)
    calibrate: bool = optional("Subtracts the scores of the same question without the input.", False)
    per_token: bool = optional("Divides the score of an option by its number of tokens.", False)
    temperature: float = optional("Divides the scores before they become probabilities, 0.01 to 100.", 1.0)

    def readout(self) -> Readout:
        """Returns the engine's form; raises ApiError if a value is out of range."""
        try:
            return Readout(self.permutations, self.calibrate, self.per_token, self.temperature)
        except SettingsError as error:
            raise ApiError(INVALID, str(error), f"readout.{str(error).partition(' ')[0]}") from None


class AskingBody(PromptBody):
    """A request with questions."""

    readout: ReadoutFields | None = optional("How probabilities are read; not part of the vendors' APIs.")
    cache_salt: str | None = optional(SALT)


def text_of(content: object) -> str:
    """Returns a text as it is, and any other value as JSON."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def require_questions(given: Sized) -> None:
    """Raises an ApiError unless there are 1 to 400 questions."""
    if not 1 <= len(given) <= MOST_QUESTIONS:
        raise ApiError(INVALID, f"There are {len(given)} questions; send 1 to {MOST_QUESTIONS}.", "questions")


def question_of(make: Callable[[], Question], where: str) -> Question:
    """Makes a question; raises an ApiError of its field if it cannot be asked."""
    try:
        return make()
    except QuestionError as error:
        words = str(error)
        raise ApiError(INVALID, words[:1].upper() + words[1:], where) from None


def asked_of(
    body: PromptBody, messages: Iterable[Message], defaults: Defaults, caller: Caller, field: str
) -> Asked:
    """Returns the state of a request. Without a schema, its blocks become named blocks.

    Raises:
        ApiError: the state has no text.
    """
    over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
    turns = tuple(messages)
    if over is None:
        if not any(block.text.strip() for turn in turns for block in turn.blocks):
            words = f"{field} has no text. Send the text that the questions are about."
            raise ApiError(INVALID, words, field)
        turns = tuple(map(_reusable, turns))
    settings = scoped(settings_from({}, defaults, "openai"), over)
    return Asked(body.model, settings, turns, salt=caller.salt, over=over, field=field)


def _reusable(message: Message) -> Message:
    """Names each block by its text, so that any request finds its segment again, in any order."""
    if message.role not in _NAMING:
        return message
    return replace(message, blocks=tuple(map(_named, message.blocks)))


def _named(block: Block) -> Block:
    if block.module is not None or not block.text:
        return block
    digest = hashlib.sha256(block.text.encode()).hexdigest()[:24]
    return replace(block, module=Named(f"state-{digest}"))


async def decided(
    service: Service,
    asks: Sequence[tuple[Asked, Sequence[Question]]],
    fields: Sequence[str],
    body: AskingBody,
    request: Request,
) -> tuple[Sequence[Sequence[Decision]], Usage]:
    """Answers each state's questions; returns the answers of each in order, and the token counts.

    `fields` name each question of a state in errors.

    Raises:
        ApiError: the server is full or not ready, or the model is unknown.
        PromptCacheError: the state or a question is invalid.
    """
    readout = PLAIN if body.readout is None else body.readout.readout()
    noted: Any = request.state.noted
    noted.asks(body.model)
    prompts = [
        await service.planned(asked, lambda _, prompt: prompt, request.state.client, gone(request))
        for asked, _ in asks
    ]

    def decide(listener: Listener) -> list[Decisions]:
        made = []
        for (asked, questions), prompt in zip(asks, prompts, strict=True):
            keep = asked.over is not None  # else the modules are blocks of the input
            options: Any = {"keep_modules": keep, "listener": listener}
            try:
                with faults_of(asked):
                    made.append(prompt.decide(questions, readout, asked.settings, **options))
            except ApiError as error:
                if not isinstance(error.__cause__, QuestionTooLongError):
                    raise
                field, cause = fields[error.__cause__.number], error.__cause__
                words = f"{field} is too long: {cause.tokens} tokens with the prompt > {cause.most} maximum"
                raise ApiError(TOO_LONG, words, field) from None
        return made

    decisions = await service.work(decide, gone(request), noted)
    counts = [one.tokens for one in decisions]
    usage = Usage(
        sum(count["prompt"] for count in counts),
        sum(count["from_cache"] - count["encoded"] for count in counts),
        sum(count["written"] for count in counts),
    )
    noted.done(usage)
    return [one.answers for one in decisions], usage
