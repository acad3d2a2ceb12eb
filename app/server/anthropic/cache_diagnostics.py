"""Why a request could not read what an earlier one had left, in Anthropic's terms."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.server.core.request import Asked, Message

MOST_KNOWN = 2000


@dataclass(frozen=True)
class Prefix:
    """What of a request stands at the beginning of its prompt, as digests.

    Attributes:
        client: who has sent it, as it shares segments.
        model: the name of the model.
        tools: what the assistant may call.
        system: the system text.
        messages: the other turns, in order.
        tokens: of the prompt.
    """

    client: str
    model: str
    tools: str
    system: str
    messages: tuple[str, ...]
    tokens: int

    @classmethod
    def of(cls, asked: Asked, client: str, tokens: int) -> Prefix:
        """Takes it of a request."""
        system = [one for one in asked.messages if one.role == "system"]
        turns = tuple(_digest([one]) for one in asked.messages if one.role != "system")
        tools = hashlib.sha256(asked.tools.json.encode()).hexdigest()
        return cls(client, asked.model, tools, _digest(system), turns, tokens)


class Diagnoses:
    """The prefixes of the latest requests, by the ids of their answers. For any number of threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Prefix] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, message_id: str, prefix: Prefix) -> None:
        """Notes the prefix of a request that was answered."""
        with self._lock:
            self._known[message_id] = prefix
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def reason(self, previous: str | None, prefix: Prefix, read: int) -> dict[str, Any] | None:
        """Says what differs from an earlier request of the same client.

        Args:
            previous: the id of its answer; None for the first turn.
            prefix: of the present request.
            read: tokens that it has read.

        Returns:
            A `cache_miss_reason`; None where it only goes on from the earlier one.
        """
        if previous is None:
            return None
        with self._lock:
            before = self._known.get(previous)
        if before is None or before.client != prefix.client:
            return {"type": "previous_message_not_found"}
        missed = {"cache_missed_input_tokens": max(0, min(before.tokens, prefix.tokens) - read)}
        for name in ("model", "tools", "system"):
            if getattr(before, name) != getattr(prefix, name):
                return {"type": f"{name}_changed", **missed}
        if prefix.messages[: len(before.messages)] != before.messages:
            return {"type": "messages_changed", **missed}
        return None


def _digest(messages: Sequence[Message]) -> str:
    digest = hashlib.sha256()
    for one in messages:
        parts = [one.role, one.fields, *(f"{block.module!r} {block.text}" for block in one.blocks)]
        for part in parts:
            digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
