"""Explains cache misses between two requests, in Anthropic's terms."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from app.server.anthropic.shapes import CacheMissReason
from app.server.core.request import Asked, Message

MOST_KNOWN = 2000


@dataclass(frozen=True)
class Prefix:
    """Digests of the cacheable parts of a request."""

    client: str  # the client, by its salt
    model: str
    tools: str  # the callable tools
    system: str
    messages: tuple[str, ...]  # the other turns, in order
    tokens: int  # token count of the prompt

    @classmethod
    def of(cls, asked: Asked, client: str, tokens: int) -> Prefix:
        """Returns the prefix of a request."""
        system = [message for message in asked.messages if message.role == "system"]
        turns = tuple(_digest([message]) for message in asked.messages if message.role != "system")
        tools = hashlib.sha256(asked.tools.json.encode()).hexdigest()
        return cls(client, asked.model, tools, _digest(system), turns, tokens)


class Diagnoses:
    """The prefixes of the latest requests, by the ids of their answers. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Prefix] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, message_id: str, prefix: Prefix) -> None:
        """Stores the prefix of an answered request."""
        with self._lock:
            self._known[message_id] = prefix
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def reason(self, previous: str | None, prefix: Prefix, read: int) -> CacheMissReason | None:
        """Compares a request with an earlier one of the same client.

        Args:
            previous: the id of the earlier answer; None for the first turn.
            prefix: the prefix of this request.
            read: tokens that this request read from the cache.

        Returns:
            A `cache_miss_reason`; None if the request only continues the earlier one.
        """
        if previous is None:
            return None
        with self._lock:
            before = self._known.get(previous)
        if before is None or before.client != prefix.client:
            return CacheMissReason(type="previous_message_not_found")
        missed = max(0, min(before.tokens, prefix.tokens) - read)
        for name in ("model", "tools", "system"):
            if getattr(before, name) != getattr(prefix, name):
                return CacheMissReason(type=f"{name}_changed", cache_missed_input_tokens=missed)
        if prefix.messages[: len(before.messages)] != before.messages:
            return CacheMissReason(type="messages_changed", cache_missed_input_tokens=missed)
        return None


def _digest(messages: Sequence[Message]) -> str:
    digest = hashlib.sha256()
    for turn in messages:
        parts = [turn.role, turn.fields, *(f"{block.module!r} {block.text}" for block in turn.blocks)]
        for part in parts:
            digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
