"""Makes a schema of recorded requests: equal text becomes modules, short differences become parameters.

The first block that differs too much, and the last one of the latest request, are new text of the prompt.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from app.server.recent.reasons import difference
from app.server.recent.records import Record
from engine.base.errors import PromptCacheError
from engine.exchange.base.imported import BLANK_LINE, apart, first_words, module, role, text
from engine.pml import Import, Param, Prompt, Role, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import write_prompt, write_schema
from engine.pml.tree.tree import Argument
from engine.programs.compile.naming import legible, unique
from engine.prompt.conversation.messages import Message

NAME: Final = "recorded"
_MOST_REQUESTS: Final = 50
_MOST_PARAMS: Final = 8
_LONGEST_VALUE: Final = 200  # characters
_MOST_WORDS: Final = 2000  # between the first and the last difference of a block
_WORDS: Final = re.compile(r"\s+|\S+")
_LAST_WORD: Final = re.compile(r"\w+(?=\W*$)")
_ROLES: Final = ("system", "user", "assistant")


@dataclass(frozen=True)
class Recorded:
    """A schema and a prompt in PML, and what they leave out, one sentence each."""

    schema: str
    prompt: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Value:
    """A difference: one value for each request, the latest first."""

    values: tuple[str, ...]


def alike(records: Sequence[Record]) -> list[Record]:
    """Returns the latest conversation, and the earlier ones that share half of its tokens or more."""
    usable = [record for record in records if record.blocks and not record.modular]
    if not usable:
        raise PromptCacheError("No conversation is recorded. Send one to the server first.")
    latest, *others = usable
    found = [latest]
    for one in others:
        shares = difference(one, latest)
        if 2 * (shares.shared + shares.lost) >= latest.body:
            found.append(one)
    return found[:_MOST_REQUESTS]


def schema_of(records: Sequence[Record], count: Callable[[str], int]) -> Recorded:
    """Makes a schema of requests that are alike, and the prompt of the latest.

    Args:
        records: the latest first.
        count: counts the tokens of a text.

    Raises:
        PromptCacheError: a text cannot be written as PML, or nothing can be a module.
    """
    return _Maker(records, count).made()


class _Maker:
    def __init__(self, records: Sequence[Record], count: Callable[[str], int]) -> None:
        self._records, self._count = records, count
        self._turns: list[Role] = []
        self._prompt: list[Any] = []
        self._notes: list[str] = []
        self._taken: dict[str, int] = {}

    def made(self) -> Recorded:
        latest = self._records[0]
        if latest.tools:
            self._notes.append("The tools are left out.")
        done = 0
        for number, message in enumerate(latest.messages):
            done = number + 1
            if not self._turn(number, message, last=done == len(latest.messages)):
                break
        if left := len(latest.messages) - done:
            self._notes.append(f"{left} later turns are left out.")
        if not self._turns:
            raise PromptCacheError("The requests have no text in common that a schema could have.")
        schema = Schema(NAME, tuple(self._turns), (), NOWHERE)
        prompt = Prompt(NAME, tuple(self._prompt), NOWHERE)
        return Recorded(write_schema(schema), write_prompt(prompt), tuple(self._notes))

    def _turn(self, number: int, message: Message, *, last: bool) -> bool:
        """Adds a turn; returns whether the next one may follow it."""
        if message.role not in _ROLES or message.calls:
            return False
        same = [one.messages[number] for one in self._records if number < len(one.messages)]
        same = [one for one in same if one.role == message.role and len(one.blocks) == len(message.blocks)]
        modules, whole = list[Any](), True
        for place, block in enumerate(message.blocks):
            ends = last and message.role == "user" and place == len(message.blocks) - 1
            parts = None if ends else _parts([one.blocks[place].text for one in same])
            if parts is None:
                whole = False
                self._new(message, block.text, alone=not modules)
                break
            modules.append(self._module(parts))
        if modules:
            self._turns.append(role(message.role, apart(modules)))
        return whole

    def _new(self, message: Message, words: str, *, alone: bool) -> None:
        if message.role == "user":
            self._prompt.append(role("user", text(words)) if alone else Text(f"{BLANK_LINE}{words}", NOWHERE))
        else:
            self._notes.append(f"The text of the role {message.role} differs and is left out.")

    def _module(self, parts: Sequence[str | _Value]) -> Any:
        children: list[Any] = []
        arguments: list[Argument] = []
        taken: dict[str, int] = {}
        before = ""
        for part in parts:
            if isinstance(part, str):
                children.extend(text(part))
                before = part
                continue
            word = _LAST_WORD.search(before)
            name = unique(legible(word[0].lower() if word else "value"), taken, 0)
            length = max(self._count(value) for value in part.values)
            children.append(Param(name, length + max(2, length // 4), None, None, NOWHERE))
            arguments.append(Argument(name, part.values[0], NOWHERE, NOWHERE))
        content = "".join(part for part in parts if isinstance(part, str))
        name = first_words(content, "part", self._taken)
        self._prompt.append(Import(name, tuple(arguments), (), NOWHERE, NOWHERE))
        return module(name, tuple(children))


def _parts(texts: Sequence[str]) -> list[str | _Value] | None:
    """Common text, and between it the differences; None if the texts differ too much for parameters."""
    first, *others = texts
    if all(one == first for one in others):
        return [first] if first else None
    lists = [_WORDS.findall(one) for one in texts]
    start = _common(lists)
    most = min(map(len, lists)) - start
    end = min(most, _common([words[::-1] for words in lists]))
    middles = [words[start : len(words) - end] for words in lists]
    if max(map(len, middles)) > _MOST_WORDS:
        return None
    parts = ["".join(lists[0][:start]), *_aligned(middles), "".join(lists[0][len(lists[0]) - end :])]
    parts = [part for part in parts if part]
    values = [part for part in parts if isinstance(part, _Value)]
    common = sum(len(part) for part in parts if isinstance(part, str))
    fits = all("\n" not in value and len(value) <= _LONGEST_VALUE for one in values for value in one.values)
    return parts if fits and len(values) <= _MOST_PARAMS and 2 * common >= len(first) else None


def _common(lists: Sequence[Sequence[str]]) -> int:
    """The number of words that all texts begin with."""
    return sum(1 for _ in takewhile(lambda words: len({*words}) == 1, zip(*lists, strict=False)))


def _aligned(middles: Sequence[list[str]]) -> list[str | _Value]:
    """The words that all texts have in one order, and the values between them."""
    reference, *others = middles
    places: list[dict[int, int]] = []  # for each other text, the place of a word of the reference
    for words in others:
        matcher = difflib.SequenceMatcher(None, reference, words, autojunk=False)
        blocks = matcher.get_matching_blocks()
        places.append({a + i: b + i for a, b, size in blocks for i in range(size)})
    anchors = [at for at in range(len(reference)) if all(at in place for place in places)]
    parts: list[str | _Value] = []
    reached = [0] * len(middles)
    for at in [*anchors, len(reference)]:
        here = [at, *(place.get(at, len(words)) for place, words in zip(places, others, strict=True))]
        ranges = zip(middles, reached, here, strict=True)
        values = tuple("".join(words[lo:hi]) for words, lo, hi in ranges)
        blank = bool(parts) and isinstance(parts[-1], str) and not parts[-1].strip()
        if any(values):
            if blank and len(parts) > 1 and isinstance(parts[-2], _Value):  # one value of several words
                space, earlier = parts.pop(), parts.pop()
                assert isinstance(earlier, _Value)
                values = tuple(f"{one}{space}{two}" for one, two in zip(earlier.values, values, strict=True))
            parts.append(_Value(values))
        if at < len(reference):
            if parts and isinstance(parts[-1], str):
                parts[-1] += reference[at]
            else:
                parts.append(reference[at])
        reached = [place + 1 for place in here]
    return parts
