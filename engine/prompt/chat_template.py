"""Role tags → the text that the tokenizer's own chat template puts around each turn.

The template is rendered once per sequence of roles, with a marker in place of each turn's content, and
cut at the markers. A tokenizer without a template gets plain headings. Where a template has no system turn,
the system text becomes the first paragraph of the user turn that follows it.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from engine.prompt.cutting import Cutter
from engine.prompt.recent import Recent
from engine.prompt.template import ChatTemplate, TemplateError, TemplateLimitError, TemplateTimeError
from engine.prompt.tokenizer import Tokenizer
from engine.prompt.tool_calls import AnswerReader, ParsedAnswer
from engine.prompt.tools import FORMS, NO_TOOLS, Header, Tools, ToolsError
from engine.prompt.turns import ChatError, System, Told, Turns, aligned, likely

_NO_PLACE = "The model's chat template has no place for tools: "
_OTHER = ". Leave the tools out, or use a model that was made for them."
_HEADINGS = {"system": "System: ", "user": "User: ", "assistant": "Assistant:"}
_DAYS = (datetime.date(2001, 2, 3), datetime.date(2019, 11, 28))  # no part of them alike
_MOST_KEPT: Final = 32_000_000  # characters of what was found of conversations
Roles = Sequence[str | Header]
"""Turns by their roles, or with what else the template is told of them."""


class ChatFormat:
    """The chat template of one tokenizer.

    Args:
        tokenizer: a tokenizer of transformers.
        date: the date that the template may write; None for the day on which it is asked.

    Attributes:
        tokens: tokenizes texts by authors and by the template.
        has_template: False where turns get plain headings.
        bos: the token that begins a text without turns.
        bos_text: how it is spelled; "" where the tokenizer has none.
        date: as given; may be set to another.
    """

    def __init__(self, tokenizer: Any, date: datetime.date | None = None) -> None:
        self.tokens, self.date = Tokenizer(tokenizer), date
        self.bos_text: str = tokenizer.bos_token or ""
        self._known: Recent[Turns | str] = Recent(_MOST_KEPT)  # or why it takes too long
        self._cutter = Cutter(self._apply, self.tokens, self.bos_text)
        self._reader = AnswerReader(tokenizer, self.tokens)
        self._template: ChatTemplate | None = None
        self._with_tools: ChatTemplate | None = None  # where there is another one for them
        self._fault = ""  # why there is a template and none is used
        source: Any = getattr(tokenizer, "chat_template", None)
        self.has_template = bool(source)
        if self.has_template:
            variables = tokenizer.special_tokens_map
            try:
                if not isinstance(source, str) and "tool_use" in source:
                    self._with_tools = ChatTemplate(source["tool_use"], variables)
                self._template = ChatTemplate(_default(source), variables)
            except TemplateError as error:
                self._fault = _unusable(error)
        starts = list(tokenizer("", add_special_tokens=True)["input_ids"])
        bos = tokenizer.bos_token_id
        begins = bos is not None and (starts[:1] == [bos] or self._template_begins())
        self.bos: int | None = bos if begins else None

    def today(self) -> datetime.date:
        """The date in force: the one that was given, else this day's."""
        return self.date or datetime.date.today()

    def turns(self, roles: Roles, today: datetime.date | None = None, tools: Tools = NO_TOOLS) -> Turns:
        """Returns the text around the turns of a whole conversation.

        Args:
            roles: the roles of its turns.
            today: the date in force, where it was asked before.
            tools: what the assistant may call.

        Raises:
            ChatError: the template refuses the sequence, rewrites contents so that it cannot be cut, or goes
                beyond a bound of time or size.
            ToolsError: it has no place for these tools, or for calls.
        """
        return self._kept("whole", roles, today or self.today(), tools)

    def opening(self, roles: Roles, today: datetime.date | None = None, tools: Tools = NO_TOOLS) -> Turns:
        """Returns the text around turns that others may follow; how the last one ends is not known yet.

        Args:
            roles: the roles of the turns.
            today: the date in force, where it was asked before.
            tools: what the assistant may call.

        Raises:
            ChatError: as for `turns`.
            ToolsError: as for `turns`.
        """
        return self._kept("opening", roles, today or self.today(), tools)

    def writes_date(self, roles: Sequence[str]) -> bool:
        """Whether the text around these turns is another one on another day.

        Raises:
            ChatError: as for `turns`.
        """
        one, other = (self.opening(roles, day) for day in _DAYS)
        return one != other

    def spelled(
        self, roles: Roles, contents: Sequence[str], day: datetime.date, tools: Tools = NO_TOOLS
    ) -> str:
        """Returns what the template makes of a conversation.

        Args:
            roles: the roles of its turns.
            contents: the text of each turn.
            day: the date that it may write.
            tools: what the assistant may call.

        Raises:
            ChatError: as for `turns`.
            ToolsError: as for `turns`.
        """
        turns = self.turns(roles, day, tools)
        headers, told = self._guarded(roles, day, tools)
        given = list(zip(headers, contents, strict=True))
        if turns.system != "kept":
            (_, system), (header, text), *rest = given
            given = [(header, system + turns.closes[0] + turns.opens[1] + text), *rest]
        if not self.has_template:
            inner = zip(turns.opens, contents, turns.closes, strict=True)
            return "".join(a + b + c for a, b, c in inner) + turns.generation
        return self._spell(given, replace(told, form=turns.form), invite=True)

    def strips(
        self, roles: Roles, contents: Sequence[str], day: datetime.date, tools: Tools = NO_TOOLS
    ) -> tuple[tuple[int, int], ...]:
        """Returns how many characters the template strips off each content, at its start and at its end.

        That is white space, what the assistant thought in earlier turns, and what it said beside calls of
        tools where the template leaves that out. The conversation is given as to `spelled`.

        Raises:
            ChatError: as for `turns`.
            ToolsError: as for `turns`.
        """
        turns = self.turns(roles, day, tools)
        found = aligned(self.spelled(roles, contents, day, tools), turns, contents)
        return found or tuple(next(likely(turns, i, text)) for i, text in enumerate(contents))

    @property
    def parses_calls(self) -> bool:
        """Whether calls of tools can be told from the rest of an answer."""
        return self._reader.finds_calls

    def require_parser(self) -> None:
        """Refuses tools whose calls could not be told from the rest of an answer.

        Raises:
            ToolsError: the tokenizer does not say how calls are written.
        """
        self._reader.require()

    def calls_in(
        self, answer: Sequence[int] | str, prompt: Sequence[int] = (), tools: Tools = NO_TOOLS
    ) -> ParsedAnswer:
        """Tells the calls of tools in an answer from what it says.

        Args:
            answer: its tokens, as special ones may mark calls, or its text with these in it.
            prompt: the tokens of what was answered, which may begin the answer.
            tools: by whose parameters arguments are read, where the model writes them without types.

        Raises:
            ToolsError: the tokenizer does not say how calls are written.
        """
        return self._reader.read(answer, prompt, tools)

    def token_ids(self, text: str) -> list[int]:
        """Tokenizes text of the template, where the spelling of a special token means that token."""
        return self.tokens.marked(text)

    def _template_begins(self) -> bool:
        try:
            return bool(self._template and self.turns(("user",)).begin)
        except ChatError:
            return False

    def _for(self, tools: Tools) -> ChatTemplate | None:
        """The template that transformers takes where there are these tools."""
        return self._with_tools if tools and self._with_tools is not None else self._template

    def _guarded(self, roles: Roles, day: datetime.date, tools: Tools) -> tuple[tuple[Header, ...], Told]:
        """What the template is told, in which no special token arises from words of an author."""
        given = tuple(one if isinstance(one, Header) else Header(one) for one in roles)
        guard = self.tokens.guarded
        headers = tuple(replace(one, fields=guard(one.fields)) if one.fields else one for one in given)
        told = Told(day, replace(tools, json=guard(tools.json)) if tools else tools)
        words = "\n".join((told.tools.json, *(one.fields for one in headers)))
        if told.word in words:
            told = replace(told, word=told.word + hashlib.sha256(words.encode()).hexdigest()[:16])
        return headers, told

    def _kept(
        self, what: Literal["whole", "opening"], roles: Roles, day: datetime.date, tools: Tools
    ) -> Turns:
        headers, told = self._guarded(roles, day, tools)
        if not self.has_template:
            return _plain(headers, tools)
        key = (what, headers, told)
        found = self._known.get(key)
        if found is None:
            try:
                template = self._for(told.tools)
                with template.together() if template is not None else contextlib.nullcontext():
                    found = self._formed(what, headers, told)
            except TemplateTimeError as error:
                found = _unusable(error)
            texts = (found,) if isinstance(found, str) else (*found.opens, *found.closes)
            told_of = (told.tools.json, *(one.fields for one in headers))
            self._known.keep(key, found, 1000 + sum(map(len, (*texts, *told_of))))
        if isinstance(found, str):
            raise ChatError(found)
        return found

    def _formed(self, what: Literal["whole", "opening"], headers: tuple[Header, ...], told: Told) -> Turns:
        """Cuts a rendering in the first form of calls that the template takes."""
        cut = self._whole if what == "whole" else self._opening
        refusal: ChatError | None = None
        silent, second = False, None
        for form in FORMS if any(one.fields for one in headers) else FORMS[:1]:
            formed = replace(told, form=form)
            if not self._writes_calls(headers, formed):
                silent = True
                continue
            try:
                turns = replace(cut(headers, formed), form=form)
            except ChatError as error:
                if isinstance(error.__cause__, TemplateLimitError):
                    raise
                refusal = refusal or error
                continue
            if what == "whole" and told.tools and self._alike(headers, formed, headers, NO_TOOLS):
                raise ToolsError(_NO_PLACE + "it writes the same text with and without them" + _OTHER)
            if self._writes_python(headers, formed):
                second = second or turns
            else:
                return turns
        if second is not None:
            return second
        if silent or refusal is None:
            raise ToolsError(
                "The model's chat template has no place for calls of tools: it writes turns alike with and "
                "without them" + _OTHER
            )
        if told.tools:
            with contextlib.suppress(ChatError):
                self._formed(what, headers, replace(told, tools=NO_TOOLS))
                raise ToolsError(_NO_PLACE + _said(refusal) + _OTHER) from refusal
        raise refusal

    def _writes_calls(self, headers: tuple[Header, ...], told: Told) -> bool:
        """Whether calls are to be seen in the rendering, if there are some and there is one."""
        if not any(one.calls for one in headers) or (text := self._rendering(headers, told)) is None:
            return True
        return text != self._rendering(tuple(one.without_calls() for one in headers), told)

    def _writes_python(self, headers: tuple[Header, ...], told: Told) -> bool:
        """Whether arguments are as Python writes objects, so that a text is wanted."""
        if told.form.spelled:
            return False
        text = self._rendering(headers, told) or ""
        messages = (one.message("", told.form) for one in headers if one.calls)
        calls = (call["function"]["arguments"] for one in messages for call in one["tool_calls"])
        return any(repr(arguments) in text for arguments in calls if arguments)

    def _alike(
        self, headers: tuple[Header, ...], told: Told, others: tuple[Header, ...], tools: Tools
    ) -> bool:
        return self._rendering(headers, told) == self._rendering(others, replace(told, tools=tools))

    def _rendering(self, headers: tuple[Header, ...], told: Told) -> str | None:
        """A conversation, or what follows its system text; None where the template takes neither."""
        for part in (headers, headers[1:]):
            with contextlib.suppress(ChatError):
                return self._apply(part, told)
        return None

    def _spell(self, turns: Sequence[tuple[Header, str]], told: Told, *, invite: bool) -> str:
        template = self._for(told.tools)
        if template is None:
            raise ChatError(self._fault)
        try:
            messages = [header.message(text, told.form) for header, text in turns]
            tools = told.tools.definitions()
            return template.render(messages, invite=invite, today=told.day, tools=tools)
        except TemplateLimitError as error:
            raise ChatError(_unusable(error)) from error
        except TemplateError as error:
            named = " → ".join(header.role for header, _ in turns)
            raise ChatError(
                f"the model's chat template refuses the turns {named}: {str(error).rstrip('.')}. "
                "Use roles that it knows, in an order that it takes."
            ) from error

    def _apply(self, headers: tuple[Header, ...], told: Told, *, invite: bool = True, pad: str = "") -> str:
        turns = [(one, "" if one.blank else f"{pad}{told.marker(i)}{pad}") for i, one in enumerate(headers)]
        try:
            return self._spell(turns, told, invite=invite)
        except ChatError as error:
            limit = error.__cause__
            ours = not told.tools and not any(one.fields for one in headers)
            # So short a text: no other one will do. Fewer turns may.
            if ours and isinstance(limit, TemplateLimitError) and not isinstance(limit, TemplateTimeError):
                self._template, self._fault = None, str(error)
            raise

    def _opening(self, headers: tuple[Header, ...], told: Told) -> Turns:
        """Some templates want a user turn, or write the last one otherwise; a user turn mostly follows."""
        if headers[-1].role != "user":
            with contextlib.suppress(ChatError):
                return self._whole((*headers, Header("user")), told).first(len(headers))
        return self._whole(headers, told)

    def _whole(self, headers: tuple[Header, ...], told: Told) -> Turns:
        """Cuts a rendering of these turns, or of them with the system turn folded, as it must be."""
        try:
            return self._cutter.cut(headers, told)
        except ChatError as error:
            if [one.role for one in headers[:2]] != ["system", "user"]:
                raise
            return self._folded(headers, told, error)

    def _folded(self, headers: tuple[Header, ...], told: Told, refusal: ChatError) -> Turns:
        """The system turn as first paragraph of the user turn, for templates without system turns."""
        try:
            rest = self._cutter.cut(headers[1:], told)
        except ChatError:
            raise refusal from None
        system: System = "refused"
        border = ("\n\n", "")
        with contextlib.suppress(ChatError):
            system = "moved" if told.marker(0) in self._apply(headers, told) else "dropped"
            alone = self._cutter.cut(headers[:2], told)
            if alone.opens[0] == rest.opens[0]:
                border = (alone.closes[0], alone.opens[1])
        (start, end), *trims = rest.trims
        return replace(
            rest,
            opens=(rest.opens[0], border[1], *rest.opens[1:]),
            closes=(border[0], *rest.closes),
            trims=((start, False), (False, end), *trims),
            system=system,
            contents=("kept", *rest.contents),
        )


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


def _said(refusal: ChatError) -> str:
    """What a template itself says when it refuses something."""
    return f"it says {str(refusal.__cause__ or refusal).rstrip('.')!r}"


def _plain(headers: Sequence[Header], tools: Tools) -> Turns:
    if tools or any(one.fields or one.role not in _HEADINGS for one in headers):
        raise ToolsError("The model has no chat template, and so no place for tools" + _OTHER)
    opens = tuple(_HEADINGS[one.role] for one in headers)
    kept = ((False, False),) * len(headers)
    return Turns("", opens, ("\n\n",) * len(headers), _HEADINGS["assistant"], kept)
