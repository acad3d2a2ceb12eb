"""Results of a batch: verdicts, and the columns of a spreadsheet table.

The command line and the studio use the same names.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.rows.expectations import Expectation, Judged
from engine.rows.rows import Row

SIDES = ("cached", "uncached")
GUARDED = "Texts that a spreadsheet would run as formulas start with an apostrophe."


def verdicts(expect: Sequence[Expectation], judged: Mapping[str, Judged | None]) -> dict[str, Any]:
    """Returns `passed`, and `checks` with the reason for each failure, "" if it passed; {} without checks."""
    known = {side: verdict for side, verdict in judged.items() if verdict is not None}
    if not known:
        return {}
    return {
        "passed": {side: verdict.passed for side, verdict in known.items()},
        "checks": [
            {"expect": str(expectation), **{side: verdict.faults[at] for side, verdict in known.items()}}
            for at, expectation in enumerate(expect)
        ],
    }


def columns_of(row: Row, told: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of the table.

    Args:
        row: the row, for the columns of its inputs.
        told: its JSON line, for the columns of results; empty before its end.
        held: its `modules` and `settings` from `held_by`, with those of the batch.
    """
    columns: dict[str, Any] = {"id": str(row.id), "line": row.line, "picks": " ".join(row.picks)}
    columns |= arguments_of(row)
    columns |= {f"set {name}": str(value) for name, value in row.settings.items()}
    state = "failed" if "error" in told else "done" if told else "waiting"
    columns |= {"text": row.text or row.prompt or "", "state": state}
    columns["all modules"] = " ".join(held["modules"])
    columns["all settings"] = " ".join(f"{name}={spelled(value)}" for name, value in held["settings"].items())
    columns["error"] = told.get("error", {}).get("message", "")
    for side in SIDES:
        if side in told:
            columns |= _side(side, told)
    for name in ("first_token_agrees", "same_text"):
        if name in told:
            columns[name.replace("_", " ")] = "yes" if told[name] else "no"
    if told.get("kl_first_token") is not None:
        columns["kl first token"] = told["kl_first_token"]
    if "reuse" in told:
        columns["reuse"] = told["reuse"]["why"]
    return columns


def table_text(rows: Iterable[Mapping[str, Any]]) -> tuple[str, bool]:
    """Returns rows as CSV, and whether a text was escaped because a spreadsheet would run it as a formula."""
    listed = list(rows)
    columns = list(dict.fromkeys(name for row in listed for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\r\n", restval="")
    writer.writerow({name: safe_cell(name) for name in columns})
    guarded = False
    for row in listed:
        safe = {name: safe_cell(value) for name, value in row.items()}
        guarded |= any(isinstance(row[name], str) and row[name] != safe[name] for name in row)
        writer.writerow(safe)
    return f"\ufeff{out.getvalue()}", guarded  # the mark tells spreadsheets that this is UTF-8


def safe_cell(value: Any) -> Any:
    """Returns a value of a cell, with an apostrophe before a text that a spreadsheet would run as a formula.

    White space and invisible characters before a formula are ignored, and a full-width sign also begins one.
    The import of rows keeps apostrophes, so an exported =1 is not distinct from the text '=1 of an author.
    """
    if not isinstance(value, str):
        return value
    first = next((sign for sign in value if unicodedata.category(sign)[0] not in "ZCM"), "")
    formula = value.startswith(("\t", "\r")) or unicodedata.normalize("NFKC", first) in ("=", "+", "-", "@")
    return f"'{value}" if formula else value


def arguments_of(row: Row) -> dict[str, str]:
    """Returns the arguments of a row by `module/parameter`, or by the row's own keys."""
    arguments: dict[str, str] = {}
    for key, value in row.arguments.items():
        if isinstance(value, str):
            arguments[key] = value
        else:
            arguments |= {f"{key}/{name}": inner for name, inner in value.items()}
    return arguments


def spelled(value: Any) -> str:
    """Returns the value of a setting as text."""
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, (list, tuple, bool)) else str(value)


def _side(side: str, told: Mapping[str, Any]) -> dict[str, Any]:
    answer = told[side]
    tokens = answer["tokens"]
    columns = {
        f"{side} answer": answer["text"],
        f"{side} ttft ms": round(answer["ttft_ms"], 3),
        f"{side} tokens from cache": tokens.get("from_cache", 0),
        f"{side} tokens computed": tokens.get("computed", 0),
    }
    if side in told.get("passed", {}):
        columns[f"{side} passed"] = "yes" if told["passed"][side] else "no"
        failed = (f"{check['expect']}: {check[side]}" for check in told["checks"] if check[side])
        columns[f"{side} failed checks"] = "; ".join(failed)
    if side in told.get("grades", {}):
        grade = told["grades"][side]
        columns[f"{side} grade"] = "" if grade["score"] is None else grade["score"]
        columns[f"{side} judge"] = grade["reply"]
    if side in told.get("scores", {}):
        columns[f"{side} score"] = told["scores"][side]
    return columns
