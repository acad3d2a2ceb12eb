"""The File menu: nothing that was open is lost, a prompt goes with its schema, and what differs is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.studio.database import UserDatabase
from app.studio.documents.recent import MOST, Recent
from app.studio.documents.starting_points import POINTS, from_text
from engine.pml import bind
from tests.app.studio.asked import Asked
from tests.pml.documents import clean_schema, prompt_tree

TRIP = '<schema name="trip"><module name="sea">The sea.</module></schema>\n'
CITY = '<schema name="city"><module name="bridge">A bridge.</module></schema>\n'
ASK = '<prompt schema="trip"><sea/> Where?</prompt>\n'


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "far").mkdir(parents=True)
    (folder / "trip.pml").write_text(TRIP)
    (folder / "ask.pml").write_text(ASK)
    (folder / "far" / "city.pml").write_text(f"<!-- <schema name='no'> -->\n{CITY}")
    (folder / "far" / "cross.pml").write_text('<prompt schema="city"><bridge/></prompt>')
    (folder / "odd.xml").write_bytes(b"<html>\xff</html>")
    return folder


@pytest.fixture
def asked(tmp_path: Path, documents: Path) -> Asked:
    studio = Asked(tmp_path, documents)
    studio.ask("open_workspace")
    return studio


def page(workspace: dict[str, Any]) -> dict[str, Any]:
    """What a page with this workspace sends."""
    fields = ("name", "schema", "prompt", "origin", "prompt_origin", "settings", "files")
    return {**{name: workspace[name] for name in fields}, "base": workspace["revision"]}


def opened(asked: Asked, *names: str) -> dict[str, Any]:
    """The answer to the last of some files that are opened."""
    answer: dict[str, Any] = {}
    for name in names:
        now = page(asked.ask("open_workspace")["workspace"])
        answer = asked.ask("open_file", {"name": name, "page": now})
    return answer


def shelf(asked: Asked) -> list[str]:
    return [kept["prompt"] for kept in asked.ask("shelf")["shelf"]]


def test_a_prompt_that_fits_stays_and_another_makes_room_and_is_kept(asked: Asked) -> None:
    answer = opened(asked, "ask.pml", "trip.pml")
    assert (answer["workspace"]["prompt"], "told" in answer) == (ASK, False)
    answer = opened(asked, "far/city.pml")
    assert answer["workspace"]["prompt"] == '<prompt schema="city">\n</prompt>\n'
    assert (answer["workspace"]["prompt_origin"], "prompt" in answer["workspace"]["files"]) == ("", False)
    assert "a new one was started" in answer["told"]
    assert ASK in shelf(asked)


def test_an_edited_prompt_of_the_same_schema_stays_though_it_has_faults(asked: Asked) -> None:
    now = page(opened(asked, "ask.pml", "trip.pml")["workspace"])
    for prompt in ('<prompt schema="trip"><sea/> <see/> half a <tag', ASK.replace("<sea/>", "<sea/><see/>")):
        answer = asked.ask("open_file", {"name": "trip.pml", "page": {**now, "prompt": prompt}})
        assert answer["workspace"]["prompt"] == prompt
        now["base"] = answer["workspace"]["revision"]


def test_the_schema_of_a_prompt_is_offered_from_the_folder_and_the_samples(
    asked: Asked, documents: Path
) -> None:
    answer = opened(asked, "trip.pml", "far/cross.pml")
    assert "for the schema “city”" in answer["told"]
    assert answer["offers"] == [{"words": "Open far/city.pml", "file": "far/city.pml"}]
    (documents / "cross.pml").write_text('<prompt schema="city"/>')
    (documents / "city.pml").write_text(CITY)
    assert [one["file"] for one in opened(asked, "cross.pml")["offers"]] == ["city.pml", "far/city.pml"]
    (documents / "plan.pml").write_text('<prompt schema="travel"/>')
    assert opened(asked, "plan.pml")["offers"] == [{"words": "Open the sample Travel", "sample": "travel"}]
    (documents / "lost.pml").write_text('<prompt schema="nowhere"/>')
    assert "no schema of that name" in opened(asked, "lost.pml")["told"]


STARTS = [*({"start": point.name} for point in POINTS), {"text": "One < two & <three/>"}]


@pytest.mark.parametrize("chosen", STARTS, ids=lambda one: one.get("start", "text"))
def test_a_new_workspace_has_no_errors_and_the_open_one_is_a_version(
    asked: Asked, chosen: dict[str, str]
) -> None:
    now = page(opened(asked, "ask.pml")["workspace"])
    new = asked.ask("new_workspace", {"page": {**now, "prompt": "mine"}, **chosen})["workspace"]
    checked = asked.ask("check", {"schema": new["schema"], "prompt": new["prompt"]})
    assert checked["schema"]["diagnostics"] == checked["prompt"]["diagnostics"] == []
    assert new["name"] == checked["schema"]["name"]
    assert checked["picks"]["paths"]
    assert checked["prompt"]["question"]
    assert (new["origin"], new["prompt_origin"], shelf(asked)[0]) == ("", "", "mine")


def test_the_users_own_text_gets_modules_from_headings_and_parameters_from_names() -> None:
    code = "`{{name}}`\n```\n{{code}}\n```"
    made = from_text(
        f"Dear {{{{customer}}}}, {{{{ customer }}}}: {code}\n## Returns\n{{{{days}}}}\n## Fees\nNone."
    )
    tree = clean_schema(made.schema)
    modules = {one.name: {param.name: param.length for param in one.params()} for one in tree.modules()}
    assert modules == {"dear-customer-customer": {"customer": 10}, "Returns": {"days": 10}, "Fees": {}}
    assert code in made.schema
    bound = bind(tree, prompt_tree(made.prompt))
    assert [one.code for one in bound.diagnostics] == ["W604", "W604"]
    assert all(f"<{name}/>" in made.prompt for name in modules)


def test_recent_lists_the_users_own_workspaces(asked: Asked) -> None:
    now = page(asked.ask("open_workspace")["workspace"])
    for start in ("agent", "reviews", "agent"):
        now = page(asked.ask("new_workspace", {"start": start, "page": now})["workspace"])
        now["schema"] += f"<!-- {len(shelf(asked))} -->"
    now = page(asked.ask("new_workspace", {"start": "support-bot", "page": now})["workspace"])
    own = [one for one in asked.ask("recent")["documents"] if one["kind"] == "workspace"]
    assert sorted(one["name"] for one in own) == ["agent", "reviews", "support-bot"]
    assert [one["name"] for one in own if one.get("missing") == "Open now."] == ["support-bot"]
    (agent,) = (one for one in own if one["name"] == "agent")
    assert (
        "<!-- 3 -->"
        in asked.ask("open_shelved", {"key": agent["version"], "page": now})["workspace"]["schema"]
    )


def test_a_prompt_follows_the_name_of_its_schema(asked: Asked) -> None:
    ask = {"schema": CITY, "prompt": f"<!-- mine -->{ASK}", "former": TRIP}
    followed = asked.ask("follow_schema", ask)["prompt"]
    assert followed == f"<!-- mine -->{ASK.replace('trip', 'city')}", "only the name changes"
    (agent,) = (point for point in POINTS if point.name == "agent")
    followed = asked.ask("follow_schema", {"schema": CITY, "prompt": agent.prompt, "former": agent.schema})
    assert followed["prompt"].split() == [
        "<prompt",
        'schema="city">',
        "<user>When",
        "am",
        "I",
        "free",
        "on",
        "Friday?</user>",
        "</prompt>",
    ]
    other = asked.ask("follow_schema", {**ask, "former": agent.schema})["prompt"]
    assert other == ask["prompt"], "the prompt is for another schema"


def test_plain_text_becomes_a_prompt(asked: Asked) -> None:
    wrapped = asked.ask("wrap_prompt", {"schema": TRIP, "prompt": "Where is <sea/>, and is <b/> < & c?\n"})[
        "prompt"
    ]
    empty = asked.ask("wrap_prompt", {"schema": TRIP, "prompt": "\n"})["prompt"]
    assert empty == '<prompt schema="trip">\n</prompt>\n'
    assert wrapped == '<prompt schema="trip">\n  Where is <sea/>, and is &lt;b/> &lt; &amp; c?\n</prompt>\n'
    assert asked.ask("check", {"schema": TRIP, "prompt": wrapped})["prompt"]["diagnostics"] == []


def test_a_chosen_folder_is_made_and_is_there_at_the_next_start(tmp_path: Path) -> None:
    studio = Asked(tmp_path)
    assert not studio.ask("list_files")["folder"]
    assert "whole path" in studio.ask("choose_folder", {"path": "prompts"})["error"]
    for path, words in (
        ("~no-such-user/x", "The home folder of this path is unknown. Write the whole path"),
        (f"{tmp_path}/a\0b", "The path has a character that folders cannot have. Remove it"),
        (f"{tmp_path}/x\ud800", "The path has a character that folders cannot have. Remove it"),
        (f"{tmp_path}/x\udc80", "The path has a character that folders cannot have. Remove it"),
        ("~x\0y/z", "The path has a character that folders cannot have. Remove it"),
    ):
        assert studio.ask("choose_folder", {"path": path})["error"].startswith(words)
    chosen = tmp_path / "new" / "prompts"
    assert studio.ask("choose_folder", {"path": f" {chosen} "})["root"] == chosen.as_posix()
    studio.ask("save_as", {"name": "trip.pml", "text": TRIP})
    assert (chosen / "trip.pml").read_text() == TRIP
    assert Asked(tmp_path).ask("list_files")["files"] == ["trip.pml"]


def test_the_folder_is_listed_by_what_its_files_are(asked: Asked, documents: Path) -> None:
    entries = {one["name"]: (one["kind"], one["schema"]) for one in asked.ask("browse")["entries"]}
    assert entries == {
        "ask.pml": ("prompt", "trip"),
        "odd.xml": ("other", ""),
        "trip.pml": ("schema", "trip"),
        "far/city.pml": ("schema", "city"),
        "far/cross.pml": ("prompt", "city"),
    }
    (documents / "trip.pml").write_text(TRIP.replace("trip", "trips"))
    assert ("trip.pml", "trips") in [(one["name"], one["schema"]) for one in asked.ask("browse")["entries"]]


def test_what_was_used_is_listed_with_what_is_gone(asked: Asked, documents: Path, tmp_path: Path) -> None:
    now = page(opened(asked, "trip.pml", "ask.pml")["workspace"])
    asked.ask("open_sample", {"name": "documents", "page": now})
    asked.ask("save_as", {"name": "far/new.pml", "text": CITY})
    (documents / "ask.pml").unlink()
    found = asked.ask("recent")["documents"]
    assert [(one["name"], one["kind"]) for one in found] == [
        ("far/new.pml", "schema"),
        ("Documents", "both"),
        ("ask.pml", "prompt"),
        ("trip.pml", "schema"),
    ]
    assert [(one.get("file"), one.get("sample"), one.get("missing")) for one in found] == [
        ("far/new.pml", None, None),
        (None, "documents", None),
        (None, None, "No longer exists."),
        ("trip.pml", None, None),
    ]
    left = asked.ask("forget_recent", {"origin": found[2]["origin"]})["documents"]
    assert [one["name"] for one in left] == ["far/new.pml", "Documents", "trip.pml"]
    (tmp_path / "other").mkdir()
    elsewhere = Asked(tmp_path, tmp_path / "other").ask("recent")["documents"]
    assert f"--schemas {documents}" in elsewhere[2]["missing"]


def test_the_list_of_recent_documents_is_bounded(tmp_path: Path) -> None:
    recent = Recent(UserDatabase(tmp_path))
    for number in range(MOST + 5):
        recent.note(f"file:/x/{number}.pml", f"{number}.pml", "schema")
    recent.note("file:/x/7.pml", "7.pml", "schema")
    found = [one.name for one in recent.documents()]
    assert (len(found), found[0], found.count("7.pml")) == (MOST, "7.pml", 1)
    (tmp_path / "data").write_text("no folder")
    broken = Recent(UserDatabase(tmp_path / "data"))
    broken.note("file:/x/1.pml", "1.pml", "schema")
    assert broken.documents() == []


def test_a_file_keeps_its_place_in_the_list_under_another_name(asked: Asked, documents: Path) -> None:
    origin = opened(asked, "trip.pml")["workspace"]["origin"]
    assert "already" in asked.ask("rename_file", {"origin": origin, "name": "ask.pml"})["error"]
    answer = asked.ask("rename_file", {"origin": origin, "name": "far/journey.pml"})
    assert (answer["saved"], "trip.pml" in answer["files"]) == ("far/journey.pml", False)
    assert (documents / "far" / "journey.pml").read_text() == TRIP
    (first,) = asked.ask("recent")["documents"]
    assert (first["name"], first["kind"], first["file"]) == ("far/journey.pml", "schema", "far/journey.pml")
    other = asked.ask("rename_file", {"origin": "file:/elsewhere/a.pml", "name": "b.pml"})
    assert other["refused"] == "elsewhere"


def test_files_that_changed_are_told_and_compared(asked: Asked, documents: Path) -> None:
    opened(asked, "trip.pml", "ask.pml")
    now = asked.ask("open_workspace")["workspace"]
    files = [
        {"origin": now["origin"], "stamp": now["files"]["schema"]},
        {"origin": now["prompt_origin"], "stamp": now["files"]["prompt"]},
        {"origin": "file:/elsewhere/a.pml", "stamp": {}},
    ]
    assert [one["state"] for one in asked.ask("look_at_files", {"files": files})["files"]] == ["same", "same"]
    (documents / "trip.pml").unlink()
    (documents / "ask.pml").write_text(ASK.replace("Where", "When"))
    seen = asked.ask("look_at_files", {"files": files})["files"]
    assert [one["state"] for one in seen] == ["gone", "changed"]
    assert "'ask.pml' was changed by another program" in seen[1]["message"]
    compared = asked.ask("compare_file", {"origin": now["prompt_origin"], "text": ASK})
    marked = [
        [part["text"] for part in row[side]["parts"] if part["changed"]]
        for row in compared["difference"]["rows"]
        for side in ("left", "right")
    ]
    assert (compared["name"], marked[:2]) == ("ask.pml", [["When"], ["Where"]])
    (documents / "ask.pml").write_bytes(b"\xe4")
    assert (
        "no longer UTF-8"
        in asked.ask("compare_file", {"origin": now["prompt_origin"], "text": ""})["message"]
    )
    assert "no longer exists" in asked.ask("compare_file", {"origin": now["origin"], "text": ""})["error"]


def test_every_text_that_was_written_to_a_file_is_a_version(asked: Asked) -> None:
    for words in ("one", "two"):
        now = page(
            asked.ask("open_workspace")["workspace"]
            if words == "two"
            else opened(asked, "ask.pml")["workspace"]
        )
        text = ASK.replace("Where", words)
        asked.ask("save_draft", {**now, "prompt": text})
        stamp = asked.ask("open_workspace")["workspace"]["files"]["prompt"]
        saved = asked.ask(
            "save_file", {"origin": now["prompt_origin"], "text": text, "stamp": stamp, "force": True}
        )
        assert saved["saved"] == "ask.pml"
    assert ["one" in prompt or "two" in prompt for prompt in shelf(asked)[:2]] == [True, True]
    key = asked.ask("shelf")["shelf"][1]["key"]
    compared = asked.ask("compare_version", {"key": key, "page": {**now, "prompt": text}})
    assert (compared["schema"]["rows"], compared["prompt"]["removed"]) == ([], 1)
    both = {"schema": "a", "prompt": "b"}
    same = asked.ask("compare_texts", {"left": both, "right": {**both, "prompt": "c"}})
    assert (same["schema"]["rows"], same["prompt"]["added"]) == ([], 1)
