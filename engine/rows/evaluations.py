"""Exports rows and their answers to tools for evaluation: promptfoo and Langfuse.

promptfoo reads a configuration (`promptfoo eval -c`) and results (`promptfoo import`). Langfuse reads dataset
items, each with the fields of its API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.exchange.base.errors import ExchangeError
from engine.exchange.to_messages import to_openai
from engine.pml import Schema, bind, has_errors, parse_prompt
from engine.rows.expectations import Combine, Expectation
from engine.rows.rows import Row

Tool = Literal["promptfoo", "langfuse"]
CONFIG, RESULTS, ITEMS = "promptfooconfig.json", "promptfoo-results.json", "langfuse-items.jsonl"
FILES: Final[Mapping[Tool, tuple[str, ...]]] = {"promptfoo": (CONFIG, RESULTS), "langfuse": (ITEMS,)}
"""The tools, and the files that each reads."""

_SIDES: Final = ("cached", "uncached")
_ADDRESS: Final = "http://127.0.0.1:8000/v1"  # the default of `pml serve`
_TEMPLATE: Final = re.compile(r"\{(?=[{%#])")  # promptfoo renders values, too
_PASSED, _FAILED, _ERROR = 0, 1, 2  # promptfoo's `failureReason`
_ASSERTIONS: Final = {
    "contains": "contains",
    "not contains": "not-contains",
    "contains in any case": "icontains",
    "starts with": "starts-with",
    "equals": "equals",
    "regex": "regex",
    "not regex": "not-regex",
}


@dataclass(frozen=True)
class Evaluated:
    """A row with its prompt and results.

    Attributes:
        row: the row.
        prompt: its document; "" if it has none.
        expect: all checks of its answer.
        told: its line of `pml run --batch`; empty before its end.
        settings: the settings in force.
    """

    row: Row
    prompt: str
    expect: tuple[Expectation, ...]
    told: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """A batch with its results.

    Attributes:
        name: its name.
        model: the model's name.
        started: its start as ISO 8601.
        schema: the schema of all rows.
        rows: the rows.
        combine: whether an answer must pass all checks or any of them.
    """

    name: str
    model: str
    started: str
    schema: Schema
    rows: Sequence[Evaluated]
    combine: Combine = "all"

    def files(self, tool: Tool) -> tuple[dict[str, str], list[str]]:
        """Returns the texts of a tool's files by name, and notes.

        Raises:
            ExchangeError: no row has a valid prompt.
        """
        found = [(row, told) for row in self.rows if (told := messages_of(self.schema, row.prompt))]
        if not found:
            raise ExchangeError("No row has a valid prompt, so there is nothing to export.")
        left_out = len(self.rows) - len(found)
        notes = [f"Rows without a valid prompt are left out: {left_out}."] if left_out else []
        if tool == "langfuse":
            lines = (json.dumps(self._item(*one), ensure_ascii=False) for one in found)
            return {ITEMS: "".join(f"{line}\n" for line in lines)}, notes
        if any(row.row.settings for row, _ in found):
            notes.append("Settings of single rows are only in the metadata of their tests.")
        if any(check.kind.endswith("regex") for row, _ in found for check in row.expect):
            notes.append("promptfoo reads regular expressions as JavaScript's.")
        config = self._config(found)
        results = self._results(config, [row for row, _ in found])
        texts = (json.dumps(part, ensure_ascii=False, indent=1) for part in (config, results))
        return {name: f"{text}\n" for name, text in zip(FILES[tool], texts, strict=True)}, notes

    def _config(self, found: Sequence[tuple[Evaluated, Any]]) -> dict[str, Any]:
        settings = found[0][0].settings
        sampling = {"max_tokens": settings["max_new_tokens"], "temperature": settings["temperature"]}
        options = {"apiBaseUrl": _ADDRESS, "apiKey": "none", **sampling}
        return {
            "description": self.name,
            "prompts": ["{{messages}}"],
            "providers": [{"id": f"openai:chat:{self.model}", "config": options}],
            "tests": [self._test(*one) for one in found],
        }

    def _test(self, row: Evaluated, messages: Any) -> dict[str, Any]:
        text = _TEMPLATE.sub(r"\\u007b", json.dumps(messages, ensure_ascii=False))
        test: dict[str, Any] = {
            "description": str(row.row.id),
            "vars": {"messages": text},
            "assert": [_assertion(check) for check in row.expect],
            "metadata": _about(row),
        }
        if self.combine == "any" and row.expect:
            test["threshold"] = 1 / len(row.expect)  # of the mean score of all assertions
        return test

    def _results(self, config: Mapping[str, Any], rows: Sequence[Evaluated]) -> dict[str, Any]:
        sides = [side for side in _SIDES if any(side in row.told for row in rows)] or ["cached"]
        results = [
            self._result(row, config["tests"][number], number, side, place)
            for number, row in enumerate(rows)
            if row.told
            for place, side in enumerate(sides)
        ]
        prompts = [
            {
                "raw": "{{messages}}",
                "label": side,
                "id": side,
                "provider": f"{self.model}, {side}",
                "metrics": _metrics([one for one in results if one["promptId"] == side]),
            }
            for side in sides
        ]
        content = {"prompts": prompts, "results": results, "stats": _stats(results)}
        return {
            "results": {"version": 3, "timestamp": self.started, **content},
            "config": config,
            "metadata": {"evaluationCreatedAt": self.started},
            "shareableUrl": None,
        }

    def _result(self, row: Evaluated, test: Any, number: int, side: str, place: int) -> dict[str, Any]:
        result: dict[str, Any] = {
            "promptIdx": place,
            "testIdx": number,
            "promptId": side,
            "testCase": test,
            "vars": test["vars"],
            "prompt": {"raw": test["vars"]["messages"], "label": side},
            "provider": {"id": f"{self.model}, {side}"},
            "namedScores": {},
        }
        if "error" in row.told:
            error = row.told["error"]["message"]
            return {**result, "success": False, "score": 0, "error": error, "failureReason": _ERROR}
        answer, grading = row.told[side], _grading(row, side)
        tokens = answer["tokens"]
        used = {"prompt": tokens.get("prompt", 0), "completion": tokens.get("generated", 0)}
        usage = {**used, "total": sum(used.values()), "cached": tokens.get("from_cache", 0)}
        return {
            **result,
            "response": {"output": answer["text"], "tokenUsage": usage},
            "success": grading["pass"],
            "score": grading["score"],
            "failureReason": _PASSED if grading["pass"] else _FAILED,
            "gradingResult": grading,
            "namedScores": _judged(row.told, side),
            "metadata": {"ttft_ms": answer["ttft_ms"]},
        }

    def _item(self, row: Evaluated, messages: Any) -> dict[str, Any]:
        """A dataset item for Langfuse; the expected output is the text of a check `equals`."""
        checks = [{"kind": check.kind, "value": check.value} for check in row.expect]
        wanted = next((check.value for check in row.expect if check.kind == "equals"), None)
        answers = {side: row.told[side]["text"] for side in _SIDES if side in row.told}
        known = {name: row.told[name] for name in ("passed", "scores", "grades", "error") if name in row.told}
        about = {**_about(row), "model": self.model, "checks": checks, "answers": answers, **known}
        return {
            "datasetName": self.name,
            "id": f"{self.name}/{row.row.id}",
            "input": {"messages": messages},
            "expectedOutput": wanted,
            "metadata": about,
        }


def messages_of(schema: Schema, source: str) -> list[dict[str, str]]:
    """Returns a prompt's messages in the form of OpenAI's API; none if it is invalid or empty."""
    read = parse_prompt(source)
    if not read.ok or read.tree is None:
        return []
    bound = bind(schema, read.tree)
    try:
        return [] if has_errors(bound.diagnostics) else to_openai(bound.parts)[0]["messages"]
    except ExchangeError:  # the prompt is empty
        return []


def _about(row: Evaluated) -> dict[str, Any]:
    given = row.row
    inputs = {"picks": list(given.picks), "arguments": dict(given.arguments)}
    return {"row": given.id, **inputs, "settings": dict(row.settings)}


def _assertion(check: Expectation) -> dict[str, Any]:
    if check.kind in _ASSERTIONS:
        return {"type": _ASSERTIONS[check.kind], "value": check.value}
    if check.kind == "json":
        return {"type": "is-json", "value": json.loads(check.value)}
    bound, _, unit = check.kind.partition(" ")
    if unit == "words":
        return {"type": "word-count", "value": {bound: int(check.value)}}
    compares = ">=" if bound == "min" else "<="
    return {"type": "javascript", "value": f"output.trim().length {compares} {int(check.value)}"}


def _judged(told: Mapping[str, Any], side: str) -> dict[str, float]:
    score = told.get("grades", {}).get(side, {}).get("score")
    return {} if score is None else {"judge": score}


def _grading(row: Evaluated, side: str) -> dict[str, Any]:
    """An answer's checks, and the user's score, which replaces the score of the checks."""
    told = row.told
    parts = [
        {
            "pass": not check[side],
            "score": int(not check[side]),
            "reason": check[side] or "The check passed.",
            "assertion": _assertion(wanted),
        }
        for check, wanted in zip(told.get("checks", ()), row.expect, strict=False)
    ]
    passed = told.get("passed", {}).get(side, True)
    score: float = int(passed)
    reason = next((part["reason"] for part in parts if not part["pass"]), "All checks passed.")
    if side in told.get("scores", {}):
        score, reason = told["scores"][side], "Scored by hand."
        passed = passed and score >= 0.5
        by_hand = {"type": "human"}
        parts.append({"pass": score >= 0.5, "score": score, "reason": reason, "assertion": by_hand})
    return {"pass": passed, "score": score, "reason": reason, "componentResults": parts}


def _metrics(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    stats = _stats(results)
    parts = [part for one in results for part in one.get("gradingResult", {}).get("componentResults", ())]
    return {
        "score": sum(one["score"] for one in results),
        "testPassCount": stats["successes"],
        "testFailCount": stats["failures"],
        "testErrorCount": stats["errors"],
        "assertPassCount": sum(part["pass"] for part in parts),
        "assertFailCount": sum(not part["pass"] for part in parts),
        "totalLatencyMs": 0,
        "tokenUsage": stats["tokenUsage"],
        "namedScores": {},
        "namedScoresCount": {},
        "cost": 0,
    }


def _stats(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    reasons = [one["failureReason"] for one in results]
    used = [one["response"]["tokenUsage"] for one in results if "response" in one]
    kinds = ("prompt", "completion", "total", "cached")
    return {
        "successes": reasons.count(_PASSED),
        "failures": reasons.count(_FAILED),
        "errors": reasons.count(_ERROR),
        "tokenUsage": {kind: sum(one[kind] for one in used) for kind in kinds},
    }
