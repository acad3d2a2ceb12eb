"""Requests over PML: a schema and a prompt of a client's, and the turns of the conversation behind it."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any, cast

from pydantic import Field

from app.server.core.request import Asked, Over
from app.server.core.schema_files import SchemaFiles
from app.server.http.bodies import Strict
from app.server.http.errors import (
    INVALID,
    NO_SCHEMA,
    TOO_LARGE,
    ApiError,
    error_of,
    fault_of_pml,
    unsupported,
)
from app.server.http.truncate import shown
from engine import Engine
from engine.base.choices import Scope
from engine.base.errors import CharacterError, SettingsError, StoreError, require_characters
from engine.files.text_files import MAX_BYTES
from engine.pml import Prompt, PromptError, Role, RoleName, Schema, Text, parse_prompt, parse_schema
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.tree.tree import Param
from engine.prepared import PreparedPrompt, PreparedSchema
from engine.prompt.window import TooLongError

log = logging.getLogger(__name__)

PUT_IT = "Put it with PUT /v1/prompt_cache/schemas/NAME."
BLANK_LINE = "\n\n"
MOST_WINDOWS = 16
"""So many windows may the parameters of a schema fill: each token of their lengths is laid out."""
_LENGTHS = re.compile(r"""\blen(?:gth)?\s*=\s*["']\s*(\d{1,9})""")


class PromptCache(Strict):
    """What a request reads of a schema. It is ours, so a field that is not known is a mistake.

    Attributes:
        schema_name: the name of a schema that was put, or PML.
        prompt: what is imported, in PML; None for the schema's own text only.
        scope: what modules see while they are encoded.
    """

    schema_name: str = Field(alias="schema", min_length=1)
    prompt: str | None = None
    scope: Scope = "anchored"

    def over(self, owner: str) -> Over:
        """Returns it as a request has it, of a client."""
        return Over(self.schema_name, self.prompt, self.scope, owner)


def parsed_schema(text: str, param: str) -> Schema:
    """Reads a schema; no file is opened for it.

    Raises:
        ApiError: it has errors, all of which are told, or is too large.
    """
    _require_size(text, param)
    with pml_faults(param):
        parsed = parse_schema(text)
        if parsed.tree is None or not parsed.ok:
            raise PromptError(parsed.diagnostics)
        return parsed.tree


def prepared_schema(engine: Engine, text: str, param: str, salt: str) -> PreparedSchema:
    """Prepares a schema.

    Args:
        engine: of its model.
        text: its PML.
        param: the field that it came in.
        salt: what its segments are shared by.

    Raises:
        ApiError: it has errors, all of which are told, or parameters of more tokens than are laid out.
    """
    _require_size(text, param)
    if "<" not in text:
        parsed_schema(text, param)  # no document, whose faults are told
    _require_short_parameters(engine, text, param)
    with pml_faults(param):
        return engine.schema(text, salt=salt)


def _require_short_parameters(engine: Engine, text: str, param: str) -> None:
    """Refuses a schema whose parameters are far too long, before a token of theirs is laid out.

    Raises:
        ApiError: they are, or the schema has errors.
    """
    most = MOST_WINDOWS * engine.model.context_length
    if "&#" not in text and sum(map(int, _LENGTHS.findall(text))) <= most:
        return
    modules = parsed_schema(text, param).modules()
    slots = (one.length for module in modules for one in module.contents() if isinstance(one, Param))
    if (tokens := sum(slots)) > most:
        words = f"The parameters of the schema have {tokens:,} tokens together; {most:,} are the most here."
        raise ApiError(INVALID, f"{words} Give them the lengths that arguments need.", param)


def prepared_over(engine: Engine, files: SchemaFiles, asked: Asked) -> PreparedPrompt:
    """Prepares a request over a schema: its prompt, and behind that its messages or its text.

    Raises:
        ApiError: there is no such schema, the PML has faults, or there are marks, names or tools.
    """
    over = asked.over
    assert over is not None
    _require_plain(asked)
    text, param, pinned, rest = over.schema, "prompt_cache.schema", False, None
    if "<" not in text:
        kept = files.get(over.owner, text)
        if kept is None:
            raise unknown_schema(text, param)
        text, pinned = kept.text, kept.pinned
        rest = None if kept.expires_at is None else kept.expires_at - files.clock()
    schema = prepared_schema(engine, text, param, asked.salt)
    of_all = asked.salt == over.owner  # a copy under a salt of the request's own is nothing that was pinned
    if pinned and of_all and schema.tokenized.label not in engine.store.settings.pins():
        pin(engine, schema, rest)
    with pml_faults("prompt_cache.prompt"):
        return schema.prompt(_extended(_prompt(over, schema), asked), asked.tools)


def pin(engine: Engine, schema: PreparedSchema, seconds: float | None) -> None:
    """Pins a schema in the store; where nothing of it is stored yet, the next request does.

    Args:
        engine: whose store it is.
        schema: the schema.
        seconds: for how long; None for good.
    """
    try:
        engine.store.settings.pin(schema.tokenized.label, seconds)
    except StoreError as error:
        log.info("%s", error)


def unknown_schema(name: str, param: str | None = None, advice: str = PUT_IT) -> ApiError:
    """Returns the refusal of a schema that nobody has put.

    Args:
        name: the name that the request has.
        param: the field that it stands in.
        advice: what to do.
    """
    return ApiError(NO_SCHEMA, f"There is no schema {shown(name)}. {advice}", param)


@contextlib.contextmanager
def pml_faults(param: str) -> Iterator[None]:
    """Tells faults of PML as those of a field.

    Raises:
        ApiError: there are some.
    """
    try:
        yield
    except TooLongError:
        raise
    except PromptError as error:
        raise fault_of_pml(error, param) from error


@contextlib.contextmanager
def faults_of(asked: Asked) -> Iterator[None]:
    """Tells what is wrong with a prompt as a fault of the field that holds it.

    Raises:
        ApiError: something is.
    """
    try:
        with pml_faults(asked.field if asked.over is None else "prompt_cache.prompt"):
            yield
    except (TooLongError, SettingsError, CharacterError) as error:
        raise error_of(error, prompt=asked.field) from error


def _prompt(over: Over, schema: PreparedSchema) -> Prompt:
    if over.prompt is None or not over.prompt.strip():
        return Prompt(schema.name, (), NOWHERE)
    _require_size(over.prompt, "prompt_cache.prompt")
    parsed = parse_prompt(over.prompt)
    if parsed.tree is None or not parsed.ok:
        raise PromptError(parsed.diagnostics)
    return parsed.tree


def _extended(prompt: Prompt, asked: Asked) -> Prompt:
    """The prompt with what the request says behind it: turns, or the text of a completion."""
    said: list[Any] = [
        Role(cast(RoleName, message.role), _words([block.text for block in message.blocks]), NOWHERE)
        for message in asked.messages
    ]
    if asked.text:
        said.append(Text(asked.text, NOWHERE))
    if not said:
        return prompt
    return Prompt(
        prompt.schema,
        (*prompt.children, *said),
        prompt.span,
        prompt.schema_span,
        prompt.lines,
        prompt.source,
    )


def _require_plain(asked: Asked) -> None:
    """Refuses marks, names and tools, which are for conversations without a schema."""
    if asked.tools or any(one.role == "tool" or one.calls for one in asked.messages):
        raise unsupported(
            "tools", "behind a schema there are texts only. Leave prompt_cache or the tools out."
        )
    if asked.marks:
        words = "Behind a schema nothing is marked: its modules are kept by their names. Leave the mark out."
        raise ApiError(INVALID, words, asked.marks[0].param)
    named = [block.module for message in asked.messages for block in message.blocks if block.module]
    if named:
        name = shown(named[0].name)
        words = f"Beside prompt_cache a block has no name, as {name}. Make it a module of the schema."
        raise ApiError(INVALID, words, "messages")


def _words(blocks: list[str]) -> tuple[Text, ...]:
    """The texts of a turn; between two of them a blank line, where neither has white space there."""
    found: list[Text] = []
    for block in filter(None, blocks):
        if found and not (found[-1].text[-1].isspace() or block[0].isspace()):
            found.append(Text(BLANK_LINE, NOWHERE, seam=True))
        found.append(Text(block, NOWHERE))
    return tuple(found)


def _require_size(text: str, param: str) -> None:
    require_characters(text)
    if len(text.encode()) > MAX_BYTES:
        raise ApiError(
            TOO_LARGE, f"A document of PML has at most {MAX_BYTES >> 20} MB. Split it into several.", param
        )
