"""Turns the cache marks and block names of a request into engine calls. No computation, no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pydantic import Field

from app.server.core.limits import require_room
from app.server.core.pml_requests import faults_of, prepared_over
from app.server.core.request import SEEDS, Asked, Block, Message
from app.server.core.schema_files import SchemaFiles
from app.server.core.tool_defs import all_of
from app.server.core.tool_use import Said
from app.server.http.errors import INVALID, ApiError
from app.server.http.redact_paths import without_paths
from app.server.http.shapes import Count, Reply
from app.server.recent.records import Record, blocks_of
from engine import Engine
from engine.base.events import Answer
from engine.base.tiers import Outcome, Reason
from engine.batch.ticket import Ticket
from engine.grammars.grammar import FREE, GrammarError, schema_of
from engine.inference.run_settings import RunSettings
from engine.inference.submission import Mark
from engine.pml import Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prefix_tree.moved_text import MovedTexts
from engine.prepared import PreparedPrompt
from engine.prepared_conversation import PreparedConversation
from engine.prompt.conversation.tools import ToolsError
from engine.prompt.template.call_syntax import (
    CallSyntax,
    as_text,
    call_syntax,
    definitions_as_text,
    writes_calls,
)
from engine.prompt.template.thinking import CLOSE, OPEN, split
from engine.store import Store

_TEXT = "completion"
_TAIL = 64  # tokens at the end of a prompt that may open the reasoning


class MarkResult(Reply):
    """The outcome of a mark."""

    param: str = Field(description="The request field with the mark.")
    tokens: Count = Field(description="The length of the prefix.")
    seconds: float
    reason: str = Field(default="", description="Why the prefix is not stored; empty if it is.")


def prepared(engine: Engine, asked: Asked, files: SchemaFiles, *, counted: bool = False) -> PreparedPrompt:
    """Plans a request. Run it on a worker thread: tokenizing a long prompt is slow.

    Raises:
        ApiError: the schema is unknown, or a part of the request is not supported with a schema.
        PromptCacheError: the request is invalid.
    """
    with faults_of(asked):
        require_room(engine, asked, counted=counted)
        if asked.over is not None:
            return prepared_over(engine, files, asked)
        if asked.text is None:
            syntax, messages = _syntax(engine, asked), [*asked.messages]
            if syntax is not None and not syntax.native:
                definitions = Message("system", (Block(definitions_as_text(asked.tools)),))
                messages = as_text([definitions, *messages])
                return engine.conversation(messages, asked.tools.without(), salt=asked.salt)
            called = any(message.calls or message.role == "tool" for message in messages)
            if called and not asked.tools and not writes_calls(engine.model.chat, asked.tools):
                return engine.conversation(as_text(messages), asked.tools, salt=asked.salt)
            if asked.tools and syntax is None:
                engine.model.chat.require_parser()
            return engine.conversation(messages, asked.tools, salt=asked.salt)
        schema = engine.schema(Schema(_TEXT, (), (), NOWHERE), salt=asked.salt)
        return schema.prompt(Prompt(_TEXT, (Text(asked.text, NOWHERE),), NOWHERE))


@dataclass(frozen=True)
class Submitted:
    """A prompt of a request, ready to be answered."""

    start: Callable[[int], Ticket]  # submits a draw to the engine, by its number
    kept: tuple[MarkResult, ...]  # the outcomes of its marks, in order
    parts: Callable[[Answer], Said]  # separates the text of an answer from its tool calls
    seconds: Callable[[Answer], dict[str, float]]  # compute times of read segments by key
    record: Record  # its prompt
    thinks: bool | None = None  # whether the prompt opens the reasoning; None if nothing splits it from texts
    ticket: Ticket | None = None  # the answer, if it has begun


def submitted(
    engine: Engine, asks: Sequence[Asked], files: SchemaFiles, least: int, moved: MovedTexts | None = None
) -> tuple[Submitted, ...]:
    """Plans the prompts of a request, and submits the first to the engine.

    Args:
        engine: the engine.
        asks: the request, once for each of its prompts.
        files: the stored schemas.
        least: minimum length in tokens of a stored prefix.
        moved: finds text of earlier requests at other positions.

    Raises:
        PromptCacheError: the request is invalid.
    """
    first, *others = asks
    taken = [_planned(engine, asked, files, least, moved, check=True) for asked in others]
    begun = _planned(engine, first, files, least, moved)
    return (replace(begun, ticket=begun.start(0)), *taken)


def _planned(
    engine: Engine,
    asked: Asked,
    files: SchemaFiles,
    least: int,
    moved: MovedTexts | None,
    *,
    check: bool = False,
) -> Submitted:
    """Plans a prompt; with `check`, reports the errors that starting it would."""
    prompt = prepared(engine, asked, files)
    with faults_of(asked):
        outcomes = _kept(prompt, asked, least)
        marks = [Mark(mark.tokens, mark.seconds) for mark in outcomes if not mark.reason]
        settings = _with_calls(engine, asked)
        if check:
            prompt.submissions(settings)
        record = _record(engine, prompt, asked)

    def start(draw: int) -> Ticket:
        seed, own = (settings.seed + draw) % SEEDS, () if draw else marks
        with faults_of(asked):
            (submission,) = prompt.submissions(replace(settings, seed=seed), mode="cached")
            submission = submission.marked_at(own, warm=asked.warm)
            return engine.answerer.submit(replace(submission, logprobs=asked.logprobs, moved=moved))

    thinks = _thinks(engine, prompt, asked)
    parts = _parts(engine, prompt, asked, thinks)
    seconds = partial(_seconds, engine.store)
    return Submitted(start, outcomes, parts, seconds, record, None if asked.tools else thinks)


def _record(engine: Engine, prompt: PreparedPrompt, asked: Asked) -> Record:
    """The prompt, to explain cache misses."""
    named = any(block.module is not None for message in asked.messages for block in message.blocks)
    settings = asked.settings
    plan = prompt.tokenized.planned(settings.scope, settings.placement, turns_held=settings.turns_held).plan
    # Definitions of tools as text may stand before the messages.
    lead = len(plan.borders) - sum(len(message.blocks) + bool(message.calls) for message in asked.messages)
    return Record(
        "",
        asked.salt,
        asked.model,
        engine.model.fingerprint,
        np.array(plan.token_ids, dtype=np.int32),
        asked.messages,
        blocks_of(asked.messages, plan.borders[lead:]) if plan.borders else (),
        asked.tools.json,
        previous=asked.previous,
        seconds=max((mark.seconds for mark in asked.marks), default=0.0),
        modular=named or asked.over is not None or engine.answerer.tree is None,
    )


def _syntax(engine: Engine, asked: Asked) -> CallSyntax | None:
    """The syntax of the calls that an answer may be held to; None without tools, or for free text."""
    if not asked.tools or not (asked.forced or asked.settings.grammar != FREE):
        return None
    syntax = call_syntax(engine.model.chat, asked.tools)
    return syntax if asked.forced or syntax.native else None


def _with_strict_calls(engine: Engine, asked: Asked) -> RunSettings:
    """The settings, with a grammar for free text with calls if a tool is strict.

    Calls stay free if the chat template does not write their arguments as JSON.
    """
    if not asked.tools or not asked.strict or asked.settings.grammar != FREE:
        return asked.settings
    try:
        syntax = call_syntax(engine.model.chat, asked.tools)
    except ToolsError:
        return asked.settings
    tools = all_of(asked.tools, asked.deferred)
    grammar = syntax.grammar_of_text(tools, asked.strict, engine.model.chat.tokens)
    return replace(asked.settings, grammar=grammar)


def _with_calls(engine: Engine, asked: Asked) -> RunSettings:
    """The settings, with a grammar if a call is forced, a tool is strict, or the answer has a format."""
    if (syntax := _syntax(engine, asked)) is None:
        return _with_strict_calls(engine, asked)
    tools, answer = all_of(asked.tools, asked.deferred), None
    if not asked.forced:
        answer = schema_of(asked.settings.grammar)
        if answer is None:
            words = "With tools, the format of an answer must be JSON. Send tool_choice none, or a schema."
            raise ApiError(INVALID, words, "tools")
    try:
        grammar = syntax.grammar(tools, asked.forced or tools.names, engine.model.chat.tokens, answer)
        return replace(asked.settings, grammar=grammar)
    except GrammarError as error:
        raise ApiError(INVALID, str(error), "tools") from None


def as_kept(kept: Sequence[MarkResult], answer: Answer) -> tuple[MarkResult, ...]:
    """Returns the final outcomes of marks after an answer; a prefix without room is not stored."""
    reason = f"not_written: {without_paths(answer.unmarked)}"
    return tuple(
        mark.model_copy(update={"reason": reason})
        if not mark.reason and mark.tokens > answer.marked
        else mark
        for mark in kept
    )


def expire(engine: Engine) -> None:
    """Removes expired segments from memory and disk, if the time to live is an upper limit."""
    keys = engine.store.expired()
    if keys:
        engine.store.remove(keys, Reason.EXPIRED)
        engine.memory_tier.drop(keys)


def _seconds(store: Store, answer: Answer) -> dict[str, float]:
    return store.seconds({segment.key for segment in answer.segments if segment.outcome == Outcome.HIT})


def _thinks(engine: Engine, prompt: PreparedPrompt, asked: Asked) -> bool | None:
    """Whether the prompt opens the reasoning; None if the template or the format has no reasoning."""
    marked = engine.model.chat.thinking.marked and isinstance(prompt, PreparedConversation)
    if not marked or asked.warm or asked.forced or asked.settings.grammar != FREE:
        return None
    assert isinstance(prompt, PreparedConversation)
    end = engine.model.tokenizer.decode(list(prompt.token_ids(asked.settings)[-_TAIL:]))
    return bool(end.rfind(OPEN) > end.rfind(CLOSE))


def _parts(
    engine: Engine, prompt: PreparedPrompt, asked: Asked, thinks: bool | None
) -> Callable[[Answer], Said]:
    """Returns a parser that separates text, reasoning and tool calls of an answer."""

    def plain(text: str) -> Said:
        if thinks is None:
            return Said(text)
        thought, said = split(text, opened=thinks)
        return Said(said, thought)

    if not asked.tools or not isinstance(prompt, PreparedConversation):
        return lambda answer: plain(answer.text)
    chat, ends, syntax = engine.model.chat, engine.model.end_tokens, _syntax(engine, asked)
    read, tools = prompt.token_ids(asked.settings), all_of(asked.tools, asked.deferred)

    def parts(answer: Answer) -> Said:
        token_ids = (
            answer.token_ids[:-1]
            if answer.token_ids[-1:] and answer.token_ids[-1] in ends
            else answer.token_ids
        )
        if syntax is not None:
            call = syntax.read(engine.model.tokenizer.decode(list(token_ids)))
            return Said(answer.text) if call is None else Said("", calls=(call,))
        parsed = chat.calls_in(token_ids, read, tools)
        if not parsed.calls and not parsed.thought:
            return plain(answer.text)
        texts = (parsed.content, parsed.thought)  # tokens may reach past the end of a stop text
        content, thought = (text.partition(answer.stop)[0] if answer.stop else text for text in texts)
        return Said(content, thought, parsed.calls)

    return parts


def _kept(prompt: PreparedPrompt, asked: Asked, least: int) -> tuple[MarkResult, ...]:
    if not asked.marks:
        return ()
    if not isinstance(prompt, PreparedConversation):
        raise ApiError(INVALID, "Only message blocks can be marked.", asked.marks[0].param)
    borders = prompt.borders(asked.settings)
    outcomes = []
    for mark in asked.marks:
        if not 0 <= mark.block < len(borders):
            raise ApiError(INVALID, "There is no block to mark.", mark.param)
        tokens = borders[mark.block]
        reason = f"below_minimum: {tokens} tokens; the minimum is {least}" if tokens < least else ""
        outcomes.append(MarkResult(param=mark.param, tokens=tokens, seconds=mark.seconds, reason=reason))
    return tuple(outcomes)
