"""A chat: the turns over a prompt as a tree, and one branch of it as a prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.runs.run_frame import Ended
from engine.base.errors import PromptCacheError
from engine.pml import Role, Schema, Text, parse_prompt
from engine.pml.edit.prompt_source import Page
from engine.pml.edit.question_text import question_of, set_question
from engine.pml.xml.escaping import escaped_text

MOST_TURNS = 1000
OPENING = "opening"  # the id of the first exchange, if a run answered it
LONGEST_TITLE = 60  # characters of a question
_GONE = "That turn no longer exists. Reload the page."
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Exchange(TypedDict):
    """A question and its answer. Other exchanges with the same parent are other branches.

    `parent` is "" for the first one. `working` describes the work before the first token. `from_cache` are
    prompt tokens that were stored before this answer, `computed` all others. They are None if unknown.
    `unread` is the reason if no token was stored.
    """

    id: str
    parent: str
    question: str
    answer: str
    state: Literal["working", "done", "stopped", "failed"]
    working: str
    message: str
    model: str
    ttft_ms: float | None
    from_cache: int | None
    computed: int | None
    unread: NotRequired[str]
    generated: int
    ended: Ended


@dataclass
class Chat:
    """A chat with its documents.

    Attributes:
        origin: the schema's source in the form of `Workspace.origin`.
        name: the schema's name.
        leaf: the last exchange of the displayed branch; "" if there is none.
        exchanges: all exchanges, each after its parent.
    """

    id: str
    schema: str
    prompt: str
    origin: str
    name: str
    leaf: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The starts of the first and the last question, in one line."""
        shown = self.branch(self.leaf)
        questions = dict.fromkeys(exchange["question"] for exchange in (shown[:1] + shown[-1:]))
        return " … ".join(map(_start, questions))

    def branch(self, last: str) -> list[Exchange]:
        """Returns the exchanges from the first one to `last`; none for "".

        Raises:
            PromptCacheError: there is no such exchange.
        """
        known = {exchange["id"]: exchange for exchange in self.exchanges}
        branch: list[Exchange] = []
        while last:
            exchange = known.pop(last, None)  # each once: parents in a circle end here too
            if exchange is None:
                raise PromptCacheError(_GONE)
            branch.append(exchange)
            last = exchange["parent"]
        return branch[::-1]

    def tip(self, exchange: str) -> str:
        """Returns the end of the latest branch through an exchange."""
        seen = {""}
        while True:
            later = [one["id"] for one in self.exchanges if one["parent"] == exchange]
            if not later or later[-1] in seen:
                return exchange
            exchange = later[-1]
            seen.add(exchange)

    def ask(self, exchange: Exchange) -> None:
        """Adds a question, which becomes the end of the displayed branch.

        Raises:
            PromptCacheError: its id is taken or empty, or the chat has too many turns.
        """
        if not exchange["id"] or exchange["id"] in {OPENING, *(known["id"] for known in self.exchanges)}:
            raise PromptCacheError("The question has no key of its own. Reload the page, and send it again.")
        self.add(exchange)
        self.leaf = exchange["id"]

    def add(self, exchange: Exchange) -> None:
        """Adds an exchange, or replaces the one with the same id.

        Raises:
            PromptCacheError: the chat has too many turns.
        """
        places = [place for place, known in enumerate(self.exchanges) if known["id"] == exchange["id"]]
        if places:
            self.exchanges[places[0]] = exchange
        elif len(self.exchanges) >= MOST_TURNS:
            raise PromptCacheError(f"A chat has at most {MOST_TURNS} turns. Fork it into a new chat.")
        else:
            self.exchanges.append(exchange)

    def written(self, schema: Schema, before: Sequence[Exchange], question: str) -> str:
        """Returns the prompt with the turns of a branch and a last question.

        Args:
            schema: the parsed schema.
            before: the branch up to the question.
            question: the last question.

        Raises:
            PromptEditError: the prompt is too broken to edit.
        """
        questions = [*(exchange["question"] for exchange in before), question]
        source = _opened(self.prompt, schema, questions[0])
        turns: list[str] = []
        for exchange, following in zip(before, questions[1:], strict=True):
            turns += [_turn("assistant", exchange["answer"].strip()), _turn("user", following)]
        return _with_turns(source, schema, turns)


def new_exchange(key: str, parent: str, question: str, model: str) -> Exchange:
    """Returns an exchange without an answer."""
    return {
        "id": key,
        "parent": parent,
        "question": question,
        "answer": "",
        "state": "working",
        "working": "",
        "message": "",
        "model": model,
        "ttft_ms": None,
        "from_cache": None,
        "computed": None,
        "generated": 0,
        "ended": "",
    }


def clean(text: str) -> str:
    """Returns a text with a replacement character for each character that XML forbids."""
    return _FORBIDDEN.sub("\ufffd", text)


def has_answers(prompt: str) -> bool:
    """Returns whether a prompt has turns of the assistant."""
    tree = parse_prompt(prompt).tree
    return tree is not None and any(
        isinstance(child, Role) and child.role == "assistant" for child in tree.children
    )


def _start(question: str) -> str:
    words = " ".join(question.split())
    return words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"


def _opened(source: str, schema: Schema, question: str) -> str:
    """Returns a prompt with its first question. A new one is a turn, unless the schema ends in the user's."""
    known = question_of(source, schema)
    if known == question:
        return source
    last = schema.index.turns[-1][0].role if schema.index.turns else None
    if known or last == "user":
        return set_question(source, schema, question)
    return _with_turns(source, schema, [_turn("user", question)])


def _with_turns(source: str, schema: Schema, turns: Sequence[str]) -> str:
    """Returns a prompt with turns at its end, each on a line of its own if its end tag has one."""
    if not turns:
        return source
    page = Page(source, schema)
    root = page.sound(page.root)
    if root.empty_tag:
        lines = "".join(f"\n  {turn}" for turn in turns)
        return page.replace(root.open_span.end - len("/>"), root.open_span.end, f">{lines}\n</prompt>")
    end = root.inner().end
    line = source.rfind("\n", 0, end) + 1
    if line and not source[line:end].strip() and not page.preserved(root):
        return page.replace(line, line, "".join(f"{page.unit()}{turn}\n" for turn in turns))
    return page.replace(end, end, "".join(turns))


def _turn(role: str, text: str) -> str:
    """Returns a turn as an element that preserves the text."""
    text = clean(text)
    turn = f"<{role}>{escaped_text(text)}</{role}>"
    tree = parse_prompt(f"<prompt>{turn}</prompt>").tree
    read = "".join(
        part.text
        for child in (tree.children if tree else ())
        if isinstance(child, Role)
        for part in child.children
        if isinstance(part, Text)
    )
    if read == text:
        return turn
    return f'<{role} xml:space="preserve">{escaped_text(text)}</{role}>'
