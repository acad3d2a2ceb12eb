"""Requests with PML: a client's schema and prompt, and the conversation that follows."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
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
from app.server.http.shapes import optional
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

PUT_IT = "Store it with PUT /v1/prompt_cache/schemas/NAME."
BLANK_LINE = "\n\n"
MOST_WINDOWS = 16  # schema parameters may fill this many windows: the engine lays out each of their tokens
_LENGTHS = re.compile(r"""\blen(?:gth)?\s*=\s*["']\s*(\d{1,9})""")


class PromptCache(Strict):
    """The PML part of a request. An unknown field is an error."""

    schema_name: str = Field(alias="schema", min_length=1, description="The name of a stored schema, or PML.")
    prompt: str | None = optional("The prompt, in PML. Default: only the fixed text of the schema.")
    scope: Scope = optional("What modules see while they are encoded.", "anchored")

    def over(self, owner: str) -> Over:
        """Returns the engine's form for a client."""
        return Over(self.schema_name, self.prompt, self.scope, owner)


def parsed_schema(text: str, param: str) -> Schema:
    """Parses a schema without other files; raises ApiError, with all errors, if it is invalid."""
    _require_size(text, param)
    with pml_faults(param):
        parsed = parse_schema(text)
        if parsed.tree is None or not parsed.ok:
            raise PromptError(parsed.diagnostics)
        return parsed.tree


def prepared_schema(engine: Engine, text: str, param: str, salt: str) -> PreparedSchema:
    """Prepares a schema; raises ApiError if it is invalid or its parameters are too long."""
    _require_size(text, param)
    if "<" not in text:
        parsed_schema(text, param)  # reports all errors
    _require_short_parameters(engine, text, param)
    with pml_faults(param):
        return engine.schema(text, salt=salt)


def _require_short_parameters(engine: Engine, text: str, param: str) -> None:
    """Rejects a schema with oversized parameters before the engine lays out their tokens."""
    limit = MOST_WINDOWS * engine.model.context_length
    if "&#" not in text and sum(map(int, _LENGTHS.findall(text))) <= limit:
        return
    modules = parsed_schema(text, param).modules()
    slots = (node.length for module in modules for node in module.contents() if isinstance(node, Param))
    if (tokens := sum(slots)) > limit:
        words = f"The parameters of the schema have {tokens:,} tokens; the maximum is {limit:,}."
        raise ApiError(INVALID, f"{words} Reduce their lengths.", param)


def prepared_over(engine: Engine, files: SchemaFiles, asked: Asked) -> PreparedPrompt:
    """Prepares a request with a schema: its prompt, then its messages or text.

    Raises:
        ApiError: the schema is unknown, the PML has errors, or the request has marks, block names or tools.
    """
    over = asked.over
    assert over is not None
    _require_plain(asked)
    schema = client_schema(engine, files, over, asked.salt, "prompt_cache.schema")
    with pml_faults("prompt_cache.prompt"):
        return schema.prompt(_extended(_prompt(over, schema), asked), asked.tools)


def client_schema(engine: Engine, files: SchemaFiles, over: Over, salt: str, param: str) -> PreparedSchema:
    """Prepares a stored schema, or one in PML; raises ApiError if it is unknown or has errors."""
    text, pinned, rest = over.schema, False, None
    if "<" not in text:
        stored = files.get(over.owner, text)
        if stored is None:
            raise unknown_schema(text, param)
        text, pinned = stored.text, stored.pinned
        rest = None if stored.expires_at is None else stored.expires_at - files.clock()
    schema = prepared_schema(engine, text, param, salt)
    of_all = salt == over.owner  # a copy under the request's own salt is never pinned
    if pinned and of_all and schema.tokenized.label not in engine.store.settings.pins():
        pin(engine, schema, rest)
    return schema


def pin(engine: Engine, schema: PreparedSchema, seconds: float | None) -> None:
    """Pins a schema in the store. If no segment is stored yet, the next request pins it."""
    try:
        engine.store.settings.pin(schema.tokenized.label, seconds)
    except StoreError as error:
        log.info("%s", error)


def unknown_schema(name: str, param: str | None = None, advice: str = PUT_IT) -> ApiError:
    """Returns the error for an unknown schema."""
    return ApiError(NO_SCHEMA, f"There is no schema {shown(name)}. {advice}", param)


@contextlib.contextmanager
def pml_faults(param: str) -> Iterator[None]:
    """Turns PML errors into an ApiError of a request field."""
    try:
        yield
    except TooLongError:
        raise
    except PromptError as error:
        raise fault_of_pml(error, param) from error


@contextlib.contextmanager
def faults_of(asked: Asked) -> Iterator[None]:
    """Turns prompt errors into an ApiError of the request field with the prompt."""
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
    """Appends the request's messages or text to the prompt."""
    added: list[Any] = [
        Role(cast(RoleName, message.role), _words([block.text for block in message.blocks]), NOWHERE)
        for message in asked.messages
    ]
    if asked.text:
        added.append(Text(asked.text, NOWHERE))
    if not added:
        return prompt
    return replace(prompt, children=(*prompt.children, *added))


def _require_plain(asked: Asked) -> None:
    """Rejects marks, block names and tools, which need a conversation without a schema."""
    if asked.tools or any(turn.role == "tool" or turn.calls for turn in asked.messages):
        raise unsupported(
            "tools", "with prompt_cache, messages have text only. Remove prompt_cache or the tools."
        )
    if asked.marks:
        words = "With prompt_cache, nothing can be marked: modules are stored by name. Remove the mark."
        raise ApiError(INVALID, words, asked.marks[0].param)
    named = [block.module for message in asked.messages for block in message.blocks if block.module]
    if named:
        name = shown(named[0].name)
        words = f"With prompt_cache, a block cannot have a name ({name}). Make it a module of the schema."
        raise ApiError(INVALID, words, "messages")


def _words(blocks: list[str]) -> tuple[Text, ...]:
    """Returns the text of a turn; blocks without white space between them get a blank line."""
    texts: list[Text] = []
    for block in filter(None, blocks):
        if texts and not (texts[-1].text[-1].isspace() or block[0].isspace()):
            texts.append(Text(BLANK_LINE, NOWHERE, seam=True))
        texts.append(Text(block, NOWHERE))
    return tuple(texts)


def _require_size(text: str, param: str) -> None:
    require_characters(text)
    if len(text.encode()) > MAX_BYTES:
        raise ApiError(
            TOO_LARGE, f"A document of PML has at most {MAX_BYTES >> 20} MB. Split it into several.", param
        )
