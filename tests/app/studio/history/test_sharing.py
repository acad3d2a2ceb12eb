"""Runs that are shared as a file, files of anybody that are imported, and runs side by side."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from lxml import html

from app.studio.history import Record
from app.studio.history.compare import against_first, beside, difference
from app.studio.history.report import DATA_ID
from app.studio.history.runs_chart import runs_chart
from app.studio.history.sharing import from_text, to_html, to_json
from app.studio.runs.differences import word_difference
from engine.base.errors import PromptCacheError
from tests.app.studio.asked import Asked
from tests.app.studio.history.test_kept_runs import PROMPT, SCHEMA, frame, record

NASTY = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> \x00 &amp; ' \""
PAGE = {"name": "open", "schema": "<schema/>", "prompt": "<prompt/>"}


def nasty() -> Record:
    told = frame(NASTY, schema=NASTY, model={"name": "/secret/models/tiny", NASTY: NASTY}, warnings=[NASTY])
    return record(schema=NASTY, prompt=NASTY, name=NASTY, note=NASTY, frame=told, origin="file:/secret/a.pml")


@pytest.mark.parametrize("write", [to_json, to_html])
def test_a_shared_file_comes_back_as_it_was(write: Any) -> None:
    ours = [record(1, name="first"), nasty()]
    first, second = from_text(write(ours), "shared")
    assert (first.id, first.name, first.schema, first.prompt) == (ours[0].id, "first", SCHEMA, PROMPT)
    assert first.told == ours[0].told
    assert (second.schema, second.prompt, second.name, second.note) == (NASTY,) * 4
    assert second.told["sides"]["cached"]["text"] == NASTY


@pytest.mark.parametrize("write", [to_json, to_html])
def test_a_shared_file_tells_nothing_of_this_machine(write: Any) -> None:
    assert "/secret" not in write([nasty()])
    assert from_text(write([nasty()]), "shared")[0].told["model"]["name"] == "tiny"


def test_a_shared_page_is_text_and_nothing_else() -> None:
    page = to_html([nasty(), record()])
    tree = html.document_fromstring(page.replace("\x00", ""))
    (script,) = tree.iter("script")
    assert (script.get("type"), script.get("id")) == ("application/json", DATA_ID)
    assert {one.tag for one in tree.iter() if isinstance(one.tag, str)}.isdisjoint(
        {"img", "link", "iframe", "a"}
    )
    assert [
        name for one in tree.iter() for name in one.attrib if name.startswith("on") or name in ("src", "href")
    ] == []
    assert NASTY.replace("\x00", "") in (tree.findtext(".//h2") or "")
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|url\(|@import", page)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no runs"),
        ("[1, 2]", "has no runs"),
        ("<html></html>", "has no runs"),
        ("<" * 100_000, "has no runs"),
        ("[" * 100_000, "has no runs"),
        ('{"prompt_cache_studio": "runs", "version": 1, "runs": {}}', "has no runs"),
        ('{"prompt_cache_studio": "runs", "version": 1, "runs": [NaN]}', "has no runs"),
        ('{"prompt_cache_studio": "runs", "version": 1, "runs": [' + "9" * 5000 + "]}", "has no runs"),
        ('{"prompt_cache_studio": "runs", "version": 2, "runs": []}', "version 2, but this studio"),
        ('{"prompt_cache_studio": "runs", "version": 1, "runs": [7]}', "Run 1 of 'x' has no schema"),
        ('{"prompt_cache_studio": "runs", "version": 1, "runs": [1' + ", 1" * 1000 + "]}", "1001 runs"),
        ("x" * ((16 << 20) + 1), "larger than the limit of 16 MiB"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(PromptCacheError, match=re.escape(words)):
        from_text(text, "x")


def test_a_version_that_is_none_is_not_repeated_whole() -> None:
    text = json.dumps({"prompt_cache_studio": "runs", "version": [1] * 100_000, "runs": []})
    with pytest.raises(PromptCacheError, match=re.escape("version [1, 1, 1, 1, 1, 1, ...], but")):
        from_text(text, "x")


def shared(**fields: Any) -> str:
    run = {"schema": SCHEMA, "prompt": PROMPT, "frame": frame(), **fields}
    return json.dumps({"prompt_cache_studio": "runs", "version": 1, "runs": [run]})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schema": None}, "Run 1 of 'x' has no schema that is text"),
        ({"note": 7}, "Run 1 of 'x' has no note that is text"),
        ({"name": "x" * 201}, "Run 1 of 'x': A name has at most 200 characters"),
        ({"prompt": "x" * 5_000_001}, "The prompt of Run 1 of 'x' is too long"),
    ],
)
def test_one_run_that_is_none_keeps_the_others_out(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(PromptCacheError, match=re.escape(words)):
        from_text(shared(**fields), "x")


def test_an_imported_run_gets_an_id_where_it_has_none_of_ours() -> None:
    for given in (None, 3, "../../etc", "0" * 31, "G" * 32):
        (found,) = from_text(shared(id=given), "x")
        assert re.fullmatch("[0-9a-f]{32}", found.id)
    assert from_text(shared(frame={"deep": [[[1]]], "origin": "x"}), "x")[0].origin == ""


def test_a_page_of_openings_is_refused_at_once() -> None:
    text = f'<script type="application/json" id="{DATA_ID}">' * 100_000
    with pytest.raises(PromptCacheError, match="has no runs"):
        from_text(text, "openings.html")


def test_words_that_differ_are_marked_in_all_lines() -> None:
    left, right = difference("one\ntwo three\nfour\n", "one\ntwo drei\nfour\nfive\n")
    assert left == [("one\ntwo", False), (" three", True), ("\nfour\n", False)]
    assert right == [("one\ntwo", False), (" drei", True), ("\nfour\n", False), ("five\n", True)]
    assert difference("same", "same") == ([("same", False)], [("same", False)])


def test_the_first_shows_what_is_another_in_any_of_them() -> None:
    first, second, third = against_first(["a b c d", "a x c d", "a b c y"])
    assert first == [("a", False), (" b", True), (" c", False), (" d", True)]
    assert second == [("a", False), (" x", True), (" c d", False)]
    assert third == [("a b c", False), (" y", True)]
    assert against_first(["", "something"]) == [[], [("something", False)]]
    assert ["".join(text for text, _ in one) for one in (first, second, third)] == [
        "a b c d",
        "a x c d",
        "a b c y",
    ]


def test_large_documents_are_compared_in_no_time() -> None:
    left = "".join(f"line {number} of a long document\n" for number in range(20_000))
    right = left.replace("line 10000 ", "line ten thousand ")
    ours, theirs = difference(left, right)
    assert [text for text, differs in ours if differs] == [" 10000"]
    assert [text for text, differs in theirs if differs] == [" ten thousand"]
    ours, _ = difference("x " * 200_000, "y " * 200_000)
    assert ours == [("x " * 200_000, True)]
    few = random.Random(0).choices([f"l{number}\n" for number in range(150)], k=40_000)
    ours, _ = difference("".join(few[:20_000]), "".join(few[20_000:]))
    assert [differs for _, differs in ours] == [True]
    pair = random.Random(1).choices("ab", k=20_000)
    assert word_difference(" ".join(pair[:10_000]), " ".join(pair[10_000:]))["differing"] > 9_000


def test_runs_stand_side_by_side() -> None:
    left, right = beside([record(1), record(2, prompt=PROMPT.replace("Go on", "Stop"))])
    assert left["schema"] == [(SCHEMA, False)]
    assert any(differs for _, differs in right["prompt"])
    assert right["told"]["settings"]["scope"] == "anchored"


def test_the_page_lists_names_compares_shares_and_restores(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    assert asked.ask("list_runs")["runs"] == []
    ours = record(1, origin="sample:travel")
    asked.parts.kept.keep(ours)
    asked.parts.kept.keep(record(2))
    asked.ask("label_run", {"id": ours.id, "note": "the good one"})
    listed = asked.ask("list_runs")
    assert [one["note"] for one in listed["runs"]] == ["", "the good one"]
    assert (listed["held"]["runs"], listed["held"]["most_runs"]) == (2, 1000)
    ids = [one["id"] for one in listed["runs"]]
    assert asked.ask("find_runs", {"words": "TWO answer"})["ids"]
    assert len(asked.ask("compare_runs", {"ids": ids})["runs"]) == 2
    assert "can be compared" in asked.ask("compare_runs", {"ids": ids * 5})["error"]
    file = asked.ask("share_runs", {"ids": ids, "form": "html"})
    assert file["filename"] == "prompt-cache-runs-2.html"
    assert asked.ask("delete_runs", {"ids": ids})["deleted"] == 2
    assert asked.ask("import_runs", {"name": "f", "text": file["text"]}) == {"read": 2, "added": 2}
    assert asked.ask("import_runs", {"name": "f", "text": file["text"]}) == {"read": 2, "added": 0}
    assert "no longer exists" in asked.ask("label_run", {"id": "x", "name": "y"})["error"]


def test_a_run_is_restored_and_the_open_texts_go_to_the_shelf(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    told = frame(settings={"scope": "scaffold", "seed": 9, "temperature": "hot", "unknown": 1})
    ours = record(frame=told, name="mine", origin="sample:travel")
    asked.parts.kept.keep(ours)
    opened = asked.ask("restore_run", {"id": ours.id, "page": PAGE})["workspace"]
    assert (opened["name"], opened["schema"], opened["prompt"]) == ("mine", SCHEMA, PROMPT)
    assert opened["origin"] == "sample:travel"
    assert opened["settings"] == {"scope": "scaffold", "seed": 9, "reuse": "off"}
    assert [one["name"] for one in asked.ask("shelf")["shelf"]] == ["open"]
    run = asked.ask("show_kept_run", {"id": ours.id})["run"]
    assert (run["started"], run["sides"]["cached"]["text"]) == ("2026-03-01T10:00:00+01:00", "an answer")
    assert run["of"]["prompt"] == asked.ask("check", {"schema": SCHEMA, "prompt": PROMPT})["texts"]["prompt"]
    assert run["difference"]["differing"] == 0
    assert "no longer exists" in asked.ask("show_kept_run", {"id": "gone"})["error"]


def test_an_import_never_pushes_a_run_out(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.parts.kept._most_runs = 2
    asked.parts.kept.keep(record(1))
    text = to_json([record(2), record(3)])
    assert (
        "no room for 2 more runs besides the 1"
        in asked.ask("import_runs", {"name": "f", "text": text})["error"]
    )
    assert asked.ask("list_runs")["held"]["runs"] == 1


def test_the_chart_is_of_the_runs_that_are_shown_and_shows_words_as_text(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    for number in range(3):
        asked.parts.kept.keep(record(number, name="<a href='https://x'>me</a>" if number else ""))
    ids = [one["id"] for one in asked.parts.kept.summaries()]
    drawn = asked.ask("draw_runs", {"ids": [*ids[:2], "gone"]})["figure"]
    uncached, cached, first = drawn["data"]
    assert (list(cached["y"]), list(uncached["y"]), list(first["y"])) == ([12.5] * 2, [50.0] * 2, [92.5] * 2)
    assert list(cached["customdata"]) == ids[1::-1], "the oldest first"
    assert "<a" not in cached["text"][0]
    assert "prefill 12.5 ms" in cached["text"][0]
    assert "encoded ahead 80.0 ms" in first["text"][0]
    assert drawn["layout"]["yaxis"]["type"] == "log"
    assert asked.ask("draw_runs", {"ids": []})["figure"]["data"] == []


def test_a_line_of_the_chart_joins_runs_of_one_model_schema_and_scope_only() -> None:
    one: dict[str, Any] = {"model": {"name": "one"}, "of": {"schema": "first text"}}
    others: list[dict[str, Any]] = [{"model": {"name": "two"}}, {}, {"schema": "t"}]
    others += [{"of": {"schema": "second text"}}, {"settings": {"scope": "preceding"}}]
    runs = [Record("", "", frame(**{**one, **other})).summary() for other in ({}, *others)]
    lines = [line for line in runs_chart(runs).data if line["name"] == "from the cache"]
    assert [list(line["x"]) for line in lines] == [[1, 3], [2], [4], [5], [6]]
    assert [line["showlegend"] for line in lines] == [True, *[False] * 4]


@pytest.mark.parametrize("ratio", [1, 20, 300, 20_000])
def test_the_labels_of_the_chart_have_room_on_a_phone(ratio: float) -> None:
    sides = {"cached": {"ttft_ms": 3.0}, "uncached": {"ttft_ms": 3.0 * ratio}}
    axis = runs_chart([Record("", "", frame(sides=sides)).summary()]).layout.yaxis
    assert 0 < sum(3 / 1.5 <= tick <= 3 * ratio * 1.5 for tick in axis.tickvals) <= 6
