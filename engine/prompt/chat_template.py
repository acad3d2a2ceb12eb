"""Role tags → the text that the tokenizer's own chat template puts around each turn.

The template is rendered once per sequence of roles, with a marker in place of each turn's content, and
cut at the markers. A tokenizer without a template gets plain headings. Where a template has no system turn,
the system text becomes the first paragraph of the user turn that follows it.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from engine.errors import PromptCacheError
from engine.prompt.template import ChatTemplate, TemplateError, TemplateLimitError, TemplateTimeError
from engine.prompt.tokenizer import Tokenizer

_PAD = " \n\t\n "
_HEADINGS = {"system": "System: ", "user": "User: ", "assistant": "Assistant:"}
_THOUGHT = "</think>"
_DAYS = (datetime.date(2001, 2, 3), datetime.date(2019, 11, 28))  # no part of them alike
System = Literal["kept", "refused", "dropped", "moved"]


class ChatError(PromptCacheError):
    """The model's chat template refuses a sequence of roles."""


@dataclass(frozen=True)
class Turns:
    """The text around the turns of one conversation.

    Attributes:
        begin: the spelling of the token that begins the text, where the template writes one.
        opens: the text before each turn's content.
        closes: the text after each turn's content.
        generation: the text after the last close, inviting the assistant to speak.
        trims: for each turn, whether the template strips white space at its start, and at its end.
        system: what the template does with system text. Where it does not keep it in its place, it is the
            first paragraph of the user turn that follows.
        invites: whether the template writes otherwise when it is asked to invite the assistant.
    """

    begin: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    generation: str
    trims: tuple[tuple[bool, bool], ...]
    system: System = "kept"
    invites: bool = True

    def first(self, count: int) -> Turns:
        """Returns the first turns alone; what invites the assistant is left to who comes after."""
        return replace(
            self,
            opens=self.opens[:count],
            closes=self.closes[:count],
            generation="",
            trims=self.trims[:count],
        )


class ChatFormat:
    """The chat template of one tokenizer.

    Args:
        tokenizer: a tokenizer of transformers.
        date: the date that the template may write; None for the day on which it is asked.

    Attributes:
        tokens: tokenizes texts by authors and by the template.
        has_template: False where turns get plain headings.
        bos: the token that begins a text without turns.
        date: as given; may be set to another.
    """

    def __init__(self, tokenizer: Any, date: datetime.date | None = None) -> None:
        self.tokens, self.date = Tokenizer(tokenizer), date
        self._bos_token: str = tokenizer.bos_token or ""
        self._known: dict[tuple[object, ...], Turns] = {}
        self._too_slow: dict[tuple[object, ...], str] = {}
        self._template: ChatTemplate | None = None
        self._fault = ""  # why there is a template and none is used
        source: Any = getattr(tokenizer, "chat_template", None)
        self.has_template = bool(source)
        if self.has_template:
            try:
                self._template = ChatTemplate(_default(source), tokenizer.special_tokens_map)
            except TemplateError as error:
                self._fault = _unusable(error)
        starts = list(tokenizer("", add_special_tokens=True)["input_ids"])
        bos = tokenizer.bos_token_id
        begins = bos is not None and (starts[:1] == [bos] or self._template_begins())
        self.bos: int | None = bos if begins else None

    def today(self) -> datetime.date:
        """The date in force: the one that was given, else this day's."""
        return self.date or datetime.date.today()

    def turns(self, roles: Sequence[str], today: datetime.date | None = None) -> Turns:
        """Returns the text around the turns of a whole conversation.

        Args:
            roles: the roles of its turns.
            today: the date in force, where it was asked before.

        Raises:
            ChatError: the template refuses the sequence, rewrites contents so that it cannot be cut, or goes
                beyond a bound of time or size.
        """
        return self._kept("whole", tuple(roles), today or self.today())

    def opening(self, roles: Sequence[str], today: datetime.date | None = None) -> Turns:
        """Returns the text around turns that others may follow; how the last one ends is not known yet.

        Args:
            roles: the roles of the turns.
            today: the date in force, where it was asked before.

        Raises:
            ChatError: as for `turns`.
        """
        return self._kept("opening", tuple(roles), today or self.today())

    def writes_date(self, roles: Sequence[str]) -> bool:
        """Whether the text around these turns is another one on another day.

        Raises:
            ChatError: as for `turns`.
        """
        one, other = (self.opening(roles, day) for day in _DAYS)
        return one != other

    def spelled(self, roles: Sequence[str], contents: Sequence[str], day: datetime.date) -> str:
        """Returns what the template makes of a conversation.

        Args:
            roles: the roles of its turns.
            contents: the text of each turn.
            day: the date that it may write.

        Raises:
            ChatError: as for `turns`.
        """
        turns = self.turns(roles, day)
        given = list(zip(roles, contents, strict=True))
        if turns.system != "kept":
            (_, system), (role, text), *rest = given
            given = [(role, system + turns.closes[0] + turns.opens[1] + text), *rest]
        if not self.has_template:
            inner = zip(turns.opens, contents, turns.closes, strict=True)
            return "".join(a + b + c for a, b, c in inner) + turns.generation
        return self._spell(given, day, invite=True)

    def strips(
        self, roles: Sequence[str], contents: Sequence[str], day: datetime.date
    ) -> tuple[tuple[int, int], ...]:
        """Returns how many characters the template strips off each content, at its start and at its end.

        That is white space, and what the assistant thought in earlier turns. The conversation is given as to
        `spelled`.

        Raises:
            ChatError: as for `turns`.
        """
        turns = self.turns(roles, day)
        found = aligned(self.spelled(roles, contents, day), turns, contents)
        return found or tuple(map(_spaces, contents, turns.trims))

    def token_ids(self, text: str) -> list[int]:
        """Tokenizes text of the template, where the spelling of a special token means that token."""
        return self.tokens.marked(text)

    def _template_begins(self) -> bool:
        try:
            return bool(self._template and self.turns(("user",)).begin)
        except ChatError:
            return False

    def _kept(self, what: Literal["whole", "opening"], roles: tuple[str, ...], today: datetime.date) -> Turns:
        if not self.has_template:
            return _plain(roles)
        key = (what, roles, today)
        if key in self._too_slow:
            raise ChatError(self._too_slow[key])
        if key not in self._known:
            render = self._whole if what == "whole" else self._opening
            try:
                with self._template.together() if self._template else contextlib.nullcontext():
                    turns = render(roles, today)
            except TemplateTimeError as error:
                self._too_slow[key] = _unusable(error)
                raise ChatError(self._too_slow[key]) from error
            self._known[key] = turns
        return self._known[key]

    def _spell(self, turns: Sequence[tuple[str, str]], today: datetime.date, *, invite: bool) -> str:
        if self._template is None:
            raise ChatError(self._fault)
        try:
            messages = [{"role": role, "content": text} for role, text in turns]
            return self._template.render(messages, invite=invite, today=today)
        except TemplateLimitError as error:
            raise ChatError(_unusable(error)) from error
        except TemplateError as error:
            named = " → ".join(role for role, _ in turns)
            raise ChatError(
                f"the model's chat template refuses the turns {named}: {str(error).rstrip('.')}. "
                "Use roles that it knows, in an order that it takes."
            ) from error

    def _apply(
        self, roles: tuple[str, ...], today: datetime.date, *, invite: bool = True, pad: str = ""
    ) -> str:
        turns = [(role, f"{pad}{_marker(i)}{pad}") for i, role in enumerate(roles)]
        try:
            return self._spell(turns, today, invite=invite)
        except ChatError as error:
            limit = error.__cause__
            # So short a text: no other one will do. Fewer turns may.
            if isinstance(limit, TemplateLimitError) and not isinstance(limit, TemplateTimeError):
                self._template, self._fault = None, str(error)
            raise

    def _opening(self, roles: tuple[str, ...], today: datetime.date) -> Turns:
        """Some templates want a user turn, or write the last one otherwise; a user turn mostly follows."""
        if roles[-1] != "user":
            with contextlib.suppress(ChatError):
                return self._whole((*roles, "user"), today).first(len(roles))
        return self._whole(roles, today)

    def _whole(self, roles: tuple[str, ...], today: datetime.date) -> Turns:
        """Cuts a rendering of these roles, or of them with the system turn folded, as it must be."""
        try:
            return self._cut(roles, today)
        except ChatError as error:
            if roles[:2] != ("system", "user"):
                raise
            return self._folded(roles, today, error)

    def _folded(self, roles: tuple[str, ...], today: datetime.date, refusal: ChatError) -> Turns:
        """The system turn as first paragraph of the user turn, for templates without system turns."""
        try:
            rest = self._cut(roles[1:], today)
        except ChatError:
            raise refusal from None
        system: System = "refused"
        border = ("\n\n", "")
        with contextlib.suppress(ChatError):
            system = "moved" if _marker(0) in self._apply(roles, today) else "dropped"
            alone = self._cut(roles[:2], today)
            if alone.opens[0] == rest.opens[0]:
                border = (alone.closes[0], alone.opens[1])
        (start, end), *trims = rest.trims
        return replace(
            rest,
            opens=(rest.opens[0], border[1], *rest.opens[1:]),
            closes=(border[0], *rest.closes),
            trims=((start, False), (False, end), *trims),
            system=system,
        )

    def _cut(self, roles: tuple[str, ...], today: datetime.date) -> Turns:
        between, tail = self._between(roles, self._apply(roles, today))
        _, uninvited = self._between(roles, self._apply(roles, today, invite=False))
        begin = self._bos_token if self._bos_token and between[0].startswith(self._bos_token) else ""
        opens, closes = [between[0].removeprefix(begin)], []
        for i in range(1, len(roles)):
            close = self._close_alone(roles[:i], today)
            close = close if between[i].startswith(close) else ""
            closes.append(close)
            opens.append(between[i].removeprefix(close))
        last = uninvited if tail.startswith(uninvited) else ""  # else the invitation stands in its place
        trims = self._trims(roles, today)
        generation = tail.removeprefix(last)
        return Turns(begin, tuple(opens), (*closes, last), generation, trims, invites=tail != uninvited)

    def _between(self, roles: tuple[str, ...], text: str) -> tuple[list[str], str]:
        between = []
        for i in range(len(roles)):
            before, found, text = text.partition(_marker(i))
            if not found:
                raise ChatError(
                    f"the model's chat template drops or moves turn {i + 1} of {' → '.join(roles)}. "
                    "Use another order of roles."
                )
            between.append(before)
        return between, text

    def _trims(self, roles: tuple[str, ...], today: datetime.date) -> tuple[tuple[bool, bool], ...]:
        """Where white space round a turn's content does not reach the rendering, the template strips it."""
        padded = self._apply(roles, today, pad=_PAD)
        found = []
        starts = False
        for i in range(len(roles)):
            before, _, padded = padded.partition(_marker(i))
            if i:
                found.append((starts, not before.startswith(_PAD)))
            starts = not before.endswith(_PAD)
        return (*found, (starts, not padded.startswith(_PAD)))

    def _close_alone(self, roles: tuple[str, ...], today: datetime.date) -> str:
        try:
            return self._apply(roles, today, invite=False).rsplit(_marker(len(roles) - 1), 1)[-1]
        except ChatError:
            return ""


def aligned(text: str, turns: Turns, contents: Sequence[str]) -> tuple[tuple[int, int], ...] | None:
    """Finds each content in a rendering: how many characters of it are missing at its start and at its end.

    Returns:
        None where the rendering holds other words than the contents and the text around the turns.
    """
    place = len(turns.begin + turns.opens[0])
    if not text.startswith(turns.begin + turns.opens[0]):
        return None
    found = []
    for i, content in enumerate(contents):
        behind = turns.closes[i] + (turns.opens[i + 1] if i + 1 < len(contents) else turns.generation)
        for left, right in _likely(content, turns.trims[i]):
            kept = content[left : len(content) - right]
            if text.startswith(kept + behind, place):
                found.append((left, right))
                place += len(kept + behind)
                break
        else:
            return None
    return tuple(found) if place == len(text) else None


def _likely(content: str, trims: tuple[bool, bool]) -> Iterator[tuple[int, int]]:
    """What templates strip: as they do at the borders of turns, else white space, thoughts, or both."""
    yield _spaces(content, trims)
    spoken = content.rfind(_THOUGHT) + len(_THOUGHT) if _THOUGHT in content else 0
    for start in dict.fromkeys((0, spoken)):
        for sides in ((False, False), (True, True), (True, False), (False, True)):
            left, right = _spaces(content[start:], sides)
            yield start + left, right


def _spaces(content: str, sides: tuple[bool, bool]) -> tuple[int, int]:
    """How much white space stands at the sides that are stripped."""
    starts, ends = sides
    left = len(content) - len(content.lstrip()) if starts else 0
    rest = content[left:]
    return left, len(rest) - len(rest.rstrip()) if ends else 0


def _default(source: str | dict[str, str]) -> str:
    """The template that transformers takes where a model has several."""
    if isinstance(source, str):
        return source
    if "default" not in source:
        raise TemplateError(
            f"the model has the templates {', '.join(sorted(source))}, and none called default"
        )
    return source["default"]


def _unusable(error: TemplateError) -> str:
    words = (
        "goes beyond what a template may take" if isinstance(error, TemplateLimitError) else "cannot be used"
    )
    return (
        f"the model's chat template {words}: {str(error).rstrip('.')}. Use another model, or a schema and a "
        "prompt without roles."
    )


def _marker(index: int) -> str:
    return f"turn{index}marker"


def _plain(roles: tuple[str, ...]) -> Turns:
    opens = tuple(_HEADINGS[role] for role in roles)
    kept = ((False, False),) * len(roles)
    return Turns("", opens, ("\n\n",) * len(roles), _HEADINGS["assistant"], kept)
