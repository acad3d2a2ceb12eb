"""Converts the answers of stored runs to files of promptfoo and of Langfuse.

promptfoo renders texts of its configuration as templates, so they are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.studio.history.ratings import Thumb
from app.studio.history.record import Record, in_words
from app.studio.history.sharing import for_others
from app.studio.runs.run_frame import SIDES, Side
from app.studio.web.digests import digest
from engine.base.errors import PromptCacheError
from engine.pml import parse_schema
from engine.rows import evaluations

SERVER: Final = "server at "
"""Before a base URL: the device of a run on another server."""
BASE_URL: Final = "http://127.0.0.1:8000/v1"
FORMS: Final[Mapping[str, str]] = {
    "promptfoo": "promptfooconfig.json",
    "promptfoo results": "promptfoo-results.json",
    "langfuse dataset": "langfuse-dataset.jsonl",
    "langfuse traces": "langfuse-traces.json",
}
"""The file name of each form."""
_TEMPLATE = re.compile(r"\{[{%#]|\A(?:file|package)(?=:)")
_SAMPLING: Final[Mapping[str, str]] = {
    "max_new_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop",
}


@dataclass(frozen=True)
class Answered:
    """One answer, with what produced it.

    Attributes:
        id: a name that is unique among all exported answers.
        name: a title for people.
        messages: the prompt as turns with `role` and `content`; see `messages_of`.
        text: the answer.
        model: the model's name.
        side: "cached" or "uncached".
        server: the base URL of another server that answered; "" for this studio.
        started: the start in ISO 8601, or "".
        settings: run settings by name.
        tokens: token counts by name; see `engine.base.events.Answer`.
        ttft_ms: the time to first token in milliseconds.
        tokens_per_second: the rate of the further tokens.
        thumb: the user's rating.
        note: the user's note on the answer.
    """

    id: str
    name: str
    messages: Sequence[Mapping[str, str]]
    text: str
    model: str
    side: Side
    server: str = ""
    started: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    ttft_ms: float | None = None
    tokens_per_second: float | None = None
    thumb: Thumb = ""
    note: str = ""

    @property
    def success(self) -> bool:
        """Whether the answer counts as passed: unless it is rated bad."""
        return self.thumb != "down"

    @property
    def generated(self) -> int:
        """The number of generated tokens; 0 if unknown."""
        return int(self.tokens.get("generated", 0))

    @property
    def whole_ms(self) -> float:
        """The time of the whole answer in milliseconds; 0 if unknown."""
        rest = max(0, self.generated - 1) / self.tokens_per_second if self.tokens_per_second else 0
        return (self.ttft_ms or 0) + 1000 * rest


def messages_of(schema: str, prompt: str) -> list[dict[str, str]]:
    """Returns a prompt as turns with `role` and `content`.

    Args:
        schema: the schema's text with the text of its files.
        prompt: the prompt's text; it is the only turn if it does not fit the schema.
    """
    read = parse_schema(schema)
    turns = evaluations.messages_of(read.tree, prompt) if read.ok and read.tree else []
    return turns or [{"role": "user", "content": prompt}]


def converted(form: str, records: Sequence[Record], base_url: str = BASE_URL) -> tuple[str, str, str]:
    """Returns a file of runs for another program: its name, its media type and its text.

    Args:
        form: one of `FORMS`.
        records: the runs.
        base_url: the base URL of the server that promptfoo asks, ending in /v1.

    Raises:
        PromptCacheError: none of the runs has an answer.
    """
    answers = [answer for record in records for answer in answers_of(record)]
    if not answers:
        raise PromptCacheError("None of these runs has an answer. Choose others.")
    schemas = dict.fromkeys(record.told["schema"] or "Untitled" for record in records)
    name = f"Prompt Cache Studio: {', '.join(schemas)}"
    if form == "langfuse dataset":
        text = langfuse_dataset(answers, name)
    elif form == "langfuse traces":
        text = langfuse_traces(answers)
    else:
        write = promptfoo_config if form == "promptfoo" else promptfoo_results
        text = json.dumps(write(answers, name, base_url), indent=1, ensure_ascii=False)
    return FORMS[form], "application/jsonl" if FORMS[form].endswith("l") else "application/json", text


def answers_of(record: Record) -> list[Answered]:
    """Returns the answers of a stored run, one per side."""
    record = for_others(record)
    frame, messages = record.told, messages_of(record.whole, record.prompt)
    name = record.name or f"{frame['schema'] or 'Untitled'}, {in_words(record.prompt)}"
    return [
        Answered(
            id=f"{record.id}-{side}",
            name=name,
            messages=messages,
            text=frame["sides"][side]["text"],
            model=frame["model"]["name"],
            side=side,
            server=frame["model"]["device"].partition(SERVER)[2],
            started=frame["started"],
            settings=frame["settings"],
            tokens=frame["sides"][side]["tokens"],
            ttft_ms=frame["sides"][side]["ttft_ms"],
            tokens_per_second=frame["sides"][side]["tokens_per_second"],
            thumb=record.ratings[side]["thumb"],
            note=record.ratings[side]["note"] or record.note,
        )
        for side in SIDES
        if frame["sides"][side]["text"]
    ]


# promptfoo


def promptfoo_config(answers: Sequence[Answered], name: str, base_url: str = BASE_URL) -> dict[str, Any]:
    """Returns a configuration for `promptfoo eval`, with one test per answer.

    Args:
        answers: the answers.
        name: a description of the evaluation.
        base_url: the base URL of the server that promptfoo asks, ending in /v1.
    """
    providers: dict[str, dict[str, Any]] = {}
    tests = []
    for answer in answers:
        provider = promptfoo_provider(answer, base_url)
        label, number = provider["label"], 1
        while providers.setdefault(label, {**provider, "label": label})["config"] != provider["config"]:
            number += 1
            label = f"{provider['label']} ({number})"
        tests.append({**promptfoo_test(answer), "providers": [label]})
    return {
        "description": name,
        "prompts": ["{{messages}}"],
        "providers": list(providers.values()),
        "tests": tests,
    }


def promptfoo_provider(answer: Answered, base_url: str = BASE_URL) -> dict[str, Any]:
    """Returns the provider that repeats an answer, a server with the API of OpenAI."""
    config: dict[str, Any] = {"apiBaseUrl": answer.server or base_url, "apiKeyRequired": False}
    config |= {
        theirs: answer.settings[ours]
        for ours, theirs in _SAMPLING.items()
        if answer.settings.get(ours) not in (None, (), [])
    }
    return {"id": f"openai:chat:{answer.model}", "label": f"{answer.model}, {answer.side}", "config": config}


def promptfoo_test(answer: Answered) -> dict[str, Any]:
    """Returns an answer as a promptfoo test.

    An answer rated good must be repeated, and one rated bad must not.
    """
    asserts = []
    if answer.thumb:
        kind = "equals" if answer.thumb == "up" else "not-equals"
        asserts = [{"type": kind, "value": _plain(answer.text)}]
    return {
        "description": answer.name,
        "vars": {"messages": _messages(answer.messages)},
        **({"assert": asserts} if asserts else {}),
        "metadata": _facts(answer),
    }


def promptfoo_results(answers: Sequence[Answered], name: str, base_url: str = BASE_URL) -> dict[str, Any]:
    """Returns answers as the results that `promptfoo import` reads, in version 3.

    Answers to the same prompt are in one row, in the columns of their providers.
    """
    config = promptfoo_config(answers, name, base_url)
    tested = list(zip(answers, config["tests"], strict=True))
    labels = [provider["label"] for provider in config["providers"]]
    prompts = [
        {
            "raw": "{{messages}}",
            "label": "{{messages}}",
            "provider": label,
            "metrics": _metrics([answer for answer, test in tested if test["providers"] == [label]]),
        }
        for label in labels
    ]
    moment = _moment(min((answer.started for answer in answers if answer.started), default=""))
    rows: list[tuple[str, set[int]]] = []
    results = []
    for answer, test in tested:
        asked, column = test["vars"]["messages"], labels.index(test["providers"][0])
        free = (number for number, (one, used) in enumerate(rows) if one == asked and column not in used)
        if (number := next(free, -1)) < 0:
            number = len(rows)
            rows.append((asked, set()))
        rows[number][1].add(column)
        results.append(_promptfoo_result(answer, test, number, column))
    passed = sum(answer.success for answer in answers)
    stats = {
        "successes": passed,
        "failures": len(answers) - passed,
        "errors": 0,
        "tokenUsage": _usage(answers),
    }
    return {
        "evalId": f"eval-prompt-cache-{digest(' '.join(answer.id for answer in answers))}",
        "results": {
            "version": 3,
            "timestamp": moment.isoformat(),
            "prompts": prompts,
            "results": results,
            "stats": stats,
        },
        "config": config,
        "shareableUrl": None,
        "metadata": {"evaluationCreatedAt": moment.isoformat(), "author": None},
    }


def _promptfoo_result(answer: Answered, test: dict[str, Any], number: int, column: int) -> dict[str, Any]:
    score = float(answer.success)
    verdict = {"pass": answer.success, "score": score, "comment": answer.note}
    reason = {"": "Not rated", "up": "Rated good", "down": "Rated bad"}[answer.thumb]
    human = {**verdict, "reason": reason, "assertion": {"type": "human"}}
    return {
        "promptIdx": column,
        "testIdx": number,
        "testCase": test,
        "promptId": answer.id,
        "provider": {"id": f"openai:chat:{answer.model}", "label": test["providers"][0]},
        "prompt": {"raw": _messages(answer.messages), "label": "{{messages}}"},
        "vars": test["vars"],
        "response": {"output": answer.text, "tokenUsage": _usage([answer]), "cached": False},
        "failureReason": int(not answer.success),
        "success": answer.success,
        "score": score,
        "latencyMs": round(answer.whole_ms),
        "gradingResult": {**verdict, "reason": reason, "componentResults": [human] if answer.thumb else []},
        "namedScores": {"rating": float(answer.thumb == "up")} if answer.thumb else {},
        "cost": 0,
        "metadata": _facts(answer),
    }


def _metrics(answers: Sequence[Answered]) -> dict[str, Any]:
    passed, rated = sum(answer.success for answer in answers), [answer for answer in answers if answer.thumb]
    return {
        "score": passed,
        "testPassCount": passed,
        "testFailCount": len(answers) - passed,
        "testErrorCount": 0,
        "assertPassCount": sum(answer.success for answer in rated),
        "assertFailCount": sum(not answer.success for answer in rated),
        "totalLatencyMs": round(sum(answer.whole_ms for answer in answers)),
        "tokenUsage": _usage(answers),
        "namedScores": {},
        "namedScoresCount": {},
        "cost": 0,
    }


def _usage(answers: Iterable[Answered]) -> dict[str, int]:
    prompt = generated = cached = 0
    for answer in answers:
        prompt += answer.tokens.get("prompt", 0)
        cached += answer.tokens.get("from_cache", 0)
        generated += answer.generated
    return {"total": prompt + generated, "prompt": prompt, "completion": generated, "cached": cached}


def _messages(messages: Sequence[Mapping[str, str]]) -> str:
    """Returns turns as JSON that no template engine reads as a template."""
    text = json.dumps([dict(message) for message in messages], ensure_ascii=False)
    return re.sub(r"\{(?=[{%#])", r"\\u007b", text)


def _plain(text: str) -> str:
    """Returns a template of Nunjucks that renders as this text."""
    return _TEMPLATE.sub(lambda found: f'{{{{ "{found[0]}" }}}}', text)


# Langfuse


def langfuse_item(answer: Answered, dataset: str) -> dict[str, Any]:
    """Returns an answer as the body of `POST /api/public/dataset-items`.

    Only an answer that is rated good is the expected output.
    """
    return {
        "datasetName": dataset,
        "id": answer.id,
        "input": [dict(message) for message in answer.messages],
        "expectedOutput": answer.text if answer.thumb == "up" else None,
        "metadata": _facts(answer),
        "sourceTraceId": answer.id,
    }


def langfuse_events(answer: Answered) -> list[dict[str, Any]]:
    """Returns an answer as events for `POST /api/public/ingestion`: a trace, a generation, its rating."""
    begun = _moment(answer.started)
    first = begun + timedelta(milliseconds=answer.ttft_ms or 0)
    ended = begun + timedelta(milliseconds=answer.whole_ms)
    turns = [dict(message) for message in answer.messages]
    trace: dict[str, Any] = {
        "id": answer.id,
        "timestamp": begun.isoformat(),
        "name": answer.name[:1000],
        "input": turns,
        "output": answer.text,
        "metadata": _facts(answer),
        "tags": ["prompt-cache-studio", answer.side],
    }
    usage = _usage([answer])
    generation: dict[str, Any] = {
        "id": f"{answer.id}-answer",
        "traceId": answer.id,
        "name": answer.side,
        "startTime": begun.isoformat(),
        "completionStartTime": first.isoformat() if answer.ttft_ms is not None else None,
        "endTime": ended.isoformat(),
        "model": answer.model,
        "modelParameters": {
            name: list(value) if isinstance(value, (list, tuple)) else value
            for name, value in answer.settings.items()
        },
        "input": turns,
        "output": answer.text,
        "usageDetails": {
            "input": max(0, usage["prompt"] - usage["cached"]),
            "input_cached_tokens": usage["cached"],
            "output": usage["completion"],
        },
    }
    events = [("trace-create", trace), ("generation-create", generation)]
    if answer.thumb:
        score: dict[str, Any] = {
            "id": f"{answer.id}-rating",
            "traceId": answer.id,
            "observationId": generation["id"],
            "name": "rating",
            "value": int(answer.thumb == "up"),
            "dataType": "BOOLEAN",
            "comment": answer.note or None,
        }
        events.append(("score-create", score))
    return [
        {"id": f"{body['id']}-{kind}", "type": kind, "timestamp": begun.isoformat(), "body": body}
        for kind, body in events
    ]


def langfuse_dataset(answers: Iterable[Answered], dataset: str) -> str:
    """Returns dataset items as JSON Lines, one request body per line.

    Each prompt is one item, with its first answer, or the first that is rated good.
    """
    chosen: dict[str, Answered] = {}
    for answer in answers:
        known = chosen.setdefault(_messages(answer.messages), answer)
        if answer.thumb == "up" and known.thumb != "up":
            chosen[_messages(answer.messages)] = answer
    return "".join(
        f"{json.dumps(langfuse_item(answer, dataset), ensure_ascii=False)}\n" for answer in chosen.values()
    )


def langfuse_traces(answers: Iterable[Answered]) -> str:
    """Returns a request body for `POST /api/public/ingestion`, as JSON."""
    batch = [event for answer in answers for event in langfuse_events(answer)]
    return json.dumps({"batch": batch}, indent=1, ensure_ascii=False)


def _facts(answer: Answered) -> dict[str, Any]:
    """The facts of an answer that both formats have no field for."""
    facts = {
        "id": answer.id,
        "model": answer.model,
        "side": answer.side,
        "started": answer.started,
        "ttft_ms": answer.ttft_ms,
        "tokens_per_second": answer.tokens_per_second,
        "tokens_from_cache": answer.tokens.get("from_cache"),
        "rating": answer.thumb,
        "note": answer.note,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _moment(started: str) -> datetime:
    """Returns a start in UTC; the start of 1970 if it is unknown, so that exports are reproducible."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return moment.astimezone(UTC)
