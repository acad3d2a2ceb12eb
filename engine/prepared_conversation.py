"""A conversation prepared for one model."""

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

    Computed chunks end at the end of each block, so conversations that begin with the same blocks share them.
    Its earlier turns are never segments: `hold_conversation` has no effect.
    """

    def __repr__(self) -> str:
        return f"<PreparedConversation of {len(self.tree.children)} turns>"

    def borders(self, settings: RunSettings | None = None, **changes: Any) -> tuple[int, ...]:
        """Returns for each block the number of tokens up to its end.

        A block without tokens repeats the number of the block before. Tool calls are an extra block after the
        blocks of their message.

        Raises:
            PromptError: the conversation does not fit the context window, or the chat template refuses it.
        """
        return self._planned(settings_with(settings, changes), "cached").plan.borders

    def token_ids(self, settings: RunSettings | None = None, **changes: Any) -> tuple[int, ...]:
        """Returns the tokens that an answer would read, in order.

        Raises:
            PromptError: the prompt or a segment of it does not fit the context window.
        """
        return tuple(self._planned(settings_with(settings, changes), "cached").plan.token_ids)


def prepare_conversation(
    messages: Sequence[Message], spec: ModelSpec, workshop: Workshop, tools: Tools = NO_TOOLS
) -> PreparedConversation:
    """Prepares a conversation for a model.

    Raises:
        SettingsError: the conversation is empty, has an item that is not a message, or names or results that
            do not fit.
        ToolsError: tool calls are malformed or misplaced.
    """
    started = time.perf_counter()
    spelled = spell(messages, movable=spec.identity.relocatable)
    schema = PreparedSchema(TokenizedSchema(spelled.bound.schema, spec, apart=True), workshop)
    tokenized = TokenizedPrompt(schema.tokenized, spelled, tools)
    return PreparedConversation(schema, tokenized, (time.perf_counter() - started) * 1000, workshop)
