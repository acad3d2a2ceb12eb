"""What the answers of a batch come to: verdicts, and the columns of a table for a spreadsheet.

The command line and the studio tell the same of a row, under the same names.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.rows.expectations import Expectation, Judged
from engine.rows.rows import Row

SIDES = ("cached", "uncached")
GUARDED = "A text that a spreadsheet would compute as a formula has an apostrophe before it."
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def verdicts(expect: Sequence[Expectation], judged: Mapping[str, Judged | None]) -> dict[str, Any]:
    """Returns `passed`, and `checks` with why each is not met, "" where it is; {} where nothing was.

    Args:
        expect: all that was expected of each answer.
        judged: what came of that, by side.
    """
    known = {side: one for side, one in judged.items() if one is not None}
    if not known:
        return {}
    return {
        "passed": {side: one.passed for side, one in known.items()},
        "checks": [
            {"expect": str(one), **{side: found.faults[at] for side, found in known.items()}}
            for at, one in enumerate(expect)
        ],
    }


def columns_of(row: Row, told: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table: what it asks, then what came of it.

    Args:
        row: the row as it was read.
        told: its line of JSON; nothing where it has not ended.
    """
    found: dict[str, Any] = {"id": str(row.id), "line": row.line, "picks": " ".join(row.picks)}
    found |= arguments_of(row)
    found |= {f"set {name}": str(value) for name, value in row.settings.items()}
    state = "failed" if "error" in told else "done" if told else "waiting"
    found |= {"text": row.text or row.prompt or "", "state": state}
    found["error"] = told.get("error", {}).get("message", "")
    for side in SIDES:
        if side in told:
            found |= _side(side, told)
    for name in ("first_token_agrees", "same_text"):
        if name in told:
            found[name.replace("_", " ")] = "yes" if told[name] else "no"
    if told.get("kl_first_token") is not None:
        found["kl first token"] = told["kl_first_token"]
    return found


def table_text(rows: Iterable[Mapping[str, Any]]) -> tuple[str, bool]:
    """Rows as CSV, and whether a text was kept from acting as a formula, as no text of a model can.

    Args:
        rows: as `columns_of` gives them; the columns are those of all of them.
    """
    kept = list(rows)
    columns = list(dict.fromkeys(name for row in kept for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\r\n", restval="")
    writer.writerow({name: _safe(name) for name in columns})
    guarded = False
    for row in kept:
        safe = {name: _safe(value) for name, value in row.items()}
        guarded |= any(isinstance(row[name], str) and row[name] != safe[name] for name in row)
        writer.writerow(safe)
    return f"\ufeff{out.getvalue()}", guarded  # by the mark a spreadsheet knows that it is UTF-8


def arguments_of(row: Row) -> dict[str, str]:
    """The arguments of a row by `module/parameter`, or however the row writes them."""
    found: dict[str, str] = {}
    for key, value in row.arguments.items():
        if isinstance(value, str):
            found[key] = value
        else:
            found |= {f"{key}/{name}": inner for name, inner in value.items()}
    return found


def _side(side: str, told: Mapping[str, Any]) -> dict[str, Any]:
    answer = told[side]
    tokens = answer["tokens"]
    found = {
        f"{side} answer": answer["text"],
        f"{side} ttft ms": round(answer["ttft_ms"], 3),
        f"{side} tokens from cache": tokens.get("from_cache", 0),
        f"{side} tokens computed": tokens.get("computed", 0),
    }
    if side in told.get("passed", {}):
        found[f"{side} passed"] = "yes" if told["passed"][side] else "no"
        failed = (f"{one['expect']}: {one[side]}" for one in told["checks"] if one[side])
        found[f"{side} failed checks"] = "; ".join(failed)
    return found


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
