"""Role tags → the text that the tokenizer's own chat template puts around each turn.

The template is rendered once per sequence of roles, with a marker in place of each turn's content, and
cut at the markers. A tokenizer without a template gets plain headings. Where a template has no system turn,
the system text becomes the first paragraph of the user turn that follows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import StudioError
from engine.tokenizer import Tokenizer

_PAD = " \n\t\n "
_HEADINGS = {"system": "System: ", "user": "User: ", "assistant": "Assistant:"}


class ChatError(StudioError):
    """The model's chat template refuses a sequence of roles."""


@dataclass(frozen=True)
class Turns:
    """The text around the turns of one conversation.

    Attributes:
        opens: before each turn's content.
        closes: after each turn's content.
        generation: after the last close, inviting the assistant to speak.
        trims: for each turn, whether the template strips white space at its start, and at its end.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    generation: str
    trims: tuple[tuple[bool, bool], ...]

    def first(self, count: int) -> Turns:
        """Returns the first turns alone; what invites the assistant is left to who comes after."""
        return Turns(self.opens[:count], self.closes[:count], "", self.trims[:count])


class ChatFormat:
    """The chat template of one tokenizer.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.tokens = Tokenizer(tokenizer)
        self._known: dict[tuple[str, ...], Turns] = {}
        starts = list(tokenizer("", add_special_tokens=True)["input_ids"])
        bos = tokenizer.bos_token_id
        template = bool(getattr(tokenizer, "chat_template", None))
        self.has_template = template
        begins = template and bos is not None and self._first_turn().startswith(tokenizer.bos_token)
        self.bos: int | None = bos if begins or (bos is not None and starts[:1] == [bos]) else None

    def turns(self, roles: Sequence[str]) -> Turns:
        """Returns the text around turns of these roles, without the token that begins a text.

        Raises:
            ChatError: the template refuses the sequence, or rewrites contents so that it cannot be cut.
        """
        key = tuple(roles)
        if key not in self._known:
            self._known[key] = self._render(key) if self.has_template else _plain(key)
        return self._known[key]

    def token_ids(self, text: str) -> list[int]:
        """Tokenizes text of the template, where the spelling of a special token means that token."""
        return self.tokens.marked(text)

    def _first_turn(self) -> str:
        try:
            return self._apply(("user",), generation=False)
        except ChatError:
            return ""

    def _apply(self, roles: tuple[str, ...], *, generation: bool, pad: str = "") -> str:
        messages = [{"role": role, "content": f"{pad}{_marker(i)}{pad}"} for i, role in enumerate(roles)]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=generation
                )
            )
        except Exception as error:  # templates raise whatever their author liked
            raise ChatError(
                f"the model's chat template refuses the turns {' → '.join(roles)}: {error}. "
                "Use roles that it knows, in an order that it takes."
            ) from error

    def _render(self, roles: tuple[str, ...]) -> Turns:
        """Cuts a rendering of these roles, of more, or with the system turn folded, as it must be."""
        try:
            return self._cut(roles)
        except ChatError as error:
            if roles[-1] != "user":  # some templates want a user turn; what stands before it is the same
                with contextlib.suppress(ChatError):
                    return self._cut((*roles, "user")).first(len(roles))
            if roles[0] != "system" or roles[1:2] not in ((), ("user",)):
                raise
            return self._folded(roles, error)

    def _folded(self, roles: tuple[str, ...], refusal: ChatError) -> Turns:
        """The system turn as first paragraph of the user turn, for templates without system turns."""
        try:
            rest = self._cut(roles[1:] or ("user",))
        except ChatError:
            raise refusal from None
        (start, end), *trims = rest.trims
        whole = Turns(
            (rest.opens[0], "", *rest.opens[1:]),
            ("\n\n", *rest.closes),
            rest.generation,
            ((start, False), (False, end), *trims),
        )
        return whole if len(roles) > 1 else whole.first(1)

    def _cut(self, roles: tuple[str, ...]) -> Turns:
        whole = self._apply(roles, generation=False)
        between, rest = [], whole
        for i in range(len(roles)):
            before, found, rest = rest.partition(_marker(i))
            if not found:
                raise ChatError(
                    f"the model's chat template drops or moves turn {i + 1} of {' → '.join(roles)}. "
                    "Use another order of roles."
                )
            between.append(before)
        if self.bos is not None:
            between[0] = between[0].removeprefix(self._tokenizer.bos_token)
        opens, closes = [between[0]], []
        for i in range(1, len(roles)):
            close = self._close_alone(roles[:i])
            close = close if between[i].startswith(close) else ""
            closes.append(close)
            opens.append(between[i].removeprefix(close))
        invited = self._apply(roles, generation=True)
        generation = invited.removeprefix(whole) if invited.startswith(whole) else ""
        return Turns(tuple(opens), (*closes, rest), generation, self._trims(roles))

    def _trims(self, roles: tuple[str, ...]) -> tuple[tuple[bool, bool], ...]:
        """Where white space round a turn's content does not reach the rendering, the template strips it."""
        padded = self._apply(roles, generation=False, pad=_PAD)
        found = []
        starts = False
        for i in range(len(roles)):
            before, _, padded = padded.partition(_marker(i))
            if i:
                found.append((starts, not before.startswith(_PAD)))
            starts = not before.endswith(_PAD)
        return (*found, (starts, not padded.startswith(_PAD)))

    def _close_alone(self, roles: tuple[str, ...]) -> str:
        try:
            return self._apply(roles, generation=False).rsplit(_marker(len(roles) - 1), 1)[-1]
        except ChatError:
            return ""


def _marker(index: int) -> str:
    return f"turn{index}marker"


def _plain(roles: tuple[str, ...]) -> Turns:
    opens = tuple(_HEADINGS[role] for role in roles)
    kept = ((False, False),) * len(roles)
    return Turns(opens, ("\n\n",) * len(roles), _HEADINGS["assistant"], kept)
