"""Why a segment is not there: what the index knows of it, or of others that were made of the same text."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from engine.base.tiers import Reason


@dataclass(frozen=True)
class Sought:
    """A segment that was not found, as it would be stored.

    Attributes:
        key: the segment's name.
        token_ids: its tokens, 4 bytes each.
        schema: name of the schema it belongs to.
        path: path of the module.
        scope: the scope under which it is encoded.
        fingerprint: fingerprint of the model.
        dtype: number format of keys and values, a name of torch.
        scheme: how keys and values are stored.
    """

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
    """Says why a segment is not there, knowing of others that are about to be."""
    if connection.execute("select 1 from segments where key = ?", [sought.key]).fetchone() is not None:
        return Reason.UNREADABLE
    gone = connection.execute(
        "select reason from evictions where key = ? order by id desc limit 1", [sought.key]
    ).fetchone()
    if gone is not None:
        return str(gone[0])
    others = connection.execute(
        f"select distinct {', '.join(_COLUMNS)} from labels l join segments s on s.key = l.key"
        " where l.schema = ? and l.path = ?",
        [sought.schema, sought.path],
    ).fetchall()
    alike = [one for one in unwritten if (one.schema, one.path) == (sought.schema, sought.path)]
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in others]
    return _difference(sought, rows + [asdict(one) for one in alike])


def _difference(sought: Sought, others: Sequence[dict[str, object]]) -> str:
    """In what a segment differs from all those of its module that are there."""
    if not others:
        return Reason.NEW
    alike = [one for one in others if _same_text(sought, one)]
    if not alike:
        same_model = any(one["fingerprint"] == sought.fingerprint for one in others)
        return Reason.TEXT if same_model else Reason.MODEL
    for name, words in _DIFFERENCES:
        alike = [one for one in alike if one[name] == getattr(sought, name)]
        if not alike:
            return words
    return Reason.SIGHT


def _same_text(sought: Sought, other: dict[str, object]) -> bool:
    """Whether both were made of one text.

    Under the scope scaffold a module is cut where a parameter or a chosen module stands, so one has a part of
    the tokens of the other.
    """
    one, another = sought.token_ids, other["token_ids"]
    if one == another or not isinstance(another, bytes):
        return one == another
    if "scaffold" not in (sought.scope, other["scope"]):
        return False
    less, more = sorted((one, another), key=len)
    at = more.find(less)
    while at >= 0 and at % _TOKEN_BYTES:
        at = more.find(less, at + 1)
    return at >= 0
