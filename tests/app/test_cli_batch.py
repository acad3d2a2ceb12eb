"""`pml run --batch`: rows, each with its own answer or fault, and an output that a later run goes on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("place")

CSV = """id,picks,plan/duration,text,_expected
a,tokyo,3 days,Where should I eat?,ramen
b,rome,"a week, two",What is there?,
"""

Batch = Callable[..., SimpleNamespace]


@pytest.fixture
def batch(run_pml: Callable[..., SimpleNamespace]) -> Batch:
    """Answers rows, each with two tokens and from segments only; `lines` are those of the output."""

    def call(rows: str | bytes, *options: str, name: str = "rows.csv") -> SimpleNamespace:
        Path(name).write_bytes(rows if isinstance(rows, bytes) else rows.encode("utf-8"))
        words = ("--schema", "trip.pml", "--max-new-tokens", "2", "--mode", "cached")
        result = run_pml("run", "--batch", name, *words, *options)
        output = Path(options[options.index("--output") + 1]) if "--output" in options else None
        text = output.read_text("utf-8") if output is not None and output.is_file() else result.out
        result.lines = [json.loads(line) for line in text.splitlines()] if result.status in (0, 3) else []
        return result

    return call


def ids(lines: list[dict[str, Any]]) -> list[Any]:
    return [line["id"] for line in lines]


def faults(lines: list[dict[str, Any]]) -> dict[Any, str]:
    return {line["id"]: line["error"]["message"] for line in lines if "error" in line}


def test_each_row_gets_the_answer_of_its_prompt(
    batch: Batch, run_pml: Callable[..., SimpleNamespace]
) -> None:
    result = batch(CSV)
    assert result.status == 0, result.err
    assert ids(result.lines) == ["a", "b"]
    assert "2 rows answered" in result.err
    words = ("--schema", "trip.pml", "--max-new-tokens", "2", "--mode", "cached", "--json")
    Path("prompt.pml").write_text(
        '<prompt schema="trip">\n <plan duration="3 days"> <tokyo/> </plan>\n Where should I eat?\n</prompt>',
        encoding="utf-8",
    )
    alone = json.loads(run_pml("run", "prompt.pml", *words).out)["cached"]
    mine = result.lines[0]["cached"]
    assert set(mine) == set(alone)
    assert (mine["token_ids"], mine["tokens"]["prompt"]) == (alone["token_ids"], alone["tokens"]["prompt"])
    assert result.lines[0]["cached"]["tokens"]["encoded"] > result.lines[1]["cached"]["tokens"]["encoded"] > 0


def test_json_rows_of_both_kinds_on_both_sides(batch: Batch) -> None:
    rows = [
        {"id": 7, "picks": ["tokyo"], "arguments": {"duration": "3 days"}, "text": "Where should I eat?"},
        {"prompt": '<prompt><plan duration="3 days"><tokyo/></plan> Where should I eat?</prompt>'},
        {"picks": "plan, rome", "arguments": {"plan": {"duration": 4}}, "_note": "a number"},
    ]
    result = batch("\n".join(map(json.dumps, rows)), "--mode", "both", name="rows.jsonl")
    assert result.status == 0, result.err
    assert ids(result.lines) == [7, 2, 3]
    first, second, _ = result.lines
    assert {"cached", "uncached", "ttft_speedup", "kl_first_token", "same_text"} <= set(first)
    assert first["uncached"]["tokens"] == second["uncached"]["tokens"]
    assert first["cached"]["text"] == second["cached"]["text"]
