"""Turns the cache marks and block names of a request into engine calls. No computation, no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import Field

from app.server.core.limits import require_room
from app.server.core.pml_requests import faults_of, prepared_over
from app.server.core.request import Asked
from app.server.core.schema_files import SchemaFiles
from app.server.core.tool_defs import all_of
from app.server.core.tool_use import Said
from app.server.http.errors import INVALID, ApiError
from app.server.http.redact_paths import without_paths
from app.server.http.shapes import Count, Reply
from engine import Engine
from engine.base.events import Answer
from engine.base.tiers import Outcome, Reason
from engine.batch.ticket import Ticket
from engine.inference.submission import Mark
from engine.pml import Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prepared import PreparedPrompt
from engine.prepared_conversation import PreparedConversation
from engine.store import Store

_TEXT = "completion"


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
            if asked.tools:
                engine.model.chat.require_parser()
            return engine.conversation(asked.messages, asked.tools, salt=asked.salt)
        schema = engine.schema(Schema(_TEXT, (), (), NOWHERE), salt=asked.salt)
        return schema.prompt(Prompt(_TEXT, (Text(asked.text, NOWHERE),), NOWHERE))


@dataclass(frozen=True)
class Submitted:
    """A request submitted to the engine."""

    ticket: Ticket  # the pending answer
    kept: tuple[MarkResult, ...]  # the outcomes of its marks, in order
    parts: Callable[[Answer], Said]  # separates the text of an answer from its tool calls
    seconds: Callable[[Answer], dict[str, float]]  # compute times of read segments by key


def submitted(engine: Engine, asked: Asked, files: SchemaFiles, least: int) -> Submitted:
    """Plans a request and submits it to the engine; raises PromptCacheError if the request is invalid."""
    prompt = prepared(engine, asked, files)
    with faults_of(asked):
        outcomes = _kept(prompt, asked, least)
        marks = [Mark(mark.tokens, mark.seconds) for mark in outcomes if not mark.reason]
        ticket = engine.submit(prompt, asked.settings, marks=marks, warm=asked.warm)
    return Submitted(ticket, outcomes, _parts(engine, prompt, asked), partial(_seconds, engine.store))


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


def _parts(engine: Engine, prompt: PreparedPrompt, asked: Asked) -> Callable[[Answer], Said]:
    """Returns a parser that separates text and tool calls of an answer."""
    if not asked.tools or not isinstance(prompt, PreparedConversation):
        return lambda answer: Said(answer.text)
    chat, ends = engine.model.chat, engine.model.end_tokens
    read, tools = prompt.token_ids(asked.settings), all_of(asked.tools, asked.deferred)

    def parts(answer: Answer) -> Said:
        token_ids = (
            answer.token_ids[:-1]
            if answer.token_ids[-1:] and answer.token_ids[-1] in ends
            else answer.token_ids
        )
        parsed = chat.calls_in(token_ids, read, tools)
        if not parsed.calls and not parsed.thought:
            return Said(answer.text)
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
