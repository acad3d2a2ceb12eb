"""Files and folders that are dropped on the page, as a file manager drops them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from app.studio.history import sharing
from tests.browser.conftest import QUESTIONS, unrouted
from tests.browser.test_author import text_of, wait_for_text

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello?"}]
PROGRAM = """from pathlib import Path

from engine.programs import schema

Path({mark!r}).write_text("it was run")


@schema("trip")
def trip(p, far: bool = False):
    p.text("I am away.")
    if far:
        p.text("I do not mind a long flight.")
"""
STILL_READING = {
    "what": "reading the texts",
    "done": 40,
    "total": 90,
    "over": False,
    "fault": "",
    "result": None,
}


def drop(page: Page, *paths: Path) -> None:
    """Drops files and folders of the disk in the middle of the page."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for event in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": event, "x": 600, "y": 300, "data": data})
    session.detach()


def dropped(page: Page, path: Path) -> None:
    """A file or a folder, looked at to the end."""
    drop(page, path)
    expect(page.locator(".import-said [data-mood]")).to_have_attribute("data-mood", re.compile("good|warn"))


def test_what_is_dropped_is_looked_at_and_opened_with_a_prompt_that_fits(
    author: Page, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    for path, text in (
        ("sea.md", "# Sea\n\nDeep."),
        ("far/city.txt", "Bridges."),
        ("node_modules/x.md", "x"),
    ):
        (notes / path).parent.mkdir(parents=True, exist_ok=True)
        (notes / path).write_text(text, encoding="utf-8")
    (notes / "photo.jpg").write_bytes(b"\xff\xd8\0" * 9_000_000)
    (notes / "long.txt").write_text("a" * 5_300_000, encoding="utf-8")
    dialog, said, lost = (
        author.locator(one) for one in ("dialog.import", ".import-said p", ".import .notes")
    )
    dropped(author, notes)
    expect(said).to_contain_text("Folder of documents: 3 modules; lost or changed content is listed")
    expect(said).to_have_attribute("data-mood", "warn")
    expect(lost).to_contain_text("left out (larger than 5 MB): notes/long.txt")
    expect(lost).to_contain_text("left out (binary): photo.jpg")
    expect(dialog.get_by_label("The imported prompt")).to_contain_text("<sea/>")
    expect(dialog).not_to_contain_text("node_modules")
    dialog.get_by_label("Add title lines").uncheck()
    expect(dialog.get_by_label("The imported schema")).not_to_contain_text("Document: sea.md")
    dialog.get_by_role("button", name="Open").click()
    wait_for_text(author, "schema", 'name="notes"')
    expect(author.locator(".panel.schema .status")).to_have_text("no problems")
    expect(author.locator(".panel.prompt .problems")).to_contain_text("W618")  # it has no question yet
    wait_for_text(author, "prompt", "<sea/>")

    before, mark = text_of(author, "schema"), tmp_path / "run"
    (tmp_path / "trip.py").write_text(PROGRAM.format(mark=str(mark)), encoding="utf-8")
    (tmp_path / "chat.json").write_text(json.dumps(CHAT), encoding="utf-8")
    (tmp_path / "page.jinja").write_text("{% if a %}One{% endif %} Hello {{ name }}", encoding="utf-8")
    (tmp_path / "sea.md").write_text("# Sea\n\n" + "Deep. " * 30, encoding="utf-8")
    for name, kind in (
        ("chat.json", "Conversation (messages in JSON): 0 modules, nothing is lost."),
        ("page.jinja", "Jinja template: 2 modules; lost or changed content is listed here."),
        ("sea.md", "Text or Markdown: 1 module, nothing is lost."),
        ("trip.py", "Python program (compiled, never run): 1 module, nothing is lost."),
    ):
        drop(author, tmp_path / name)
        expect(said).to_have_text(kind)
    assert not mark.exists()
    dialog.get_by_role("button", name="Cancel").click()
    assert text_of(author, "schema") == before

    (tmp_path / "shared.json").write_text(sharing.to_json([]), encoding="utf-8")
    drop(author, tmp_path / "shared.json")
    expect(author.locator(".notices")).to_contain_text("0 runs of shared.json imported.")
    expect(dialog).to_be_hidden()
    (tmp_path / "own.pml").write_text(
        '<schema name="own"><module name="m">x</module></schema>', encoding="utf-8"
    )
    drop(author, tmp_path / "own.pml")
    wait_for_text(author, "schema", 'name="own"')


@pytest.mark.long
def test_what_cannot_be_imported_is_said_and_an_import_can_be_stopped(author: Page, tmp_path: Path) -> None:
    before = text_of(author, "schema")
    (tmp_path / "noise.bin").write_bytes(b"\xff\0\x92" * 999)
    (tmp_path / "latin.md").write_bytes("Café.".encode("latin-1"))
    with (tmp_path / "vast.md").open("wb") as vast:
        vast.truncate(50 << 20)
    said = author.locator(".import-said")
    for name, words in (
        ("noise.bin", "'noise.bin' is a binary file, not text"),
        ("vast.md", "vast.md has 50.0 MiB, but the maximum is 20.0 MiB"),
        ("latin.md", "Open it as Windows-1252?"),
    ):
        drop(author, tmp_path / name)
        expect(said).to_contain_text(words)
    said.get_by_role("button", name="Read it as Windows-1252").click()
    expect(author.locator("dialog.import pre").first).to_contain_text("Café.")

    def never_over(route: Route) -> None:
        asked = route.request.post_data_json or {}
        if asked.get("fn_name") == "preview_import":
            key = asked["data"]["key"] if isinstance(asked["data"], dict) else asked["data"][0]["key"]
            route.fulfill(json={"key": key, **STILL_READING})
        elif asked.get("fn_name") == "job_state":
            route.fulfill(json={"key": "?", **STILL_READING})
        else:
            route.continue_()

    author.route(QUESTIONS, never_over)
    drop(author, tmp_path / "latin.md")
    expect(said).to_contain_text("Reading the texts… 40 of 90")
    expect(said.get_by_role("progressbar")).to_have_attribute("max", "90")
    said.get_by_role("button", name="Stop").click()
    expect(said).to_contain_text("Stopped. Nothing was imported.")
    unrouted(author)
    said.get_by_role("button", name="Start again").click()
    expect(said).to_contain_text("Open it as Windows-1252?")
    author.keyboard.press("Escape")
    expect(author.locator("dialog.import")).to_be_hidden()
    assert text_of(author, "schema") == before
