"""The manifest of an export: one JSON line per segment.

A line may come from anyone, so every field is checked before any is used. The export applies the same checks,
so its output can be read.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, NoReturn

from engine.base.choices import SCOPES
from engine.base.errors import StoreError
from engine.files.text_files import MAX_BYTES
from engine.store.blobs.codec import SCHEMES, Scheme, packed_bytes
from engine.store.blobs.contents import MOST_HEADER

NAME = "manifest.jsonl"
FORMAT = 2
MOST_BYTES = 64 << 20  # of all lines together
MOST_LINE = 12 << 20  # of one line, enough for 1.5 million tokens
_MOST_VALUES = 100_000  # in one line: each short list takes a hundred bytes of memory
_MOST_TEXT = 1000  # characters
_MOST_NAME = MAX_BYTES  # characters: only the size of its document limits a name or path
_MOST_SIDE = 1 << 31  # of one dimension
_MOST_TIME = 1e11  # seconds since 1970
_MOST_SECONDS = 1e7  # to compute a segment
KEY = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{32}")
_HEX = re.compile(r"(?:[0-9a-f]{8})+")
DTYPES = ("float32", "bfloat16", "float16")
Packed = bytes


@dataclass(frozen=True, slots=True)
class Row:
    """One segment of an export.

    `digest` is the xxh3-128 of its file, and `token_ids` has 4 bytes each. `shape` is (layers, kv_heads,
    tokens, head_dim). `created` is in seconds since 1970, `seconds` the time to compute it, and `labels`
    (schema, path) of each module.
    """

    key: str
    bytes: int
    digest: str
    token_ids: Packed
    dtype: str
    scheme: Scheme
    shape: tuple[int, ...]
    fingerprint: str
    model: str
    scope: str
    created: float
    seconds: float
    labels: tuple[tuple[str, str], ...]

    @property
    def file(self) -> str:
        """The name of its file in an export, from the key alone."""
        return f"{self.key}.safetensors"

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.token_ids) // 4

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, token ids in hexadecimal."""
        return {**asdict(self), "token_ids": self.token_ids.hex()}


_FIELDS = frozenset(Row.__dataclass_fields__)


def row_of(given: Any) -> Row:
    """Parses a row from a JSON object.

    Raises:
        ValueError: a field is missing, unknown or invalid.
    """
    _require(isinstance(given, dict) and set(given) == _FIELDS, "fields", given, ", ".join(sorted(_FIELDS)))
    texts = {name: _text(given, name) for name in ("fingerprint", "model")}
    shape, tokens = _shape(given["shape"]), _token_ids(given["token_ids"])
    _require(len(tokens) == 4 * shape[2], "token_ids", f"{len(tokens) // 4} tokens", f"{shape[2]} tokens")
    row = Row(
        key=_matching(given, "key", KEY, "40 hexadecimal digits"),
        bytes=_whole(given["bytes"], "bytes", 1 << 62),
        digest=_matching(given, "digest", _DIGEST, "32 hexadecimal digits"),
        token_ids=tokens,
        dtype=_one_of(given, "dtype", DTYPES),
        scheme=_one_of(given, "scheme", SCHEMES),
        shape=shape,
        scope=_one_of(given, "scope", SCOPES),
        created=_number(given["created"], "created", _MOST_TIME),
        seconds=_number(given["seconds"], "seconds", _MOST_SECONDS),
        labels=_labels(given["labels"]),
        **texts,
    )
    data = packed_bytes(row.scheme, row.shape, row.dtype)
    fits = data < row.bytes <= data + 8 + MOST_HEADER
    _require(fits, "bytes", row.bytes, f"a little over {data}, which its shape, dtype and scheme take")
    return row


def lines(rows: Sequence[Row]) -> Iterator[bytes]:
    """Yields the lines of a manifest.

    Raises:
        StoreError: it exceeds the limit of `read`.
    """
    total = 0
    head: dict[str, Any] = {"format": FORMAT, "segments": len(rows)}
    for item in (head, *(row.to_json() for row in rows)):
        written = line(item)
        total += len(written)
        if total > MOST_BYTES:
            raise StoreError(
                f"the export is too large for one file: its manifest would exceed {MOST_BYTES:,} "
                "bytes. Export one schema at a time with --schema."
            )
        yield written


def line(given: dict[str, Any]) -> bytes:
    """Returns one line.

    Raises:
        ValueError: it exceeds the limit of `read`.
    """
    text = json.dumps(given).encode() + b"\n"
    if len(text) > MOST_LINE:
        raise ValueError(f"its line of {len(text):,} bytes is longer than {MOST_LINE:,}")
    return text


def read(file: BinaryIO, size: int) -> list[Row]:
    """Reads a manifest of `size` bytes, line by line.

    Raises:
        StoreError: its version or a line is invalid; the message names the line.
    """
    if size > MOST_BYTES:
        raise StoreError(f"its manifest has {size:,} bytes; at most {MOST_BYTES:,} are read.")
    left, number, rows, keys = size, 0, [], set[str]()
    promised = 0
    while left:
        number += 1
        text = file.readline(min(left, MOST_LINE + 1))
        left -= len(text)
        try:
            if not text or len(text) > MOST_LINE:
                raise ValueError("it is cut short" if not text else f"it is longer than {MOST_LINE:,} bytes")
            parsed = _parsed(text)
            if number == 1:
                promised = _promised(parsed)
                continue
            row = row_of(parsed)
            _require(row.key not in keys, "key", row.key, "unique")
        except ValueError as error:
            raise StoreError(f"line {number} of its manifest cannot be used: {error}.") from error
        keys.add(row.key)
        rows.append(row)
    if len(rows) != promised or not number:
        raise StoreError(f"its manifest lists {len(rows)} segments and promises {promised}.")
    return rows


def _promised(head: Any) -> int:
    version = head.get("format") if isinstance(head, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise StoreError("it is of a newer version of pml cache export; upgrade to read it.")
    _require(version == FORMAT and version is not True, "format", version, f"{FORMAT}; export it again")
    return _whole(head.get("segments"), "segments", MOST_BYTES)


def _parsed(line: bytes) -> Any:
    if sum(line.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        raise ValueError(f"it has more than {_MOST_VALUES:,} values")
    try:
        return json.loads(line, parse_constant=_no_number, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        _require(name not in members, "fields", name, "named once")
        members[name] = value
    return members


def _text(given: dict[str, Any], name: str, most: int = _MOST_TEXT) -> str:
    value = given[name]
    fits = isinstance(value, str) and len(value) <= most
    _require(fits, name, value, f"a text of at most {most:,} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        _require(False, name, value, "a text of whole characters")
    return str(value)


def _matching(given: dict[str, Any], name: str, pattern: re.Pattern[str], rule: str) -> str:
    value = given[name]
    _require(isinstance(value, str) and pattern.fullmatch(value) is not None, name, value, rule)
    return str(value)


def _one_of(given: dict[str, Any], name: str, allowed: Collection[Any]) -> Any:
    value = given[name]
    _require(isinstance(value, str) and value in allowed, name, value, f"one of {', '.join(allowed)}")
    return value


def _whole(value: Any, name: str, most: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    _require(whole and 0 <= value <= most, name, value, f"a whole number from 0 to {most}")
    return int(value)


def _number(value: Any, name: str, most: float) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = number and 0 <= value <= most and math.isfinite(value)
    _require(fits, name, value, f"a number from 0 to {most:g}")
    return float(value)


def _shape(value: Any) -> tuple[int, ...]:
    rule = "four whole numbers above 0"
    _require(isinstance(value, list | tuple) and len(value) == 4, "shape", value, rule)
    sides = tuple(_whole(side, "shape", _MOST_SIDE) for side in value)
    _require(all(sides) and math.prod(sides) < 1 << 50, "shape", value, rule)
    return sides


def _token_ids(value: Any) -> bytes:
    _require(
        isinstance(value, str) and _HEX.fullmatch(value) is not None, "token_ids", value, "8 digits each"
    )
    ids = array("i", bytes.fromhex(value))
    _require(min(ids) >= 0, "token_ids", value, "numbers from 0 on")
    return ids.tobytes()


def _labels(value: Any) -> tuple[tuple[str, str], ...]:
    rule = "pairs of schema and path"
    _require(isinstance(value, list | tuple) and len(value) <= _MOST_VALUES // 4, "labels", value, rule)
    labels = []
    for pair in value:
        _require(isinstance(pair, list | tuple) and len(pair) == 2, "labels", pair, rule)
        both = {"schema": pair[0], "path": pair[1]}
        labels.append((_text(both, "schema", _MOST_NAME), _text(both, "path", _MOST_NAME)))
    return tuple(labels)


def _require(fits: bool, name: str, value: object, rule: str) -> None:
    if not fits:
        shown = repr(value)
        raise ValueError(f"{name} is {shown if len(shown) <= 80 else shown[:77] + '...'}; it must be {rule}")
