"""A conversation that is prepared for one model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from engine.arguments import settings_with
from engine.inference.run_settings import RunSettings
from engine.prepared import PreparedPrompt, PreparedSchema
from engine.prompt.conversation.messages import Message, spell
from engine.prompt.conversation.tools import NO_TOOLS, Tools
from engine.prompt.spec import ModelSpec
from engine.prompt.tokenized import TokenizedPrompt, TokenizedSchema
from engine.runtime import Workshop


class PreparedConversation(PreparedPrompt):
    """A conversation as a prompt. Made by `Engine.conversation`.

    Chunks of what it computes end at the end of each of its blocks, so a conversation that begins with the
    same blocks finds all of them. Its earlier turns are never segments: `hold_conversation` says nothing.
    """

    def __repr__(self) -> str:
        return f"<PreparedConversation of {len(self.tree.children)} turns>"

    def borders(self, settings: RunSettings | None = None, **changes: Any) -> tuple[int, ...]:
        """Returns for each block the position behind its last token: so many tokens stand up to its end.

        That of a block without tokens is that of the block before. Calls of tools are one more block behind
        those of their message.

        Args:
            settings: the settings of the run.
            changes: single settings by name.

        Raises:
            PromptError: the conversation does not fit the context window, or the chat template refuses it.
        """
        return self._planned(settings_with(settings, changes), "cached").plan.borders

    def token_ids(self, settings: RunSettings | None = None, **changes: Any) -> tuple[int, ...]:
        """Returns the tokens that an answer would read, in order.

        Raises:
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
        """
        return tuple(self._planned(settings_with(settings, changes), "cached").plan.token_ids)


def prepare_conversation(
    messages: Sequence[Message], spec: ModelSpec, workshop: Workshop, tools: Tools = NO_TOOLS
) -> PreparedConversation:
    """Prepares a conversation for a model.

    Args:
        messages: its turns, in order.
        spec: what of the model decides the tokens.
        workshop: what computing an answer takes.
        tools: what the assistant may call.

    Raises:
        SettingsError: there is no message, something in them is none, or names or results do not fit.
        ToolsError: calls of tools are none, or stand where they cannot.
    """
    started = time.perf_counter()
    spelled = spell(messages, movable=spec.identity.relocatable)
    schema = PreparedSchema(TokenizedSchema(spelled.bound.schema, spec, apart=True), workshop)
    tokenized = TokenizedPrompt(schema.tokenized, spelled, tools)
    return PreparedConversation(schema, tokenized, (time.perf_counter() - started) * 1000, workshop)
