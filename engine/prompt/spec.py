"""The properties of a model that determine a document's tokens, positions and segment names. No tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.base.choices import PlacementPolicy
from engine.prompt.recipe import Identity
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.unknown_tokens import UnknownTokens
from engine.prompt.window import Window


@dataclass(frozen=True)
class ModelSpec:
    """The properties of a model that a layout depends on.

    Attributes:
        name: the name of the model, as written by the user.
        tokenizer: a transformers tokenizer.
        chat: the chat template, with private copies of the tokenizer.
        stand_in: the token that fills a parameter's slot.
        context_length: maximum number of tokens of a prompt with its answer.
        identity: the model's part in the names of segments.
        unknown: the tokens that the model does not know; None if it knows all.
    """

    name: str
    tokenizer: Any
    chat: ChatFormat
    stand_in: int
    context_length: int
    identity: Identity
    unknown: UnknownTokens | None = None

    @property
    def window(self) -> Window:
        """The context window."""
        return Window(self.name, self.context_length)

    def placement(self, wanted: PlacementPolicy = "compact") -> PlacementPolicy:
        """Returns the requested placement, or schema placement if segments cannot be relocated."""
        return wanted if self.identity.relocatable else "schema"
