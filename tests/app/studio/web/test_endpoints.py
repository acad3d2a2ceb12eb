"""What the page asks is read as its type says, and what it gets is what the types of its scripts say."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.studio.documents.requests import Nothing
from app.studio.documents.samples import gist
from app.studio.web.endpoints import Endpoints, by_name, endpoint
from app.studio.workspace.workspace import Done
from engine.engine import Engine
from engine.store import Store
from tests.app.studio.asked import Asked
from tests.engine.cases import model_of

SCHEMA = """<schema name="s">
  <user>Read. <module name="a">alpha <param name="p" len="3"/></module> <module name="b">beta</module></user>
</schema>
"""
TEXTS = {"schema": SCHEMA, "prompt": '<prompt schema="s"><a p="x"/><b/><user>What?</user></prompt>'}
PAGE = {"name": "n", "schema": SCHEMA, "prompt": TEXTS["prompt"]}
RUN = {**TEXTS, "settings": {"max_new_tokens": 2}}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("studio")
    documents = folder / "documents"
    documents.mkdir()
    (documents / "old.pml").write_bytes('<schema name="s">\xe4</schema>'.encode("latin-1"))
    engine = Engine(model_of("llama-gqa"), Store.open(folder / "cache"))
    studio = Asked(folder, documents, engine)
    engine.schema(SCHEMA).encode()
    yield studio
    engine.close()


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("open_workspace", {}),
    ("list_samples", {}),
    ("check", TEXTS),
    ("check", {**TEXTS, "schema": "<schema", "fallback": SCHEMA}),
    ("measure", TEXTS),
    ("read_prompt", {**TEXTS, "borders": True}),
    ("find_modules", {**TEXTS, "words": "text"}),
    ("edit_prompt", {**TEXTS, "edit": {"path": "b", "on": False}}),
    ("edit_prompt", {**TEXTS, "edit": {"path": "a", "argument": "p", "value": "y"}}),
    ("format_document", {"text": SCHEMA}),
    ("export_as", {**TEXTS, "form": "openai"}),
    ("count_tokens", {"text": "one"}),
    ("add_scaffold", {"schema": SCHEMA, "modules": ["a", "b"]}),
    ("save_draft", {**PAGE, "base": 0}),
    ("save_draft", {**PAGE, "schema": "", "base": 77}),
    ("open_sample", {"name": "travel", "page": PAGE}),
    ("list_files", {}),
    ("save_as", {"name": "new.pml", "text": SCHEMA}),
    ("open_file", {"name": "new.pml", "page": PAGE}),
    ("open_file", {"name": "old.pml", "page": PAGE}),
    ("open_text", {"name": "x.pml", "text": SCHEMA, "stamp": {"newline": "\r\n"}, "page": PAGE}),
    ("shelve", {"page": PAGE}),
    ("shelf", {}),
    ("starting_points", {}),
    ("new_workspace", {"page": PAGE, "text": "mine"}),
    ("follow_schema", {"schema": SCHEMA, "prompt": "", "former": SCHEMA}),
    ("wrap_prompt", {"schema": SCHEMA, "prompt": "one"}),
    ("open_sample_schema", {"name": "travel", "page": PAGE}),
    ("browse", {}),
    ("recent", {}),
    ("forget_recent", {"origin": "file:/x"}),
    ("look_at_files", {"files": [{"origin": "file:/x/a.pml", "stamp": {}}]}),
    ("compare_texts", {"left": {"schema": "a", "prompt": ""}, "right": {"schema": "b", "prompt": ""}}),
    ("preview_import", {"key": "9", "files": [{"path": "a.md", "data": "T25lLg=="}]}),
    ("open_imported", {"name": "a", "schema": SCHEMA, "prompt": "", "page": PAGE}),
    ("measure_fidelity", {**RUN, "key": "1"}),
    ("cache_state", {}),
    ("cache_list", {"words": ["s"], "order": "bytes", "down": False}),
    ("cache_keys", {}),
    ("cache_weigh", {"keys": ["x"]}),
    ("cache_next", {"bytes": 1e6}),
    ("benchmarks", {}),
    ("expect_sweep", {"axis": "cached", "values": ["8"], "modules": 2}),
    ("cache_pin", {"schema": "s", "pinned": True}),
    ("cache_pin", {"schema": "s", "pinned": False}),
    ("cache_verify", {"key": "2"}),
    ("cache_delete", {"keys": ["x"]}),
    ("cache_surplus", {"bytes": 0}),
    ("cache_budget", {"bytes": 1e9}),
    ("cache_prune", {"bytes": 0}),
    ("stop_job", {"key": "2"}),
]


@pytest.mark.parametrize(
    ("question", "request_"), QUESTIONS, ids=lambda one: one if isinstance(one, str) else ""
)
def test_answers_are_what_their_types_say(asked: Asked, question: str, request_: dict[str, Any]) -> None:
    answer = asked.ask(question, request_)
    assert "error" not in answer, answer
    TypeAdapter(asked.endpoints[question].answer).validate_python(answer)


def test_what_a_budget_would_evict_is_told_beside_what_pins_keep(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path / "cache")) as engine:
        asked = Asked(tmp_path, engine=engine)
        engine.schema(SCHEMA).encode()
        stored = asked.ask("cache_state")["stats"]["bytes"]
        told = asked.ask("cache_surplus", {"bytes": 0})
        assert (told["surplus"]["bytes"], told["pinned"]) == (stored, 0)
        asked.ask("cache_pin", {"schema": "s", "pinned": True})
        told = asked.ask("cache_surplus", {"bytes": 0})
        assert (told["surplus"]["segments"], told["pinned"]) == (0, stored)
        state = asked.ask("cache_state")
        assert (state["stats"]["bytes"], state["warnings"]) == (stored, [])
        asked.ask("cache_budget", {"bytes": 0})
        (warning,) = asked.ask("cache_state")["warnings"]
        assert "The budget is 0 bytes" in warning


def test_a_sample_prompt_is_told_in_a_few_words(asked: Asked) -> None:
    travel = next(one for one in asked.ask("list_samples")["samples"] if one["name"] == "travel")
    assert travel["prompts"][0] == {
        "picked": ["trip-plan", "overseas", "tokyo"],
        "words": "Highlight the surf spots.",
    }
    assert gist("<prompt><a/> one <b>two</b><user>three") == {"picked": ["a", "b"], "words": "one two three"}
    assert len(gist(f"<prompt>{'word ' * 99}</prompt>")["words"]) == 150


def test_a_quick_fix_is_asked_for_by_the_place_of_its_mark(asked: Asked) -> None:
    prompt = TEXTS["prompt"].replace("<b/>", "<bb/>")
    marks = asked.ask("check", {**TEXTS, "prompt": prompt})["prompt"]["diagnostics"]
    (mark,) = [one for one in marks if one["fixes"]]
    fixed = {"kind": "prompt", "code": mark["code"], "at": mark["from"], "fix": mark["fixes"][0]}
    assert asked.ask("fix_document", {**TEXTS, "prompt": prompt, **fixed}) == {
        "text": TEXTS["prompt"],
        "kind": "prompt",
    }


def test_a_choice_of_fixes_shows_the_prompt_of_each(asked: Asked) -> None:
    prompt = '<prompt schema="s">\n<a p="x"> Go on.\n<b/><user>What?</user></prompt>'
    marks = asked.ask("check", {**TEXTS, "prompt": prompt})["prompt"]["diagnostics"]
    (mark,) = [one for one in marks if len(one["fixes"]) > 1]
    fault = {"kind": "prompt", "code": mark["code"], "at": mark["from"]}
    shown = [
        asked.ask("preview_fix", {**TEXTS, "prompt": prompt, **fault, "fix": fix}) for fix in mark["fixes"]
    ]
    assert [one["removed"] for one in shown] == [['<a p="x"> Go on.']] * 2
    assert sorted(one["added"] for one in shown) == [['<a p="x"/> Go on.'], ['<a p="x"> Go on.</a>']]
    assert all(one["errors"] == 0 and one["reads"][-1]["text"] == "What?" for one in shown)
    assert all(["", "Go on."] in [[text["path"], text["text"]] for text in one["reads"]] for one in shown)


def test_a_quick_fix_that_needs_the_tokenizer_is_given(asked: Asked) -> None:
    schema = SCHEMA.replace('len="3"', 'len="3" default="a very long while"')
    (mark,) = [
        one
        for one in asked.ask("measure", {**TEXTS, "schema": schema})["diagnostics"]["schema"]
        if one["fixes"]
    ]
    (fix,) = mark["fixes"]
    fixed = {"kind": "schema", "code": "E501", "at": mark["from"], "fix": fix}
    mended = asked.ask("fix_document", {**TEXTS, "schema": schema, **fixed})["text"]
    assert mended == schema.replace('len="3"', fix.removeprefix("Write "))


def test_a_renamed_module_and_an_unknown_import_are_reported_once(asked: Asked) -> None:
    schema = SCHEMA.replace('"a"', '"renamed"')
    texts = {"schema": schema, "prompt": TEXTS["prompt"].replace("<b/>", "<b/><xyz/>")}
    asked.ask("check", TEXTS)
    marks = asked.ask("check", texts)["prompt"]["diagnostics"]
    renamed, unknown = (one["message"] for one in marks if one["code"] == "E402")
    assert renamed.endswith("it is called <renamed/> now")
    assert "did you mean" not in unknown
    assert asked.ask("measure", texts)["diagnostics"]["prompt"] == []


def test_an_argument_that_is_too_long_gets_its_room_in_the_schema(asked: Asked) -> None:
    prompt = TEXTS["prompt"].replace('p="', 'p="a very long while and ')
    assert prompt != TEXTS["prompt"]
    texts = {**TEXTS, "prompt": prompt}
    (mark,) = [one for one in asked.ask("measure", texts)["diagnostics"]["prompt"] if one["fixes"]]
    (fix,) = mark["fixes"]
    fixed = {"kind": "prompt", "code": mark["code"], "at": mark["from"], "fix": fix}
    answer = asked.ask("fix_document", {**texts, **fixed})
    assert (mark["code"], answer["kind"]) == ("E501", "schema")
    left = asked.ask("measure", {**texts, "schema": answer["text"]})["diagnostics"]["prompt"]
    assert not [one for one in left if one["severity"] == "error"]


def test_what_long_work_ends_with_is_what_its_type_says(asked: Asked) -> None:
    for question, key in (("measure_fidelity", "3"), ("cache_verify", "4")):
        asked.ask(question, {**RUN, "key": key} if question == "measure_fidelity" else {"key": key})
        ended = asked.ended(key)
        assert (ended["fault"], ended["result"] is None) == ("", False)
        TypeAdapter(asked.endpoints[question].answer).validate_python(ended)


@pytest.mark.parametrize(
    ("question", "sent", "named"),
    [
        ("check", {"schema": 1, "prompt": ""}, "1 as schema"),
        ("save_draft", {**PAGE, "base": "x"}, "'x' as base"),
        ("save_draft", {**PAGE, "base": -1}, "-1 as base: input should be greater than or equal to 0"),
        ("save_draft", {**PAGE, "force": "yes"}, "'yes' as force"),
        ("open_sample", {"name": "travel"}, "nothing as page"),
        ("open_sample", {"name": "travel", "page": {}}, "nothing as page.schema"),
        ("open_file", {"name": "x", "encoding": "latin-1", "page": PAGE}, "'latin-1' as encoding"),
        ("cache_prune", {"bytes": "much"}, "'much' as bytes"),
        ("cache_budget", {"bytes": -1}, "-1 as bytes: input should be greater than or equal to 0"),
        *(
            (question, {"bytes": size}, f"{size} as bytes: input should be {rule}")
            for question in ("cache_budget", "cache_prune", "cache_surplus")
            for size, rule in (
                (math.inf, "a finite number"),
                (math.nan, "a finite number"),
                (1e30, "less than"),
                (2.0**63, "less than"),
            )
        ),
        ("cache_delete", {"keys": "all"}, "'all' as keys"),
        ("fix_document", {"kind": "page", "code": "E1", "at": 0}, "'page' as kind"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_by_field(
    asked: Asked, question: str, sent: dict[str, Any], named: str
) -> None:
    assert f"The page sent {named}" in asked.ask(question, sent)["error"]


def test_a_store_is_verified_once_at_a_time_under_the_key_of_each_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go = Store.open(tmp_path / "cache"), threading.Event()
    verify = store.verify

    def slow(**options: Any) -> Any:
        assert go.wait(30)
        return verify(**options)

    monkeypatch.setattr(store, "verify", slow)
    with Engine(model_of("llama-gqa"), store) as engine:
        asked = Asked(tmp_path, engine=engine)
        assert asked.ask("cache_verify", {"key": "a"})["key"] == "a"
        assert asked.ask("cache_verify", {"key": "a"})["key"] == "a"
        assert asked.ask("cache_verify", {"key": "b"})["key"] == "b"
        assert asked.ask("job_state", {"key": "b"})["over"] is False
        assert "without repair" in asked.ask("cache_verify", {"key": "c", "repair": True})["error"]
        go.set()
        assert asked.ended("a")["result"] == asked.ended("b")["result"]
        assert asked.ask("cache_verify", {"key": "c", "repair": True})["key"] == "c"
        assert asked.ended("c")["fault"] == ""


def test_something_else_than_an_object_is_refused(asked: Asked) -> None:
    assert "not an object" in asked.ask("shelf", ["x"])["error"]


class Failing(Endpoints):
    @endpoint
    def fail(self, _request: Nothing) -> Done:
        raise RuntimeError("boom")


def test_a_fault_of_ours_is_logged_and_said(caplog: pytest.LogCaptureFixture) -> None:
    assert "boom" in by_name([Failing()])["fail"].ask({})["error"]
    assert "The page's request fail failed" in caplog.text


def test_no_two_questions_have_one_name() -> None:
    with pytest.raises(AssertionError, match="fail"):
        by_name([Failing(), Failing()])
