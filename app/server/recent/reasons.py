"""Explains why tokens of a prompt were computed again: compares it with earlier prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from app.server.recent.records import Record
from app.server.recent.why import Cause, Why
from engine.prompt.conversation.messages import Message
from engine.prompt.trail import CHUNK

Spell = Callable[[Sequence[int]], str]
"""Returns the text of tokens."""

_BEFORE, _FROM = 6, 18  # tokens of a quotation before and from the first difference
_FEW = 16  # shared tokens that the chat template alone may cause

SUGGESTIONS: Final[dict[Cause, str]] = {
    "new": "",
    "cold": "",
    "expired": "Use a longer ttl, or start the server without --strict-ttl.",
    "evicted": "Raise the memory budget (--memory), or mark the prefix so that it goes to disk.",
    "changed": "Move the changed text behind the unchanged text, or use `pml serve --modules auto`.",
    "reordered": "Send the blocks in one order, or give them names (module).",
    "other_salt": "Send the same cache_salt.",
    "other_model": "Send these requests to one model.",
}
_TOOLS: Final = "Send the same tools in the same order; add tools with defer_loading."


@dataclass(frozen=True)
class Difference:
    """The difference of a prompt from an earlier one.

    Attributes:
        earlier: the earlier one.
        shared: tokens that both begin with.
        lost: later tokens of the prompt that the earlier one also has.
        block: the index of the block with the first difference.
        moved: whether the blocks there stand elsewhere in the other prompt.
    """

    earlier: Record
    shared: int
    lost: int
    block: int
    moved: bool


def explain(record: Record, earlier: Sequence[Record], spell: Spell) -> Why | None:
    """Explains the tokens that a prompt did not read.

    Args:
        record: the prompt.
        earlier: all prompts of the client, the latest first; later ones than `record` are ignored.
        spell: returns the text of tokens.

    Returns:
        The reason; None if modules decide what is read.
    """
    if record.modular:
        return None
    known = [one for one in earlier if one.number < record.number and not one.modular]
    named = [one for one in known if record.previous in one.names] if record.previous else []
    same = [one for one in known if _same_cache(one, record)]
    found = [difference(one, record) for one in named or same]
    nearest = max(found, key=lambda one: (one.shared, one.earlier.number), default=None)
    slack = CHUNK + len(record.token_ids) - record.body  # an incomplete chunk, and the invitation to answer
    if nearest is not None and nearest.shared - record.read > slack and _same_cache(nearest.earlier, record):
        return _removed(record, nearest)
    useful = max(found, key=lambda one: (one.lost, one.shared, one.earlier.number), default=None)
    unread = record.body - record.read + record.approximate
    if useful is not None and useful.lost >= _FEW and unread >= _FEW:
        return _changed(record, useful, spell)
    if nearest is not None and nearest.shared > _FEW:
        words = "All text that earlier requests begin with was read. The other tokens are new."
        return Why(reason="new", sentence=words, compared_with=_id(nearest.earlier))
    return _elsewhere(record, [one for one in known if not _same_cache(one, record)])


def changed_part(earlier: Record, record: Record) -> Literal["model", "tools", "system", "messages"] | None:
    """Returns the first part of a request that differs from an earlier one; None if it only continues it."""
    if earlier.model != record.model:
        return "model"
    if earlier.tools != record.tools:
        return "tools"
    one, other = (_turns(entry, system=True) for entry in (earlier, record))
    if one != other:
        return "system"
    one, other = (_turns(entry, system=False) for entry in (earlier, record))
    return None if other[: len(one)] == one else "messages"


def _turns(record: Record, *, system: bool) -> list[Message]:
    return [message for message in record.messages if (message.role == "system") is system]


def difference(earlier: Record, record: Record) -> Difference:
    """Compares a prompt with an earlier one."""
    shared = _shared(earlier.token_ids, record.token_ids)
    block = next((place for place, one in enumerate(record.blocks) if one.end > shared), len(record.blocks))
    if shared >= min(earlier.body, record.body):
        return Difference(earlier, shared, 0, block, moved=False)
    theirs = {one.text for one in earlier.blocks}
    after = [
        one.end - before.end
        for before, one in zip(record.blocks[block:], record.blocks[block + 1 :], strict=False)
        if one.text in theirs
    ]
    mine, other = _at(record, block), _at(earlier, block)
    moved = bool(mine) and bool(other) and mine != other and mine in theirs
    moved = moved and other in {one.text for one in record.blocks}
    lost = sum(after) + (_tail(earlier, record, block, shared) if not moved else len(_span(record, block)))
    return Difference(earlier, shared, lost, block, moved)


def shared_tokens(earlier: Record, record: Record) -> int:
    """Returns the number of tokens that two prompts begin with."""
    return _shared(earlier.token_ids, record.token_ids)


def _shared(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def _tail(earlier: Record, record: Record, block: int, shared: int) -> int:
    """The tokens after the difference with which this block ends in both prompts."""
    one, other = _span(earlier, block, shared), _span(record, block, shared)
    return _shared(one[::-1], other[::-1])


def _span(record: Record, block: int, start: int = 0) -> NDArray[np.int32]:
    """The tokens of a block from a position on; all of a prompt without blocks."""
    if not record.blocks:
        return record.token_ids[start:]
    if block >= len(record.blocks):
        return record.token_ids[:0]
    first = record.blocks[block - 1].end if block else 0
    return record.token_ids[max(first, start) : record.blocks[block].end]


def _at(record: Record, block: int) -> str:
    return record.blocks[block].text if block < len(record.blocks) else ""


def _same_cache(one: Record, other: Record) -> bool:
    return (one.salt, one.fingerprint) == (other.salt, other.fingerprint)


def _id(record: Record) -> str | None:
    return record.names[0] if record.names else None


def _removed(record: Record, found: Difference) -> Why:
    """The tokens were computed, and are in the cache no more."""
    before, count = found.earlier, found.shared - record.read
    age = record.at - before.at
    expired = before.strict and 0 < before.seconds < age
    cause: Cause = "expired" if expired else "evicted"
    what = "their time to live had ended" if expired else "they were evicted"
    words = f"{count:,} tokens were computed {age:,.0f} s before, but {what}."
    return Why(
        reason=cause,
        sentence=words,
        suggestion=SUGGESTIONS[cause],
        compared_with=_id(before),
        token=record.read,
        lost=count,
    )


def _changed(record: Record, found: Difference, spell: Spell) -> Why:
    """Text before unchanged text differs."""
    cause: Cause = "reordered" if found.moved else "changed"
    now, before = (quoted(one, found.shared, spell) for one in (record, found.earlier))
    tools = _in_tools(record, found, spell)
    place = "the tools" if tools else _label(record, found.block)
    at = f"from token {found.shared:,} on, in {place}"
    words = (
        f"The blocks have another order {at}."
        if found.moved
        else f"The text differs {at}: it is {now!r}, and was {before!r}."
    )
    count = max(0, found.lost - record.approximate)
    count = 0 if record.approximate and count < _FEW else count
    lost = f" {count:,} unchanged tokens after it were computed again." if count else ""
    if record.approximate:
        lost += f" {record.approximate:,} were read as an earlier request computed them."
    return Why(
        reason=cause,
        sentence=words + lost,
        suggestion="" if not count else _TOOLS if tools else SUGGESTIONS[cause],
        compared_with=_id(found.earlier),
        block=place,
        token=found.shared,
        before=before,
        now=now,
        lost=count,
    )


def _label(record: Record, block: int) -> str:
    if not record.blocks:
        return "the prompt"
    return record.blocks[block].label if block < len(record.blocks) else "the end"


def _in_tools(record: Record, found: Difference, spell: Spell) -> bool:
    """Whether the first difference is in the definitions of tools, which stand before the second block."""
    if found.block > 1 or record.tools == found.earlier.tools or not record.blocks:
        return False
    text = spell(record.token_ids[found.shared : found.shared + _FEW].tolist())
    return text not in _at(record, found.block)


def quoted(record: Record, token: int, spell: Spell) -> str:
    """Returns the text around a token, shortened."""
    ids = record.token_ids
    first, end = max(0, token - _BEFORE), min(len(ids), token + _FROM)
    text = spell(ids[first:end].tolist())
    return f"{'…' if first else ''}{text}{'…' if end < len(ids) else ''}"


def _elsewhere(record: Record, others: Sequence[Record]) -> Why:
    """No earlier prompt of the same cache has this text."""
    texts = {one.text for one in record.blocks}
    for one in others:
        if _shared(one.token_ids, record.token_ids) <= _FEW and texts.isdisjoint(b.text for b in one.blocks):
            continue
        other_model = one.fingerprint != record.fingerprint
        cause: Cause = "other_model" if other_model else "other_salt"
        what = "for another model" if other_model else "under another cache_salt"
        words = f"The same text was computed {what}."
        return Why(reason=cause, sentence=words, suggestion=SUGGESTIONS[cause], compared_with=_id(one))
    return Why(reason="cold", sentence="No recent request of this client has this text.")
