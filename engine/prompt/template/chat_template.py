"""Renders a conversation with the tokenizer's chat template and splits the text by author.

The template is rendered with the real contents, so its decisions depend on them. The text around turns that
never depends on contents comes from one rendering with markers, which is cached. A tokenizer without a
template gets plain headings. If a template refuses a system turn, the system text becomes the first paragraph
of the next user turn.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from engine.pml import Schema
from engine.prompt.conversation.tools import FORMS, NO_TOOLS, Header, Tools, ToolsError
from engine.prompt.template.budget import TemplateError, TemplateLimitError, TemplateTimeError
from engine.prompt.template.cutting import Cutter
from engine.prompt.template.recent import Recent
from engine.prompt.template.rendered import MOST_MASKED, Masks, Rendering, between, traced
from engine.prompt.template.renderer import ChatTemplate
from engine.prompt.template.thinking import Thinking
from engine.prompt.template.tokenizer import Tokenizer
from engine.prompt.template.tool_calls import AnswerReader, ParsedAnswer
from engine.prompt.template.turns import ChatError, ChatLimitError, Told, Turns

_NO_PLACE = "The model's chat template does not support tools: "
_OTHER = ". Remove the tools, or use a model that supports them."
_HEADINGS = {"system": "System: ", "user": "User: ", "assistant": "Assistant:"}
_QUESTION = "What do you say?"  # stands for any user text
_DAYS = (datetime.date(2001, 2, 3), datetime.date(2019, 11, 28))  # differ in every part
_MOST_KEPT: Final = 32_000_000  # characters of cached turns
Roles = Sequence[str | Header]  # roles of turns, or headers with more input of the template
_Cut = TypeVar("_Cut", Turns, Rendering)


class ChatFormat:
    """The chat template of one tokenizer.

    Args:
        tokenizer: a transformers tokenizer.
        date: the date that the template may write; None for the current date. May be reassigned.

    Attributes:
        tokens: tokenizes text of authors and of the template.
        has_template: False if turns get plain headings.
        bos: the token that begins modules without turns.
        text_bos: the token that begins a text without turns and modules, as the tokenizer says.
        bos_text: its spelling; "" if the tokenizer has none.
        date: see `Args`.
    """

    def __init__(self, tokenizer: Any, date: datetime.date | None = None) -> None:
        self.tokens, self.date = Tokenizer(tokenizer), date
        self.bos_text: str = tokenizer.bos_token or ""
        self._known: Recent[Turns | str] = Recent(_MOST_KEPT)  # or the reason for a timeout
        self._cutter = Cutter(self._apply, self.tokens, self.bos_text)
        self._reader = AnswerReader(tokenizer, self.tokens)
        self._template: ChatTemplate | None = None
        self._with_tools: ChatTemplate | None = None  # a separate template for tools, if the model has one
        self._fault = ""  # why the existing template is unusable
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
        bos: int | None = tokenizer.bos_token_id
        self.text_bos = bos if starts[:1] == [bos] else None
        self.bos = bos if self._template_begins() else self.text_bos

    @property
    def thinking(self) -> Thinking:
        """What the template says of reasoning before an answer."""
        return Thinking() if self._template is None else self._template.thinking

    def begins(self, schema: Schema) -> int | None:
        """Returns the token that begins a prompt without turns: the tokenizer's own without modules."""
        return self.bos if schema.children else self.text_bos

    def today(self) -> datetime.date:
        """Returns `date`, or the current date if it is None."""
        return self.date or datetime.date.today()

    def turns(self, roles: Roles, today: datetime.date | None = None, tools: Tools = NO_TOOLS) -> Turns:
        """Returns the text around turns, which does not depend on their contents.

        Raises:
            ChatError: the template refuses the roles, changes contents so that they cannot be located, or
                exceeds a limit of time or size.
            ToolsError: the template does not support these tools, or calls.
        """
        headers, context = self._guarded(roles, today or self.today(), tools)
        return self._known_turns(headers, context)

    def render(
        self,
        roles: Roles,
        contents: Sequence[str],
        today: datetime.date | None = None,
        tools: Tools = NO_TOOLS,
    ) -> Rendering:
        """Renders a conversation and the invitation for the assistant; `today` defaults to `self.today()`.

        Raises:
            ChatError: the template refuses the conversation, or exceeds a limit of time or size.
            ToolsError: the template does not support these tools, or calls.
        """
        headers, context = self._guarded(roles, today or self.today(), tools)
        if not self.has_template:
            turns = _plain(headers, tools, self.bos_text if self.bos is not None else "")
            whole = "".join(map("".join, zip(turns.opens, contents, turns.closes, strict=True)))
            rendering = between(turns.begin + whole + turns.generation, turns, contents)
            assert rendering is not None
            return rendering
        try:
            return self._rendered(headers, contents, context)
        except ChatLimitError:
            raise
        except ChatError as refusal:
            if [header.role for header in headers[:2]] != ["system", "user"]:
                raise
            system, user, *rest = contents
            border = "\n\n" if system.strip() else ""
            try:
                folded = self.render(roles[1:], [system + border + user, *rest], context.day, tools)
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
        """Renders turns that other turns may follow; the end of the last turn is open.

        Some templates require a user turn, or write the last turn differently, so a user turn is appended if
        possible.
        """
        last = roles[-1]
        if (last.role if isinstance(last, Header) else last) != "user":
            try:
                return self.render([*roles, "user"], [*contents, _QUESTION], today, tools).first(len(roles))
            except ChatLimitError:
                raise
            except ChatError:  # the template refuses a user turn here
                pass
        return self.render(roles, contents, today, tools)

    def writes_date(self, roles: Roles, contents: Sequence[str]) -> bool:
        """Returns whether the text around these turns depends on the date.

        Raises:
            ChatError: see `render`.
        """
        first, second = (self.opening(roles, contents, day) for day in _DAYS)
        return first != second

    @property
    def parses_calls(self) -> bool:
        """Whether tool calls can be parsed from an answer."""
        return self._reader.finds_calls

    def require_parser(self) -> None:
        """Raises a ToolsError if the tokenizer does not define how tool calls are written."""
        self._reader.require()

    def calls_in(
        self, answer: Sequence[int] | str, prompt: Sequence[int] = (), tools: Tools = NO_TOOLS
    ) -> ParsedAnswer:
        """Parses the tool calls of an answer.

        Args:
            answer: its tokens, or its text with special tokens (these may mark calls).
            prompt: the tokens of the prompt, which may begin the answer.
            tools: their parameters give the types of untyped arguments.

        Raises:
            ToolsError: the tokenizer does not define how calls are written.
        """
        return self._reader.read(answer, prompt, tools)

    def token_ids(self, text: str) -> list[int]:
        """Tokenizes text of the template; spellings of special tokens become special tokens."""
        return self.tokens.marked(text)

    def _template_begins(self) -> bool:
        try:
            return bool(self._template and self.render(("user",), (_QUESTION,)).begin)
        except ChatError:
            return False

    def _for(self, tools: Tools) -> ChatTemplate | None:
        """The template that transformers chooses for these tools."""
        return self._with_tools if tools and self._with_tools is not None else self._template

    def _guarded(self, roles: Roles, day: datetime.date, tools: Tools) -> tuple[tuple[Header, ...], Told]:
        """Guards the template's input: words of authors cannot become special tokens."""
        plain = tuple(turn if isinstance(turn, Header) else Header(turn) for turn in roles)
        guard = self.tokens.guarded
        headers = tuple(replace(turn, fields=guard(turn.fields)) if turn.fields else turn for turn in plain)
        if tools.json or tools.variables_json:
            tools = replace(tools, json=guard(tools.json), variables_json=guard(tools.variables_json))
        context = Told(day, tools)
        words = "\n".join((tools.json, tools.variables_json, *(turn.fields for turn in headers)))
        if context.word in words:
            context = replace(context, word=context.word + hashlib.sha256(words.encode()).hexdigest()[:16])
        return headers, context

    def _known_turns(self, headers: tuple[Header, ...], told: Told) -> Turns:
        key = (headers, told)
        turns = self._known.get(key)
        if turns is None:
            try:
                template = self._for(told.tools)
                with template.together() if template is not None else contextlib.nullcontext():
                    turns = self._formed(headers, told, self._cutter.cut)
            except TemplateTimeError as error:
                turns = _unusable(error)
            texts = (turns,) if isinstance(turns, str) else (*turns.opens, *turns.closes)
            told_of = (told.tools.json, *(header.fields for header in headers))
            self._known.keep(key, turns, 1000 + sum(map(len, (*texts, *told_of))))
        if isinstance(turns, str):
            raise ChatLimitError(turns)
        return turns

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
                return self._formed(
                    headers, told, lambda shown, formed: self._cut(shown, contents, formed, None)
                )
        except TemplateTimeError as error:
            raise ChatLimitError(_unusable(error)) from error

    def _cut(
        self, headers: tuple[Header, ...], contents: Sequence[str], told: Told, known: Turns | None
    ) -> Rendering:
        """Renders a conversation and splits it by author."""
        text = self._spell(headers, contents, told)
        rendering = between(text, known, contents) if known is not None else None
        if rendering is not None:
            return rendering
        template, matches = self._for(told.tools), None
        if template is not None and sum(map(len, contents)) <= MOST_MASKED:
            masks = Masks(contents, template.words, self.tokens.spelled)
            with contextlib.suppress(ChatError):
                masked = self._spell(headers, masks.contents, told)
                matches = masks.find(text, masked, self.tokens.specials(text))
        if matches is None:  # authors are unknown, but spellings of special tokens belong to the template
            contents = [self.tokens.guarded(content) for content in contents]
            text = self._spell(headers, contents, told)
        uninvited = text
        with contextlib.suppress(ChatError):
            uninvited = self._spell(headers, contents, told, invite=False)
        specials = self.tokens.specials(text)
        guard = self.tokens.guarded
        made = traced(text, uninvited, matches or (), contents, known, self.bos_text, specials, guard)
        return replace(made, form=told.form)

    def _formed(
        self, headers: tuple[Header, ...], told: Told, cut: Callable[[tuple[Header, ...], Told], _Cut]
    ) -> _Cut:
        """Runs `cut` with the first form of calls that the template accepts."""
        refusal: ChatError | None = None
        silent, second = False, None
        for form in FORMS if any(header.fields for header in headers) else FORMS[:1]:
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
                "The model's chat template does not support tool calls: it writes turns alike with and "
                "without them" + _OTHER
            )
        if told.tools:
            with contextlib.suppress(ChatError):
                self._formed(headers, replace(told, tools=told.tools.without()), cut)
                raise ToolsError(_NO_PLACE + _said(refusal) + _OTHER) from refusal
        raise refusal

    def _writes_calls(self, headers: tuple[Header, ...], told: Told) -> bool:
        """Whether calls appear in the rendering; False without calls or rendering."""
        if not any(header.calls for header in headers) or (text := self._rendering(headers, told)) is None:
            return True
        return text != self._rendering(tuple(header.without_calls() for header in headers), told)

    def _writes_python(self, headers: tuple[Header, ...], told: Told) -> bool:
        """Whether arguments are written as Python objects, so the template needs them as JSON text."""
        if told.form.spelled:
            return False
        text = self._rendering(headers, told) or ""
        messages = (message.message("", told.form) for message in headers if message.calls)
        calls = (call["function"]["arguments"] for message in messages for call in message["tool_calls"])
        return any(repr(arguments) in text for arguments in calls if arguments)

    def _alike(self, headers: tuple[Header, ...], told: Told) -> bool:
        """Whether the template writes the same text without the tools."""
        without = replace(told, tools=told.tools.without())
        return self._rendering(headers, told) == self._rendering(headers, without)

    def _rendering(self, headers: tuple[Header, ...], told: Told) -> str | None:
        """The rendered conversation, or the part after its system text; None if the template refuses both."""
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
                "Change the named part, or use roles and an order that it accepts."
            ) from error

    def _apply(self, headers: tuple[Header, ...], told: Told, *, invite: bool = True, pad: str = "") -> str:
        contents = ["" if header.blank else f"{pad}{told.marker(i)}{pad}" for i, header in enumerate(headers)]
        try:
            return self._spell(headers, contents, told, invite=invite)
        except ChatLimitError as error:
            ours = not told.tools and not any(header.fields for header in headers)
            # No other form shortens such a short text, but fewer turns may.
            if ours and not isinstance(error.__cause__, TemplateTimeError):
                self._template, self._fault = None, str(error)
            raise


def _default(source: str | dict[str, str]) -> str:
    """The template that transformers chooses if a model has several."""
    if isinstance(source, str):
        return source
    if "default" not in source:
        raise TemplateError(
            f"the model has the templates {', '.join(sorted(source))}, but none is named default"
        )
    return source["default"]


def _unusable(error: TemplateError) -> str:
    words = "exceeds a limit" if isinstance(error, TemplateLimitError) else "cannot be used"
    return (
        f"the model's chat template {words}: {str(error).rstrip('.')}. Use another model, or a schema and a "
        "prompt without roles."
    )


def _said(refusal: ChatError) -> str:
    """The template's own message about a refusal."""
    return f"it says {str(refusal.__cause__ or refusal).rstrip('.')!r}"


def _plain(headers: Sequence[Header], tools: Tools, begin: str) -> Turns:
    if tools or any(header.fields or header.role not in _HEADINGS for header in headers):
        raise ToolsError("The model has no chat template, so it does not support tools" + _OTHER)
    opens = tuple(_HEADINGS[header.role] for header in headers)
    trims = ((False, False),) * len(headers)
    return Turns(begin, opens, ("\n\n",) * len(headers), _HEADINGS["assistant"], trims)
