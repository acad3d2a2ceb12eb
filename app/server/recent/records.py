"""A bounded record of the latest prompts, in memory only."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.server.recent.why import Why
from engine.prompt.conversation.messages import Message

MOST_RECORDS = 1000
MOST_BYTES = 64_000_000
_OVERHEAD = 2000  # bytes of an empty record


@dataclass(frozen=True)
class Block:
    """A block of a prompt: a text or the tool calls of a turn.

    Attributes:
        label: its place, for people.
        role: the speaker.
        text: its text, without the chat template's.
        end: the position after its last token.
    """

    label: str
    role: str
    text: str
    end: int


@dataclass(eq=False)
class Record:
    """The prompt of one request.

    Attributes:
        client: a digest of the client's key.
        salt: the salt of its segments.
        model: the requested model name.
        fingerprint: the fingerprint of the model.
        token_ids: the tokens of the prompt.
        messages: its turns; empty for a text without turns.
        blocks: its blocks, in order.
        tools: the definitions of its tools, as JSON.
        names: the ids of the answer and of the request.
        previous: the id of the answer that the client wants it compared with.
        seconds: the longest time to live of its marks; 0 without marks.
        modular: whether modules or the engine decide what is read, not its beginning.
        strict: whether marked prefixes are removed after that time.
        read: tokens that were read from the cache.
        approximate: those of them that an earlier prompt computed behind other text.
        at: when its first token came, in seconds since 1970.
        number: its place among all records, from 1 on; 0 before it is one.
        why: why it read no more, once that was asked.
    """

    client: str
    salt: str
    model: str
    fingerprint: str
    token_ids: NDArray[np.int32]
    messages: tuple[Message, ...] = ()
    blocks: tuple[Block, ...] = ()
    tools: str = ""
    names: list[str] = field(default_factory=list)
    previous: str | None = None
    seconds: float = 0.0
    modular: bool = False
    strict: bool = False
    read: int = 0
    approximate: int = 0
    at: float = 0.0
    number: int = 0
    why: Why | None = None

    @property
    def nbytes(self) -> int:
        """The approximate size in memory."""
        return _OVERHEAD + self.token_ids.nbytes + len(self.tools) + sum(len(one.text) for one in self.blocks)

    @property
    def body(self) -> int:
        """The position after the last block, before the invitation to answer."""
        return self.blocks[-1].end if self.blocks else len(self.token_ids)


def blocks_of(messages: Sequence[Message], ends: Sequence[int]) -> tuple[Block, ...]:
    """Returns the blocks of a conversation with the positions after them."""
    found: list[tuple[str, str, str]] = []
    for number, message in enumerate(messages, 1):
        place = f"turn {number} ({message.role})"
        for part, block in enumerate(message.blocks, 1):
            label = place if len(message.blocks) == 1 else f"{place}, block {part}"
            found.append((label, message.role, block.text))
        if message.calls:
            found.append((f"{place}, tool calls", message.role, message.fields))
    return tuple(Block(*one, end) for one, end in zip(found, ends, strict=True))


class Records:
    """The latest prompts, at most `MOST_RECORDS` and `MOST_BYTES`. Thread-safe.

    Args:
        most: the maximum number; 0 records nothing.
    """

    def __init__(self, most: int = MOST_RECORDS) -> None:
        self._most, self._bytes, self._count = most, 0, 0
        self._records: deque[Record] = deque()
        self._lock = threading.Lock()

    def add(self, record: Record, read: int) -> None:
        """Adds the prompt of a request whose first token has come, and drops the oldest beyond the limits."""
        if not self._most:
            return
        record.read, record.at = read, time.time()
        with self._lock:
            self._count += 1
            record.number = self._count
            self._records.append(record)
            self._bytes += record.nbytes
            while len(self._records) > self._most or (self._bytes > MOST_BYTES and len(self._records) > 1):
                self._bytes -= self._records.popleft().nbytes

    def of(self, client: str) -> list[Record]:
        """Returns the records of a client, the latest first."""
        with self._lock:
            return [record for record in reversed(self._records) if record.client == client]

    def find(self, name: str, client: str) -> Record | None:
        """Returns the record of a client with this id, or None."""
        return next((record for record in self.of(client) if name in record.names), None)
