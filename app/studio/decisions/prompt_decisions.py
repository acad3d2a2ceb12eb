"""Answers the Decide tab's questions on both sides as a background job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict

from app.studio.chat.turns import clean
from app.studio.documents.requests import Words, Work, request
from app.studio.history.runner import RunRequest, model_of
from app.studio.runs.run_frame import Belongs, ModelOfRun
from app.studio.runs.run_state import belongs
from app.studio.web.jobs import Job, StoppedError
from app.studio.web.json_answers import JobState, Json, JsonOf
from engine.base.errors import CancelledError
from engine.base.events import Listener, Side
from engine.decisions.questions import (
    Option,
    Question,
    QuestionError,
    predicate,
    require_questions,
    written,
)
from engine.pml import Prompt, parse_prompt
from engine.pml.tree.tree import DecideKind

if TYPE_CHECKING:
    from engine.decisions.readout import Decision, Decisions


class PageOption(TypedDict):
    """An option: the label that the model scores, and a description that it reads, or ""."""

    label: Words
    description: Words


class PageQuestion(TypedDict):
    """A question of the page's form or of a prompt; a predicate has no options."""

    kind: DecideKind
    question: Words
    options: list[PageOption]


@request
class DecidePrompt(Work):
    """Both documents, and the questions of the form. A prompt's own questions replace them."""

    questions: tuple[PageQuestion, ...]


class QuestionFault(TypedDict):
    """Why a question of the form cannot be asked: its index, the name of a field, and a sentence."""

    number: int
    field: Literal["question", "options"]
    message: str


class DecidedAnswer(TypedDict):
    """One side's answer: see `engine.decisions.readout.Decision`; `best` is an index."""

    probabilities: list[float]
    best: int
    expected: float
    order_flips: float


class DecidedQuestion(TypedDict):
    """A question with the answers of both sides."""

    kind: DecideKind
    question: str
    options: list[str]
    cached: DecidedAnswer
    uncached: DecidedAnswer


class DecidedSide(TypedDict):
    """Time and tokens of one side, for all questions."""

    ms: float
    from_cache: int
    computed: int


class DecidedSides(TypedDict):
    """Time and tokens of both sides."""

    cached: DecidedSide
    uncached: DecidedSide


class DecidedPrompt(TypedDict):
    """The decisions about a prompt; `encoded` counts the tokens that were encoded first, in `encode_ms`."""

    schema: str
    of: Belongs
    settings: Annotated[Json, JsonOf(dict[str, Any])]
    model: ModelOfRun
    questions: list[DecidedQuestion]
    sides: DecidedSides
    encoded: int
    encode_ms: float
    warnings: list[str]


class BegunDecisions(TypedDict):
    """The job, or the errors of the form."""

    job: JobState[Annotated[Json, JsonOf(DecidedPrompt)]] | None
    faults: list[QuestionFault]


@dataclass(frozen=True)
class Decided:
    """The result of the job."""

    frame: DecidedPrompt

    def to_json(self) -> dict[str, Any]:
        """Returns the decisions for the page."""
        return dict(self.frame)


def own_questions(prompt: Prompt | None) -> list[PageQuestion]:
    """Returns the questions of a prompt for the page."""
    return [
        {
            "kind": one.kind,
            "question": one.instructions,
            "options": [{"label": label, "description": about} for label, about in one.options],
        }
        for one in (prompt.questions if prompt is not None else ())
    ]


def read_questions(prompt: str, form: Sequence[PageQuestion]) -> tuple[list[Question], list[QuestionFault]]:
    """Returns the questions of a prompt, or else those of the form, and the errors of the form's fields.

    Raises:
        QuestionError: there are no questions or too many, or two of them have the same name.
    """
    tree = parse_prompt(prompt).tree
    own = written(tree.questions if tree else ())
    questions, faults = (own, []) if own else _read_form(form)
    if not faults:
        require_questions(questions)
    return questions, faults


def _read_form(form: Sequence[PageQuestion]) -> tuple[list[Question], list[QuestionFault]]:
    questions: list[Question] = []
    faults: list[QuestionFault] = []
    for number, one in enumerate(form):
        text = clean(one["question"]).strip()
        try:
            if one["kind"] == "predicate":
                questions.append(predicate(text))
            else:
                words = [(clean(it["label"]), clean(it["description"])) for it in one["options"]]
                options = tuple(Option(label.strip(), about.strip()) for label, about in words)
                questions.append(Question(one["kind"], text, options))
        except QuestionError as error:
            message = str(error)
            field: Literal["question", "options"] = "options" if text else "question"
            faults.append({"number": number, "field": field, "message": message[0].upper() + message[1:]})
    return questions, faults


def decide(job: Job, request: RunRequest, questions: Sequence[Question]) -> Decided:
    """Encodes missing segments, then answers the questions on both sides.

    Raises:
        StoppedError: the job was stopped; finished segments remain.
        PromptError: the prompt with a question does not fit the context window.
    """
    from engine.inference.step_lock import returned

    prompt, settings = request.schema.prompt(request.prompt), request.settings
    listener = Listener(stopped=lambda: job.stopping)

    def answers(side: Side) -> Decisions:
        def progress(done: int, total: int, what: str) -> None:
            job.progress(done, total, f"{what}, {side} side")

        return prompt.decide(
            questions, settings.readout, settings, mode=side, progress=progress, listener=listener
        )

    try:
        encoding = returned(prompt.encoding(settings, listener), job.progress)
        cached, uncached = answers("cached"), answers("uncached")
    except CancelledError:
        raise StoppedError from None
    model = model_of(request.engine)
    pairs = zip(questions, cached.answers, uncached.answers, strict=True)
    return Decided(
        {
            "schema": request.schema.name,
            "of": belongs(request.texts, settings, model),
            "settings": settings.of_decisions(),
            "model": model,
            "questions": [
                {
                    "kind": question.kind,
                    "question": question.instructions,
                    "options": list(question.labels),
                    "cached": _answer(ours),
                    "uncached": _answer(theirs),
                }
                for question, ours, theirs in pairs
            ],
            "sides": {"cached": _side(cached), "uncached": _side(uncached)},
            "encoded": encoding.tokens,
            "encode_ms": encoding.ms,
            "warnings": list(dict.fromkeys([*encoding.warnings, *cached.warnings, *uncached.warnings])),
        }
    )


def _answer(answer: Decision) -> DecidedAnswer:
    return {
        "probabilities": list(answer.probabilities),
        "best": answer.best,
        "expected": answer.expected,
        "order_flips": answer.order_flips,
    }


def _side(decisions: Decisions) -> DecidedSide:
    tokens = decisions.tokens
    computed = tokens["prompt_computed"] + tokens["question_rows"]
    return {"ms": decisions.ms, "from_cache": tokens["from_cache"], "computed": computed}
