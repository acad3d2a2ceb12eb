"""A conversation → the text that the tokenizer's own chat template writes for it, cut by who wrote it.

The template is rendered over the true contents, so it decides what it decides from them. What it writes round
turns of such roles whatever they say is known from a rendering with markers, which is made once. A tokenizer
without a template gets plain headings. Where a template refuses a system turn, the system text becomes the
first paragraph of the user turn that follows it.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from engine.prompt.cutting import Cutter
from engine.prompt.recent import Recent
from engine.prompt.rendering import MOST_MASKED, Masks, Rendering, between, traced
from engine.prompt.template import ChatTemplate
from engine.prompt.template_budget import TemplateError, TemplateLimitError, TemplateTimeError
from engine.prompt.tokenizer import Tokenizer
from engine.prompt.tool_calls import AnswerReader, ParsedAnswer
from engine.prompt.tools import FORMS, NO_TOOLS, Header, Tools, ToolsError
from engine.prompt.turns import ChatError, ChatLimitError, Told, Turns

_NO_PLACE = "The model's chat template has no place for tools: "
_OTHER = ". Leave the tools out, or use a model that was made for them."
_HEADINGS = {"system": "System: ", "user": "User: ", "assistant": "Assistant:"}
_QUESTION = "What do you say?"  # stands where a user may ask anything
_DAYS = (datetime.date(2001, 2, 3), datetime.date(2019, 11, 28))  # no part of them alike
_MOST_KEPT: Final = 32_000_000  # characters of what was found of conversations
Roles = Sequence[str | Header]
"""Turns by their roles, or with what else the template reads of them."""
_Cut = TypeVar("_Cut", Turns, Rendering)


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
        """Returns what stands around turns whatever they say.

        Args:
            roles: the roles of its turns.
            today: the date in force, where it was asked before.
            tools: what the template reads besides the turns.

        Raises:
            ChatError: the template refuses the sequence, rewrites contents so that it cannot be cut, or goes
                beyond a bound of time or size.
            ToolsError: it has no place for these tools, or for calls.
        """
        headers, told = self._guarded(roles, today or self.today(), tools)
        return self._known_turns(headers, told)

    def render(
        self,
        roles: Roles,
        contents: Sequence[str],
        today: datetime.date | None = None,
        tools: Tools = NO_TOOLS,
    ) -> Rendering:
        """Returns what the template writes for a conversation, and invites the assistant to go on.

        Args:
            roles: the roles of its turns.
            contents: the text of each turn.
            today: the date that it may write; None for the one in force.
            tools: what the template reads besides the turns.

        Raises:
            ChatError: the template refuses the conversation, or goes beyond a bound of time or size.
            ToolsError: it has no place for these tools, or for calls.
        """
        headers, told = self._guarded(roles, today or self.today(), tools)
        if not self.has_template:
            turns = _plain(headers, tools, self.bos_text if self.bos is not None else "")
            whole = "".join(map("".join, zip(turns.opens, contents, turns.closes, strict=True)))
            found = between(turns.begin + whole + turns.generation, turns, contents)
            assert found is not None
            return found
        try:
            return self._rendered(headers, contents, told)
        except ChatLimitError:
            raise
        except ChatError as refusal:
            if [one.role for one in headers[:2]] != ["system", "user"]:
                raise
            system, user, *rest = contents
            border = "\n\n" if system.strip() else ""
            try:
                folded = self.render(roles[1:], [system + border + user, *rest], told.day, tools)
            except ChatError:
                raise refusal from None
            return folded.folded(len(system), border)

    def opening(
        self,
        roles: Roles,
        contents: Sequence[str],
        today: datetime.date | None = None,
        tools: Tools = NO_TOOLS,
    ) -> Rendering:
        """Returns the same of turns that others may follow; how the last one ends is not known yet.

        Some templates want a user turn, or write the last one otherwise, so a user turn follows where it can.
        """
        last = roles[-1]
        if (last.role if isinstance(last, Header) else last) != "user":
            try:
                return self.render([*roles, "user"], [*contents, _QUESTION], today, tools).first(len(roles))
            except ChatLimitError:
                raise
            except ChatError:  # it takes no user turn there
                pass
        return self.render(roles, contents, today, tools)

    def writes_date(self, roles: Roles, contents: Sequence[str]) -> bool:
        """Whether the text around these turns is another one on another day.

        Raises:
            ChatError: as for `render`.
        """
        one, other = (self.opening(roles, contents, day) for day in _DAYS)
        return one != other

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
            return bool(self._template and self.render(("user",), (_QUESTION,)).begin)
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
        if tools.json or tools.variables_json:
            tools = replace(tools, json=guard(tools.json), variables_json=guard(tools.variables_json))
        told = Told(day, tools)
        words = "\n".join((tools.json, tools.variables_json, *(one.fields for one in headers)))
        if told.word in words:
            told = replace(told, word=told.word + hashlib.sha256(words.encode()).hexdigest()[:16])
        return headers, told

    def _known_turns(self, headers: tuple[Header, ...], told: Told) -> Turns:
        key = (headers, told)
        found = self._known.get(key)
        if found is None:
            try:
                template = self._for(told.tools)
                with template.together() if template is not None else contextlib.nullcontext():
                    found = self._formed(headers, told, self._cutter.cut)
            except TemplateTimeError as error:
                found = _unusable(error)
            texts = (found,) if isinstance(found, str) else (*found.opens, *found.closes)
            told_of = (told.tools.json, *(one.fields for one in headers))
            self._known.keep(key, found, 1000 + sum(map(len, (*texts, *told_of))))
        if isinstance(found, str):
            raise ChatLimitError(found)
        return found

    def _rendered(self, headers: tuple[Header, ...], contents: Sequence[str], told: Told) -> Rendering:
        try:
            known: Turns | None = self._known_turns(headers, told)
        except ChatLimitError:
            raise
        except ChatError:
            known = None
        template = self._for(told.tools)
        try:
            with template.together() if template is not None else contextlib.nullcontext():
                if known is not None:
                    return self._cut(headers, contents, replace(told, form=known.form), known)
                return self._formed(headers, told, lambda one, formed: self._cut(one, contents, formed, None))
        except TemplateTimeError as error:
            raise ChatLimitError(_unusable(error)) from error

    def _cut(
        self, headers: tuple[Header, ...], contents: Sequence[str], told: Told, known: Turns | None
    ) -> Rendering:
        """Renders a conversation and cuts it by who wrote it."""
        text = self._spell(headers, contents, told)
        found = between(text, known, contents) if known is not None else None
        if found is not None:
            return found
        template, said = self._for(told.tools), None
        if template is not None and sum(map(len, contents)) <= MOST_MASKED:
            masks = Masks(contents, template.words, self.tokens.spelled)
            with contextlib.suppress(ChatError):
                masked = self._spell(headers, masks.contents, told)
                said = masks.find(text, masked, self.tokens.specials(text))
        if (
            said is None
        ):  # nobody knows who wrote what, but spellings of special tokens are the template's own
            contents = [self.tokens.guarded(one) for one in contents]
            text = self._spell(headers, contents, told)
        uninvited = text
        with contextlib.suppress(ChatError):
            uninvited = self._spell(headers, contents, told, invite=False)
        specials = self.tokens.specials(text)
        guard = self.tokens.guarded
        made = traced(text, uninvited, said or (), contents, known, self.bos_text, specials, guard)
        return replace(made, form=told.form)

    def _formed(
        self, headers: tuple[Header, ...], told: Told, cut: Callable[[tuple[Header, ...], Told], _Cut]
    ) -> _Cut:
        """Cuts a rendering in the first form of calls that the template takes."""
        refusal: ChatError | None = None
        silent, second = False, None
        for form in FORMS if any(one.fields for one in headers) else FORMS[:1]:
            formed = replace(told, form=form)
            if not self._writes_calls(headers, formed):
                silent = True
                continue
            try:
                turns = replace(cut(headers, formed), form=form)
            except ChatLimitError:
                raise
            except ChatError as error:
                refusal = refusal or error
                continue
            if told.tools and self._alike(headers, formed):
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
                self._formed(headers, replace(told, tools=told.tools.without()), cut)
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

    def _alike(self, headers: tuple[Header, ...], told: Told) -> bool:
        """Whether the template writes the same text without the tools."""
        without = replace(told, tools=told.tools.without())
        return self._rendering(headers, told) == self._rendering(headers, without)

    def _rendering(self, headers: tuple[Header, ...], told: Told) -> str | None:
        """A conversation, or what follows its system text; None where the template takes neither."""
        for part in (headers, headers[1:]):
            with contextlib.suppress(ChatError):
                return self._apply(part, told)
        return None

    def _spell(
        self, headers: Sequence[Header], contents: Sequence[str], told: Told, *, invite: bool = True
    ) -> str:
        template = self._for(told.tools)
        if template is None:
            raise ChatError(self._fault)
        try:
            pairs = zip(headers, contents, strict=True)
            messages = [header.message(text, told.form) for header, text in pairs]
            tools, variables = told.tools.definitions(), told.tools.variables()
            return template.render(messages, invite=invite, today=told.day, tools=tools, variables=variables)
        except TemplateLimitError as error:
            raise ChatLimitError(_unusable(error)) from error
        except TemplateError as error:
            named = " → ".join(header.role for header in headers)
            raise ChatError(
                f"the model's chat template refuses the turns {named}: {str(error).rstrip('.')}. "
                "Change what it names, or use roles and an order that it takes."
            ) from error

    def _apply(self, headers: tuple[Header, ...], told: Told, *, invite: bool = True, pad: str = "") -> str:
        contents = ["" if one.blank else f"{pad}{told.marker(i)}{pad}" for i, one in enumerate(headers)]
        try:
            return self._spell(headers, contents, told, invite=invite)
        except ChatLimitError as error:
            ours = not told.tools and not any(one.fields for one in headers)
            # So short a text: no other one will do. Fewer turns may.
            if ours and not isinstance(error.__cause__, TemplateTimeError):
                self._template, self._fault = None, str(error)
            raise


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


def _plain(headers: Sequence[Header], tools: Tools, begin: str) -> Turns:
    if tools or any(one.fields or one.role not in _HEADINGS for one in headers):
        raise ToolsError("The model has no chat template, and so no place for tools" + _OTHER)
    opens = tuple(_HEADINGS[one.role] for one in headers)
    kept = ((False, False),) * len(headers)
    return Turns(begin, opens, ("\n\n",) * len(headers), _HEADINGS["assistant"], kept)
