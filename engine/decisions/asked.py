"""A prompt with a question after it, planned like any other prompt. No tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from engine.decisions.questions import Question, wording
from engine.decisions.row_tree import Path
from engine.pml import ArgumentText, NewText, PromptError, RoleClose, RoleOpen, SchemaText, make
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.tree.parts import Part
from engine.pml.tree.tree import Role, Text
from engine.prompt.tokenized import TokenizedPrompt
from engine.prompt.window import TooLongError

_BLANK_LINE = "\n\n"
_WORDS = re.compile(r"\S(?:.*\S)?", re.DOTALL)


class QuestionTooLongError(TooLongError):
    """The prompt fits the context window, and the prompt with a question does not.

    Attributes:
        number: the index of the question.
    """

    def __init__(self, number: int, tokens: int, most: int) -> None:
        words = f"the prompt with question {number + 1} has {tokens} tokens; the model reads at most {most}"
        fault = make("E502", words, NOWHERE, "", "shorten the question and its options")
        super().__init__((fault,), tokens, most)
        self.number = number


@dataclass(frozen=True)
class Asked:
    """One question in one order of its options.

    Attributes:
        number: the index of the question.
        order: the order in which the model reads the options.
        prompt: the prompt with the question.
    """

    number: int
    order: tuple[int, ...]
    prompt: TokenizedPrompt


def require_text(prompt: TokenizedPrompt) -> None:
    """Raises PromptError for a prompt without text: there is nothing to decide about."""
    if not any(map(_text_of, prompt.bound.parts)):
        hint = "import a module or write some text"
        raise PromptError((make("E503", "the prompt has no tokens", NOWHERE, "", hint),))


def ask(prompt: TokenizedPrompt, text: str) -> TokenizedPrompt:
    """Returns a prompt with a text at the end of the user's last turn.

    A prompt whose last turn is not the user's gets a new turn; a prompt without turns gets the text at its
    end.
    """
    parts = list(prompt.bound.parts)
    if prompt.continued:
        parts.append(NewText(_gap(parts) + text, NOWHERE))
    elif parts and isinstance(parts[-1], RoleClose) and parts[-1].role == "user":
        parts.insert(-1, NewText(_gap(parts[:-1]) + text, NOWHERE))
    else:
        turn = Role("user", (Text(text, NOWHERE),), NOWHERE)
        opened, closed = RoleOpen("user", turn, new=True), RoleClose("user", turn, new=True)
        parts += [opened, NewText(text, NOWHERE), closed]
    return prompt.with_parts(parts)


def ask_content_free(prompt: TokenizedPrompt, text: str, *, keep_modules: bool = True) -> TokenizedPrompt:
    """Returns a prompt with a text at its end, as `ask` does, and "N/A" for each new text of the prompt.

    Without new text or `keep_modules`, it has nothing but the text, with turns if the given prompt has turns.
    """
    parts = [
        replace(part, text=_WORDS.sub("N/A", part.text)) if isinstance(part, NewText) else part
        for part in prompt.bound.parts
    ]
    if keep_modules and parts != list(prompt.bound.parts):
        return ask(prompt.with_parts(parts), text)
    if prompt.continued:
        return prompt.with_parts([NewText(text, NOWHERE)])
    return ask(prompt.with_parts([]), text)


def _gap(parts: Sequence[Part]) -> str:
    """A blank line, unless the text before ends with white space or there is none in the turn."""
    for part in reversed(parts):
        if isinstance(part, RoleOpen):
            return ""
        if text := _text_of(part):
            return "" if text[-1].isspace() else _BLANK_LINE
    return ""


def _text_of(part: Part) -> str:
    """The text of a part; empty for all others."""
    if isinstance(part, SchemaText):
        return part.node.text
    return part.text if isinstance(part, ArgumentText | NewText) else ""


def label_tokens(prompt: TokenizedPrompt, question: Question) -> list[list[int]]:
    """Returns the tokens of each label as the model would write it after the prompt.

    A prompt without turns continues with a space before the label, unless the question ends with white space.
    """
    tokens = prompt.schema.spec.chat.tokens
    spaced = prompt.continued and not question.instructions[-1:].isspace()
    return [tokens.plain((" " if spaced else "") + label.strip()) for label in question.labels]


def overlap(labels: Sequence[Sequence[int]]) -> bool:
    """Whether one label's tokens begin another's; then the end of each label is scored too."""
    ordered = sorted(tuple(label) for label in labels)
    return any(later[: len(label)] == label for label, later in pairwise(ordered))


def paths(prefix: Sequence[tuple[int, int]], labels: Sequence[Sequence[int]], *, ends: bool) -> list[Path]:
    """Returns the path of each label after a question.

    Args:
        prefix: (token, position) of each row between the shared prompt and the labels, at least one.
        labels: the tokens of each label.
        ends: whether each label's end is scored, so that its last token needs a row too.
    """
    made, end = [], prefix[-1][1] + 1
    for label in labels:
        rows = [*prefix, *((token, end + at) for at, token in enumerate(label if ends else label[:-1]))]
        scored = tuple((len(prefix) + at, token) for at, token in enumerate(label))
        tokens, positions = zip(*rows, strict=True)
        made.append(Path(tokens, positions, scored))
    return made


def asked(
    prompt: TokenizedPrompt, number: int, question: Question, order: Sequence[int], *, list_options: bool
) -> Asked:
    """Returns a prompt with one question in one order of its options."""
    return Asked(number, tuple(order), ask(prompt, wording(question, order, list_options=list_options)))
