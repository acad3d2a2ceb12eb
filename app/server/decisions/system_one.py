"""TypeSafe's System One API: named questions about a state, answered with probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from app.server.core.request import Block, Message
from app.server.core.service import Service
from app.server.decisions.asking import (
    REFUSED,
    AskingBody,
    asked_of,
    decided,
    question_of,
    require_questions,
    text_of,
)
from app.server.decisions.decisions import Probability
from app.server.http.bodies import BodyRoute, Many
from app.server.http.errors import INVALID, ApiError
from app.server.http.openapi_responses import errors
from app.server.http.shapes import Count, Reply, optional
from app.server.http.truncate import shown
from app.server.openai.chat import caller_of
from app.server.openai.wire import Wire, refuse_what_is_not_built
from engine.decisions.questions import Option, Question, choice, predicate, score
from engine.decisions.readout import Decision

Content = str | dict[str, Any] | list[Any]
INSTRUCTIONS = "The question: a text or JSON."
_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    **REFUSED,
    "assets": (({},), "the model reads text."),
}


class NoulQuestion(Wire):
    """A question with the answers yes and no."""

    type: Literal["noul"]
    instructions: Content | None = optional(INSTRUCTIONS)
    criteria: dict[str, Content | None] | None = optional("What `true` and `false` mean.")


class SelectQuestion(Wire):
    """A choice of one label."""

    type: Literal["choice"]
    instructions: Content | None = optional(INSTRUCTIONS)
    criteria: dict[str, Content | None] = Field(description="2 to 255 labels, each with its meaning or null.")


class RubricQuestion(Wire):
    """A rating on ordered levels."""

    type: Literal["score"]
    instructions: Content | None = optional(INSTRUCTIONS)
    criteria: Many[Content] = Field(description="2 to 255 levels, from the lowest, 0, to the highest.")


AnyQuestion = Annotated[NoulQuestion | SelectQuestion | RubricQuestion, Field(discriminator="type")]


class SystemOneBody(AskingBody):
    """A System One request."""

    state: Content = Field(
        description="What the questions are about. Each field of an object and each item of a list is cached."
    )
    questions: dict[str, AnyQuestion] = Field(description="1 to 400 questions by name.")


class NoulAnswer(Reply):
    """The probability of yes."""

    type: Literal["noul"] = "noul"
    noul: Probability


class SelectAnswer(Reply):
    """The likeliest label, with its probability as the confidence."""

    type: Literal["choice"] = "choice"
    choice: str
    confidence: Probability
    probabilities: dict[str, Probability]


class RubricAnswer(Reply):
    """The expected level, with the probability of the likeliest one as the confidence."""

    type: Literal["score"] = "score"
    score: float
    confidence: Probability
    legend: dict[str, Content]
    probabilities: dict[str, Probability]


class SystemOneUsage(Reply):
    """The tokens of the request."""

    input_tokens: Count
    output_tokens: Literal[0] = 0
    cached_tokens: Count
    cache_write_tokens: Count


class SystemOneReply(Reply):
    """The answers to all questions, by name."""

    model: str
    answers: dict[str, NoulAnswer | SelectAnswer | RubricAnswer]
    usage: SystemOneUsage


def routes(service: Service) -> APIRouter:
    """Returns the endpoint."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post("/v1/systemone", responses=errors("typesafe"))
    async def create_system_one(body: SystemOneBody, request: Request) -> SystemOneReply:
        """Answers questions about a state with probabilities."""
        refuse_what_is_not_built(body, service.defaults, _REFUSED)
        caller = caller_of(service, request, body.cache_salt)
        message = Message("user", tuple(map(Block, _texts(body.state))))
        asked = asked_of(body, [message], service.defaults, caller, "state")
        require_questions(body.questions)
        fields = [f"questions.{name}" for name in body.questions]
        questions = list(map(_question, body.questions.values(), fields))
        (answers,), usage = await decided(service, [(asked, questions)], fields, body, request)
        replies = {
            name: _answer(one, answer)
            for (name, one), answer in zip(body.questions.items(), answers, strict=True)
        }
        tokens = SystemOneUsage(
            input_tokens=usage.prompt, cached_tokens=usage.read, cache_write_tokens=usage.written
        )
        return SystemOneReply(model=body.model, answers=replies, usage=tokens)

    return router


def _texts(state: Content) -> list[str]:
    """The blocks of a state: its text, or each field or item."""
    if isinstance(state, dict):
        return [f"{name}: {text_of(value)}" for name, value in state.items()]
    return [state] if isinstance(state, str) else [text_of(item) for item in state]


def _question(given: AnyQuestion, where: str) -> Question:
    text = "" if given.instructions is None else text_of(given.instructions)
    match given:
        case NoulQuestion():
            return question_of(lambda: predicate(_noul(text, given.criteria, where)), where)
        case SelectQuestion():
            options = [
                Option(label, "" if meaning is None else text_of(meaning))
                for label, meaning in given.criteria.items()
            ]
            words = text or "Which option fits?"
            return question_of(lambda: choice(words, options), f"{where}.criteria")
        case RubricQuestion():
            levels = [Option(str(level), text_of(words)) for level, words in enumerate(given.criteria)]
            return question_of(lambda: score(text or "Which level fits?", levels), f"{where}.criteria")


def _noul(text: str, criteria: Mapping[str, Content | None] | None, where: str) -> str:
    """The wording of a yes-or-no question with the meanings of its answers."""
    known = {"true": "yes", "false": "no"}
    lines = []
    for name, meaning in (criteria or {}).items():
        if name not in known:
            words = f"{shown(name)} is not an answer of a noul; describe true or false."
            raise ApiError(INVALID, words, f"{where}.criteria")
        if meaning is not None:
            lines.append(f"{known[name]}: {text_of(meaning)}")
    return "\n".join([text or "Yes or no?", *lines]) if lines else text


def _answer(given: AnyQuestion, answer: Decision) -> NoulAnswer | SelectAnswer | RubricAnswer:
    match given:
        case NoulQuestion():
            return NoulAnswer(noul=answer.probabilities[0])
        case SelectQuestion():
            labels = [*given.criteria]
            table = dict(zip(labels, answer.probabilities, strict=True))
            return SelectAnswer(choice=labels[answer.best], confidence=answer.confidence, probabilities=table)
        case RubricQuestion():
            legend = {str(level): meaning for level, meaning in enumerate(given.criteria)}
            table = dict(zip(legend, answer.probabilities, strict=True))
            expected, confidence = answer.expected, answer.confidence
            return RubricAnswer(score=expected, confidence=confidence, legend=legend, probabilities=table)
