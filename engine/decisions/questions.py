"""Questions about a prompt: predicates, choices and scores.

The types are those of OpenAI's Decisions API. Needs no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine.base.errors import SettingsError
from engine.pml.parse.decide_parser import MOST_OPTIONS, MOST_QUESTIONS
from engine.pml.tree.tree import Decide, DecideKind


class QuestionError(SettingsError):
    """A question cannot be asked."""


@dataclass(frozen=True)
class Option:
    """A possible answer: the label that the model scores, and a description that it reads."""

    label: str
    description: str = ""


@dataclass(frozen=True)
class Question:
    """A question with its possible answers.

    Attributes:
        kind: "predicate" has the options yes and no, "choice" unordered and "score" ordered options.
        instructions: what the model is asked.
        options: the possible answers; the levels of a score from the lowest to the highest.
        name: the name in results.

    Raises:
        QuestionError: the instructions or a label are empty, two labels are equal, or there are too few or
            too many options.
    """

    kind: DecideKind
    instructions: str
    options: tuple[Option, ...]
    name: str = ""

    def __post_init__(self) -> None:
        whose = f"question {self.name!r}" if self.name else "the question"
        if not self.instructions.strip():
            raise QuestionError(f"{whose} has no instructions; say what the model decides.")
        if not 2 <= len(self.options) <= MOST_OPTIONS:
            count = len(self.options)
            noun = "option" if count == 1 else "options"
            raise QuestionError(f"{whose} has {count} {noun}; a {self.kind} needs 2 to {MOST_OPTIONS}.")
        labels = Counter(option.label.strip() for option in self.options)
        if "" in labels:
            raise QuestionError(f"{whose} has an option without text; give every option a label.")
        twice = [label for label, count in labels.items() if count > 1]
        if twice:
            raise QuestionError(f"{whose} has the option {twice[0]!r} twice; every label must differ.")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in order."""
        return tuple(option.label for option in self.options)


def predicate(instructions: str, name: str = "") -> Question:
    """Returns a yes-or-no question.

    Raises:
        QuestionError: there are no instructions.
    """
    return Question("predicate", instructions, (Option("yes"), Option("no")), name)


def choice(instructions: str, options: Sequence[str | Option], name: str = "") -> Question:
    """Returns a question with one answer out of several.

    Raises:
        QuestionError: as for `Question`.
    """
    return Question("choice", instructions, _options(options), name)


def score(instructions: str, levels: Sequence[str | Option], name: str = "") -> Question:
    """Returns a question with ordered levels, the lowest first.

    Raises:
        QuestionError: as for `Question`.
    """
    return Question("score", instructions, _options(levels), name)


def written(questions: Sequence[Decide]) -> list[Question]:
    """Returns the questions of a document.

    Raises:
        QuestionError: as for `Question`.
    """
    options = (
        [Option("yes"), Option("no")] if one.kind == "predicate" else [Option(*pair) for pair in one.options]
        for one in questions
    )
    return [
        Question(one.kind, one.instructions, tuple(found), one.name)
        for one, found in zip(questions, options, strict=True)
    ]


def _options(options: Sequence[str | Option]) -> tuple[Option, ...]:
    return tuple(Option(option.strip()) if isinstance(option, str) else option for option in options)


def require_questions(questions: Sequence[Question]) -> None:
    """Raises an error for a list that cannot be asked at once.

    Raises:
        QuestionError: there is none, there are more than 400, or two have the same name or column.
    """
    if not 1 <= len(questions) <= MOST_QUESTIONS:
        raise QuestionError(f"there are {len(questions)} questions; ask 1 to {MOST_QUESTIONS} at once.")
    names = Counter(question.name for question in questions if question.name)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise QuestionError(f"two questions have the name {twice[0]!r}; every name must differ.")
    titled = zip(questions, titles(questions), strict=True)
    columns = Counter(column for question, title in titled for column in columns_of(question, title))
    twice = [column for column, count in columns.items() if count > 1]
    if twice:
        raise QuestionError(f"two questions have the column {twice[0]!r} in tables; name one of them anew.")


def titles(questions: Sequence[Question]) -> list[str]:
    """Returns a name for each question: its own, or its number."""
    if len(questions) == 1:
        return [questions[0].name or "answer"]
    return [question.name or f"question {number}" for number, question in enumerate(questions, 1)]


def columns_of(question: Question, title: str) -> list[str]:
    """Returns the columns of a question in tables: the answer, the level of a score, and each probability."""
    level = [f"{title} level"] if question.kind == "score" else []
    return [title, *level, *(f"{title}: {label}" for label in question.labels)]


_ANSWER = {
    "choice": "Answer with one of these options:",
    "score": "Answer with one of these levels, from the lowest to the highest:",
}


def wording(question: Question, order: Sequence[int], *, list_options: bool) -> str:
    """Returns the text that the model reads, with the options in this order.

    Without `list_options` it reads the instructions only, as in few-shot prompts.
    """
    if not list_options:
        return question.instructions
    options = [question.options[place] for place in order]
    if question.kind == "predicate":
        return f"{question.instructions}\n\nAnswer with {options[0].label} or {options[1].label}."
    lines = [
        f"- {option.label}: {option.description}" if option.description else f"- {option.label}"
        for option in options
    ]
    return "\n".join([f"{question.instructions}\n", _ANSWER[question.kind], *lines])


def orders(options: int, permutations: int) -> list[tuple[int, ...]]:
    """Returns up to this many different orders of options.

    The first is the given order. The next ones rotate it, so that each option comes first equally often, and
    then rotate the reverse order.
    """
    forward = tuple(range(options))
    rotations = [(*base[turn:], *base[:turn]) for base in (forward, forward[::-1]) for turn in range(options)]
    return list(dict.fromkeys(rotations))[:permutations]
