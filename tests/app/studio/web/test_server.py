"""What the page gets from the server over HTTP: an answer, or a sentence, whatever the documents say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.app.studio.studio_server import Served

DEPTH = 255


def nested_schema(depth: int) -> str:
    opened = "".join(f'<module name="m{level}">text {level} ' for level in range(depth))
    return f'<schema name="deep">{opened}{"</module>" * depth}</schema>'


def test_a_schema_nested_to_the_limit_is_answered(served: Served) -> None:
    schema = nested_schema(DEPTH)
    path = "/".join(f"m{level}" for level in range(DEPTH))
    texts = {"schema": schema, "prompt": '<prompt schema="deep"></prompt>'}
    checked = served.ask("check", texts)
    assert checked["schema"]["ok"]
    assert [row["depth"] for row in checked["basis"]["tree"]] == list(range(DEPTH))
    edited = served.ask("edit_prompt", {**texts, "edit": {"path": path, "on": True}})["prompt"]
    assert served.ask("check", {"schema": schema, "prompt": edited})["picks"]["paths"][-1] == path
    measured = served.ask("measure", {"schema": schema, "prompt": edited})
    assert measured["strip"]["total"] > DEPTH
    assert served.ask("format_document", {"text": schema})["text"].count("<module") == DEPTH
    assert "error" not in served.ask("export_as", {"schema": schema, "prompt": edited, "form": "openai"})


def test_a_schema_nested_deeper_is_a_diagnostic(served: Served) -> None:
    checked = served.ask("check", {"schema": nested_schema(DEPTH + 300), "prompt": ""})
    assert "E117" in [found["code"] for found in checked["schema"]["diagnostics"]]


def test_a_prompt_that_cannot_be_edited_is_a_sentence(served: Served) -> None:
    schema = '<schema name="s"><module name="a">text</module></schema>'
    answer = served.ask(
        "edit_prompt", {"schema": schema, "prompt": "oops", "edit": {"path": "a", "on": True}}
    )
    assert answer["error"].startswith("The prompt has no <prompt> element")
    assert "Error(" not in answer["error"]


@pytest.mark.parametrize("wrong", [{"base": "x"}, {"base": None}, {"base": []}, {"base": 1e400}])
def test_a_number_that_is_none_is_a_sentence(served: Served, wrong: dict[str, object]) -> None:
    answer = served.ask("save_draft", {"name": "n", "schema": "", "prompt": "", **wrong})
    assert "Error(" not in str(answer)


def test_half_of_a_surrogate_pair_does_not_close_the_page(served: Served) -> None:
    broken = "<prompt>half \ud83d of a pair</prompt>"
    kept = served.ask("save_draft", {"name": "n", "schema": "", "prompt": broken, "base": 0})
    assert kept["revision"]
    assert "workspace" in served.ask("open_workspace", {})


def test_a_page_hears_that_the_studio_is_there_and_every_state_of_its_run(served: Served) -> None:
    here = json.loads(served.send("GET", "/alive").body)
    assert here == json.loads(served.send("GET", "/alive").body), "the same start"
    assert served.send("GET", f"{here['assets']}/studio.js").status == 200
    assert served.send("GET", f"{here['assets']}/plotly/plotly.min.js").status == 200
    texts = {
        "schema": '<schema name="s"><module name="a">one two</module></schema>',
        "prompt": '<prompt schema="s"><a/>three</prompt>',
    }
    begun = served.ask("run_prompt", {**texts, "key": "1-2", "settings": {"max_new_tokens": 2, "repeats": 1}})
    assert (begun["key"], begun["fault"]) == ("1-2", "")
    answer = served.send("GET", "/work?key=1-2")
    states = [json.loads(line) for line in answer.body.splitlines()]
    assert [state["over"] for state in states] == [False] * (len(states) - 1) + [True]
    assert states[-1]["result"]["state"] == "done"
    assert states[-1]["result"]["sides"]["cached"]["tokens"]["generated"] == 2
    lost = served.send("GET", "/work?key=other")
    assert (lost.status, b"no longer exists" in lost.body) == (404, True)
    refused = served.ask("run_prompt", {**texts, "key": "3-4", "prompt": '<prompt schema="s"><b/></prompt>'})
    assert "E4" in refused["error"]
    drawn = served.ask("draw_own_runs", {"schema": "s"})
    assert [run["state"] for run in drawn["runs"]] == ["done"]
    assert {len(line["x"]) for line in drawn["figure"]["data"]} == {1}
    assert served.ask("draw_own_runs", {"schema": "other"})["runs"] == []


def test_the_page_is_the_studios_own_before_any_script(served: Served) -> None:
    answer = served.send("GET", "/", headers={"accept-encoding": "br, gzip"})
    page = answer.body.decode()
    assert page.count("<title>") == 1
    assert "<title>Prompt Cache Studio</title>" in page
    assert not [
        word for word in ("og:", "twitter:", "manifest.json", "iframeResizer.content") if word in page
    ]
    start = page.index('id="studio-start"')
    assert page.index("<body") < start < page.index("<gradio-app")
    assert "<span>Author</span>" in page[start:]
    preloaded = re.findall(r'rel="modulepreload" href="([^"]+)"', page)
    assert {Path(place).name for place in preloaded} >= {
        "studio.js",
        "author.js",
        "editor.bundle.js",
        "dom.js",
    }
    for place in preloaded:
        script = served.send("GET", place, headers={"accept-encoding": "br"})
        assert (script.status, script.headers["content-encoding"]) == (200, None), place
        assert "immutable" in script.headers["cache-control"]
    missing = served.send("GET", f"{preloaded[0]}x")
    assert (missing.status, missing.headers["cache-control"]) == (404, None)
