"""Answers as files of promptfoo and of Langfuse."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from jinja2 import Environment

from app.studio.history.exchange import (
    Answered,
    answers_of,
    langfuse_dataset,
    langfuse_events,
    langfuse_traces,
    messages_of,
    promptfoo_config,
    promptfoo_results,
    promptfoo_test,
)
from engine.base.strict_json import read_json
from tests.app.studio.history.test_kept_runs import frame, record

TEMPLATE = "{{ env.HOME }} {% raw %} {{{% {# x #} file://secret"
SCHEMA = '<schema name="s"><system>Be brief.</system><module name="m">one two</module></schema>'
PROMPT = '<prompt schema="s"><m/><user>Go on.</user></prompt>'


def answer(text: str = "Yes.", **given: object) -> Answered:
    about = {"id": "a-cached", "name": "first", "model": "demo", "side": "cached"}
    turns = [{"role": "user", "content": TEMPLATE}]
    return Answered(**{**about, "messages": turns, "text": text, **given})  # type: ignore[arg-type]


def rendered(template: str) -> str:
    return Environment(autoescape=False).from_string(template).render()


@pytest.mark.parametrize("text", [TEMPLATE, "file://secret.py", "package:x", "{{{{", "{%%}", "a { b"])
def test_no_text_is_a_template_or_a_file_of_promptfoo(text: str) -> None:
    test = promptfoo_test(answer(text, messages=[{"role": "user", "content": text}], thumb="up"))
    turns = test["vars"]["messages"]
    assert rendered(rendered(turns)) == turns, "promptfoo renders a variable twice"
    assert read_json(turns) == [{"role": "user", "content": text}]
    (check,) = test["assert"]
    assert check["type"] == "equals"
    assert not check["value"].startswith(("file:", "package:"))
    assert rendered(check["value"]) == text


def test_runs_are_a_configuration_and_results_of_promptfoo() -> None:
    told = frame(settings={"max_new_tokens": 8, "temperature": 0.5, "scope": "anchored", "stop": []})
    answers = [
        *answers_of(record(schema=SCHEMA, prompt=PROMPT, name="first", frame=told)),
        answer(thumb="down"),
    ]
    config = promptfoo_config(answers, "mine", "http://127.0.0.1:9/v1")
    assert config["prompts"] == ["{{messages}}"]
    assert config["providers"][0] == {
        "id": "openai:chat:demo",
        "label": "demo, cached",
        "config": {
            "apiBaseUrl": "http://127.0.0.1:9/v1",
            "apiKeyRequired": False,
            "max_tokens": 8,
            "temperature": 0.5,
        },
    }
    assert [test["providers"] for test in config["tests"]] == [
        ["demo, cached"],
        ["demo, uncached"],
        ["demo, cached (2)"],
    ]
    results = promptfoo_results(answers, "mine")["results"]
    assert results["version"] == 3
    assert results["stats"] | {"tokenUsage": 0} == {
        "successes": 2,
        "failures": 1,
        "errors": 0,
        "tokenUsage": 0,
    }
    assert [(row["promptIdx"], row["testIdx"]) for row in results["results"]] == [(0, 0), (1, 0), (2, 1)]
    assert [row["success"] for row in results["results"]] == [True, True, False]
    again = promptfoo_results([answer(), answer(id="b", thumb="down")], "mine")["results"]["results"]
    assert [(row["promptIdx"], row["testIdx"]) for row in again] == [(0, 0), (0, 1)]
    assert [len(row["gradingResult"]["componentResults"]) for row in again] == [0, 1]
    assert results["results"][0]["response"]["output"] == "an answer"
    assert [prompt["provider"] for prompt in results["prompts"]] == [
        provider["label"] for provider in config["providers"]
    ]


def test_a_prompt_is_its_turns_and_one_that_does_not_fit_is_its_text() -> None:
    turns = [{"role": "system", "content": "Be brief."}]
    assert messages_of(SCHEMA, PROMPT)[0] == turns[0]
    assert messages_of(SCHEMA, PROMPT)[-1] == {"role": "user", "content": "Go on."}
    for schema, prompt in (("<schema", PROMPT), (SCHEMA, "<prompt><gone/></prompt>"), (SCHEMA, "<prompt")):
        assert messages_of(schema, prompt) == [{"role": "user", "content": prompt}]


def test_answers_are_dataset_items_and_traces_of_langfuse() -> None:
    good = answer(
        thumb="up",
        note="Short.",
        started="2026-03-01T10:00:00+01:00",
        ttft_ms=250.0,
        tokens_per_second=10.0,
        tokens={"prompt": 40, "from_cache": 30, "generated": 11},
        settings={"stop": ("x",), "seed": 1},
    )
    bad = answer("No.", id="b", thumb="down", note="It has no yes.")
    other = replace(bad, messages=[{"role": "user", "content": "Again?"}])
    first, second = map(json.loads, langfuse_dataset([bad, good, other], "mine").splitlines())
    assert (first["datasetName"], first["id"], first["expectedOutput"]) == ("mine", "a-cached", "Yes.")
    assert first["input"] == [{"role": "user", "content": TEMPLATE}]
    assert second["expectedOutput"] is None
    trace, generation, score = langfuse_events(good)
    assert [event["type"] for event in (trace, generation, score)] == [
        "trace-create",
        "generation-create",
        "score-create",
    ]
    body = generation["body"]
    assert body["startTime"] == "2026-03-01T09:00:00+00:00"
    assert body["completionStartTime"] == "2026-03-01T09:00:00.250000+00:00"
    assert body["endTime"] == "2026-03-01T09:00:01.250000+00:00"
    assert body["usageDetails"] == {"input": 10, "input_cached_tokens": 30, "output": 11}
    assert body["traceId"] == trace["body"]["id"] == score["body"]["traceId"]
    assert score["body"]["observationId"] == body["id"]
    assert (score["body"]["value"], score["body"]["dataType"], score["body"]["comment"]) == (
        1,
        "BOOLEAN",
        "Short.",
    )
    sent = json.loads(langfuse_traces([good, bad]))["batch"]
    assert len({event["id"] for event in sent}) == len(sent) == 6
    assert sent[-1]["body"] | {"value": 0, "comment": "It has no yes."} == sent[-1]["body"]
