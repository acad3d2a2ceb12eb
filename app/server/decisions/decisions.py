"""OpenAI's Decisions API: typed questions about an input, answered with probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BeforeValidator, Field

from app.server.core.limits import few_messages
from app.server.core.request import Asked, Caller, Defaults, Message
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
from app.server.http.bodies import BodyRoute, Many
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.openapi_responses import errors
from app.server.http.shapes import Reply, optional
from app.server.http.truncate import shown
from app.server.openai.chat import caller_of
from app.server.openai.response_items import TURNS, Item, read_items
from app.server.openai.response_shapes import ResponseUsage
from app.server.openai.wire import CacheOptions, Conversation, Part, Wire, refuse_what_is_not_built
from engine.decisions.questions import Option, Question, choice, predicate, score
from engine.decisions.readout import Decision

Probability = Annotated[float, Field(ge=0, le=1)]
INSTRUCTIONS = "The question: a text, or parts of text and JSON."
_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    **REFUSED,
    "tools": (([],), "nothing is called; describe the tools in the input."),
}


class ChoiceOption(Wire):
    """An option of a choice."""

    value: str | bool = Field(description="The value. The model scores its text.")
    description: str | None = optional("What the option means.")


class Level(Wire):
    """A level of a score."""

    label: str = Field(description="The label. The model scores its text.")
    description: str | None = optional("What the level means.")


class PredicateQuestion(Wire):
    """A statement that is true or false."""

    type: Literal["predicate"]
    instructions: str | Many[Part] = Field(description=INSTRUCTIONS)
    name: str | None = optional("The name of the answer.")


class ChoiceQuestion(Wire):
    """A choice of one option."""

    type: Literal["choice"]
    instructions: str | Many[Part] = Field(description=INSTRUCTIONS)
    choices: Many[ChoiceOption] = Field(description="2 to 255 different options.")
    name: str | None = optional("The name of the answer.")


class ScoreQuestion(Wire):
    """A rating on ordered levels."""

    type: Literal["score"]
    instructions: str | Many[Part] = Field(description=INSTRUCTIONS)
    levels: Many[Level] = Field(description="2 to 255 different levels, from the lowest to the highest.")
    name: str | None = optional("The name of the answer.")


def _with_type(value: Any) -> Any:
    """Gives a question a type, because pydantic names the valid types only if one is sent."""
    return {"type": "", **value} if isinstance(value, dict) else value


AnyQuestion = Annotated[
    PredicateQuestion | ChoiceQuestion | ScoreQuestion,
    Field(discriminator="type"),
    BeforeValidator(_with_type),
]


class DecisionBody(AskingBody):
    """A Decisions request."""

    input: str | Many[Item] = Field(
        description="The text that the questions are about, or items: messages, calls and their results."
    )
    questions: Many[AnyQuestion] = Field(description="1 to 400 questions.")
    prompt_cache_options: CacheOptions | None = optional("Cache options. Every block of the input is stored.")


class PredicateAnswer(Reply):
    """How likely a statement is true."""

    name: str | None
    type: Literal["predicate"] = "predicate"
    probability: Probability


class ChoiceProbability(Reply):
    """The probability of an option."""

    value: str | bool
    probability: Probability


class ChoiceAnswer(Reply):
    """The likeliest option, with its probability as the confidence."""

    name: str | None
    type: Literal["choice"] = "choice"
    choice: str | bool
    confidence: Probability
    probabilities: list[ChoiceProbability]


class ScoreProbability(Reply):
    """The probability of a level; the lowest level has the value 0."""

    label: str
    value: int
    probability: Probability


class ScoreAnswer(Reply):
    """The expected level, with the probability of the likeliest one as the confidence."""

    name: str | None
    type: Literal["score"] = "score"
    score: float
    confidence: Probability
    probabilities: list[ScoreProbability]


class DecisionReply(Reply):
    """The answers to all questions, in order."""

    model: str
    answers: list[PredicateAnswer | ChoiceAnswer | ScoreAnswer]
    usage: ResponseUsage


def routes(service: Service) -> APIRouter:
    """Returns the endpoint."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post(
        "/v1/decisions",
        dependencies=[Depends(few_messages(lambda: service.engine, "input"))],
        responses=errors("openai"),
    )
    async def create_decision(body: DecisionBody, request: Request) -> DecisionReply:
        """Answers questions about an input with probabilities."""
        asked = _asked(body, service.defaults, caller_of(service, request, body.cache_salt))
        require_questions(body.questions)
        fields = [f"questions[{number}]" for number in range(len(body.questions))]
        questions = list(map(_question, body.questions, fields))
        (answers,), usage = await decided(service, [(asked, questions)], fields, body, request)
        replies = [_answer(one, answer) for one, answer in zip(body.questions, answers, strict=True)]
        return DecisionReply(model=body.model, answers=replies, usage=ResponseUsage.of(usage))

    return router


def _asked(body: DecisionBody, defaults: Defaults, caller: Caller) -> Asked:
    refuse_what_is_not_built(body, defaults, _REFUSED)
    return asked_of(body, _messages(body.input), defaults, caller, "input")


def _messages(given: str | list[Item]) -> list[Message]:
    conversation = Conversation(TURNS)
    if isinstance(given, str):
        conversation.read("user", given, "input")
        return conversation.messages
    for number, item in enumerate(given):
        for field in ("content", "output"):
            _read_json(getattr(item, field), f"input[{number}].{field}")
        if item.type == "custom_tool_call":
            item.arguments = text_of({"input": (item.model_extra or {}).get("input", "")})
        item.type = item.type.replace("custom_tool_call", "function_call")
    read_items(given, conversation)
    return conversation.messages


def _read_json(content: str | list[Part] | None, where: str) -> None:
    """Turns parts of JSON into parts of text."""
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if part.type == "input_json":
            data = (part.model_extra or {}).get("data")
            if not isinstance(data, dict | list):
                words = "It must be an object or a list of objects."
                raise ApiError(INVALID, words, f"{where}[{number}].data")
            part.type, part.text = "input_text", text_of(data)


def _question(given: AnyQuestion, where: str) -> Question:
    text = _instructions(given.instructions, f"{where}.instructions")
    match given:
        case PredicateQuestion():
            return question_of(lambda: predicate(text), where)
        case ChoiceQuestion():
            labels = _labels([option.value for option in given.choices])
            described = zip(labels, given.choices, strict=True)
            options = [Option(label, option.description or "") for label, option in described]
            return question_of(lambda: choice(text, options), f"{where}.choices")
        case ScoreQuestion():
            levels = [Option(level.label, level.description or "") for level in given.levels]
            return question_of(lambda: score(text, levels), f"{where}.levels")


def _instructions(given: str | list[Part], where: str) -> str:
    if isinstance(given, str):
        return given
    _read_json(given, where)
    for number, part in enumerate(given):
        if part.type != "input_text" or part.text is None:
            words = f"the model reads text, not {shown(part.type)}."
            raise unsupported(f"{where}[{number}].type", words)
    return "\n\n".join(part.text or "" for part in given)


def _labels(values: Sequence[str | bool]) -> list[str]:
    """The texts of values; a boolean differs from the same text."""
    texts = {value for value in values if isinstance(value, str)}
    spelled = []
    for value in values:
        label = str(value).lower() if isinstance(value, bool) else value
        spelled.append(f"{label} (boolean)" if isinstance(value, bool) and label in texts else label)
    return spelled


def _answer(given: AnyQuestion, answer: Decision) -> PredicateAnswer | ChoiceAnswer | ScoreAnswer:
    match given:
        case PredicateQuestion():
            return PredicateAnswer(name=given.name, probability=answer.probabilities[0])
        case ChoiceQuestion():
            values = [option.value for option in given.choices]
            table = [
                ChoiceProbability(value=value, probability=probability)
                for value, probability in zip(values, answer.probabilities, strict=True)
            ]
            best, confidence = values[answer.best], answer.confidence
            return ChoiceAnswer(name=given.name, choice=best, confidence=confidence, probabilities=table)
        case ScoreQuestion():
            levels = [
                ScoreProbability(label=level.label, value=value, probability=probability)
                for value, (level, probability) in enumerate(
                    zip(given.levels, answer.probabilities, strict=True)
                )
            ]
            expected, confidence = answer.expected, answer.confidence
            return ScoreAnswer(name=given.name, score=expected, confidence=confidence, probabilities=levels)
