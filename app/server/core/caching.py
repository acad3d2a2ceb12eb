"""From what a client marks and names to what the engine keeps and reads. No computing, no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.server.core.limits import require_room
from app.server.core.pml_requests import faults_of, prepared_over
from app.server.core.request import Asked
from app.server.core.schema_files import SchemaFiles
from app.server.core.tool_defs import all_of
from app.server.core.tool_use import Said
from app.server.http.errors import INVALID, ApiError
from app.server.http.redact_paths import without_paths
from engine import Engine
from engine.base.events import Answer
from engine.base.tiers import Outcome, Reason
from engine.batch.submission import Mark
from engine.batch.ticket import Ticket
from engine.pml import Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prepared import PreparedPrompt
from engine.prepared_conversation import PreparedConversation
from engine.store import Store

_TEXT = "completion"


@dataclass(frozen=True)
class Kept:
    """What became of a mark.

    Attributes:
        param: the field of the request that asked for it.
        tokens: of the prefix.
        seconds: its time to live.
        reason: why it is not kept; "" where it is.
    """

    param: str
    tokens: int
    seconds: float
    reason: str = ""


def prepared(engine: Engine, asked: Asked, files: SchemaFiles, *, counted: bool = False) -> PreparedPrompt:
    """Plans a request. On a thread of its own: a long prompt takes a while to be tokenized.

    Args:
        engine: who answers.
        asked: the request.
        files: the schemas that clients have put.
        counted: whether only its tokens are counted.

    Raises:
        ApiError: there is no such schema, or something of the request does not go with one.
        PromptCacheError: what is wrong with it.
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
    """A request that the engine has taken.

    Attributes:
        ticket: the answer to come.
        kept: what became of its marks, in their order.
        parts: tells an answer's text from the calls in it.
        seconds: says what computing had taken of what an answer read, by key, as far as it is known.
    """

    ticket: Ticket
    kept: tuple[Kept, ...]
    parts: Callable[[Answer], Said]
    seconds: Callable[[Answer], dict[str, float]]


def submitted(engine: Engine, asked: Asked, files: SchemaFiles, least: int) -> Submitted:
    """Plans a request and has it answered.

    Args:
        engine: who answers.
        asked: the request.
        files: the schemas that clients have put.
        least: tokens of a prefix that is worth being kept.

    Raises:
        PromptCacheError: what is wrong with it.
    """
    prompt = prepared(engine, asked, files)
    with faults_of(asked):
        kept = _kept(prompt, asked, least)
        marks = [Mark(one.tokens, one.seconds) for one in kept if not one.reason]
        ticket = engine.submit(prompt, asked.settings, marks=marks, warm=asked.warm)
    return Submitted(ticket, kept, _parts(engine, prompt, asked), partial(_seconds, engine.store))


def as_kept(kept: Sequence[Kept], answer: Answer) -> tuple[Kept, ...]:
    """Returns what became of marks once the answer is there: there may have been no room for them.

    Args:
        kept: what was to become of them.
        answer: the answer.
    """
    reason = f"not_written: {without_paths(answer.unmarked)}"
    return tuple(
        replace(one, reason=reason) if not one.reason and one.tokens > answer.marked else one for one in kept
    )


def expire(engine: Engine) -> None:
    """Removes what has outlived its time to live, in memory and on disk: where that is a ceiling too."""
    keys = engine.store.expired()
    if keys:
        engine.store.remove(keys, Reason.EXPIRED)
        engine.memory_tier.drop(keys)


def _seconds(store: Store, answer: Answer) -> dict[str, float]:
    """What computing took of what an answer read."""
    return store.seconds({one.key for one in answer.segments if one.outcome == Outcome.HIT})


def _parts(engine: Engine, prompt: PreparedPrompt, asked: Asked) -> Callable[[Answer], Said]:
    """What tells the calls in an answer, by the tokenizer; where no tools are given all of it is text."""
    if not asked.tools or not isinstance(prompt, PreparedConversation):
        return lambda answer: Said(answer.text)
    chat, ends = engine.model.chat, engine.model.end_tokens
    read, tools = prompt.token_ids(asked.settings), all_of(asked.tools, asked.deferred)

    def parts(answer: Answer) -> Said:
        said = (
            answer.token_ids[:-1]
            if answer.token_ids[-1:] and answer.token_ids[-1] in ends
            else answer.token_ids
        )
        found = chat.calls_in(said, read, tools)
        if not found.calls and not found.thought:
            return Said(answer.text)
        texts = (found.content, found.thought)  # of tokens, which go on to the end of a stop text
        content, thought = (one.partition(answer.stop)[0] if answer.stop else one for one in texts)
        return Said(content, thought, found.calls)

    return parts


def _kept(prompt: PreparedPrompt, asked: Asked, least: int) -> tuple[Kept, ...]:
    if not asked.marks:
        return ()
    if not isinstance(prompt, PreparedConversation):
        raise ApiError(INVALID, "Only blocks of messages can be marked.", asked.marks[0].param)
    borders = prompt.borders(asked.settings)
    found = []
    for mark in asked.marks:
        if not 0 <= mark.block < len(borders):
            raise ApiError(INVALID, "There is no block that it could mark.", mark.param)
        tokens = borders[mark.block]
        reason = f"below_minimum: {tokens} tokens, and {least} are the least" if tokens < least else ""
        found.append(Kept(mark.param, tokens, mark.seconds, reason))
    return tuple(found)
