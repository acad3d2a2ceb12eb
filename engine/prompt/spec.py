"""What of a model decides a document's tokens, positions and names of segments. No tensors."""

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
    """What documents are laid out for.

    Attributes:
        name: the name of the model, as the user wrote it.
        tokenizer: a tokenizer of transformers.
        chat: what stands around turns, and the tokenizer's own copies.
        stand_in: the token that fills a parameter's slot.
        context_length: how many tokens a prompt and its answer may have together.
        identity: what goes into the names of segments.
        unknown: the tokens that the model does not know; None where it knows all.
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
        """What fits."""
        return Window(self.name, self.context_length)

    def placement(self, wanted: PlacementPolicy = "compact") -> PlacementPolicy:
        """How prompts are laid out: as wanted, but by the schema where segments cannot be moved."""
        return wanted if self.identity.relocatable else "schema"
