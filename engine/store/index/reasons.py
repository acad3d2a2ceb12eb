"""Explains why a segment is missing, from its history and other segments of the same module."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from engine.base.tiers import Reason


@dataclass(frozen=True)
class Sought:
    """A missing segment, as it would be stored; token ids have 4 bytes each."""

    key: str
    token_ids: bytes
    schema: str
    path: str
    scope: str
    fingerprint: str
    dtype: str
    scheme: str


_DIFFERENCES = (
    ("fingerprint", Reason.MODEL),
    ("dtype", Reason.DTYPE),
    ("scheme", Reason.SCHEME),
    ("scope", Reason.SCOPE),
)
_TOKEN_BYTES = 4
_COLUMNS = ("token_ids", "fingerprint", "dtype", "scheme", "scope")


def reason(connection: sqlite3.Connection, sought: Sought, unwritten: Sequence[Sought] = ()) -> str:
    """Returns why a segment is missing; `unwritten` are segments with delayed writes."""
    if connection.execute("select 1 from segments where key = ?", [sought.key]).fetchone() is not None:
        return Reason.UNREADABLE
    removal = connection.execute(
        "select reason from evictions where key = ? order by id desc limit 1", [sought.key]
    ).fetchone()
    if removal is not None:
        return str(removal[0])
    others = connection.execute(
        f"select distinct {', '.join(_COLUMNS)} from labels l join segments s on s.key = l.key"
        " where l.schema = ? and l.path = ?",
        [sought.schema, sought.path],
    ).fetchall()
    alike = [other for other in unwritten if (other.schema, other.path) == (sought.schema, sought.path)]
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in others]
    return _difference(sought, rows + [asdict(other) for other in alike])


def _difference(sought: Sought, others: Sequence[dict[str, object]]) -> str:
    """The difference of a segment from all stored ones of its module."""
    if not others:
        return Reason.NEW
    alike = [other for other in others if _same_text(sought, other)]
    if not alike:
        same_model = any(other["fingerprint"] == sought.fingerprint for other in others)
        return Reason.TEXT if same_model else Reason.MODEL
    for name, words in _DIFFERENCES:
        alike = [other for other in alike if other[name] == getattr(sought, name)]
        if not alike:
            return words
    return Reason.SIGHT


def _same_text(sought: Sought, other: dict[str, object]) -> bool:
    """Whether both encode the same text.

    The scope scaffold cuts a module at parameters and chosen modules, so one may have a part of the other's
    tokens.
    """
    mine, theirs = sought.token_ids, other["token_ids"]
    if mine == theirs or not isinstance(theirs, bytes):
        return mine == theirs
    if "scaffold" not in (sought.scope, other["scope"]):
        return False
    less, more = sorted((mine, theirs), key=len)
    at = more.find(less)
    while at >= 0 and at % _TOKEN_BYTES:
        at = more.find(less, at + 1)
    return at >= 0
