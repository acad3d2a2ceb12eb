"""What lies over the page: the command palette, the help, and the first steps."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Watched, becomes
from tests.browser.test_author import LONG_RUN_MS, few_tokens

SHORTCUTS = """async () => {
    const { href } = document.querySelector("link[href*='studio.css']") ?? {}
    return Object.keys((await import(new URL("../shell/shortcuts.js", href))).SHORTCUTS).length }"""
COVERED = """() => {
    const card = document.querySelector(".coach").getBoundingClientRect(), covers = selector => {
        const { left, right, top, bottom } = document.querySelector(selector).getBoundingClientRect()
        return card.left < right && card.right > left && card.top < bottom && card.bottom > top }
    return [".picker", "#run", "#stop", ".comparison", ".tab-bar", ".page-line p", ".ratio"].map(covers) }"""


def test_the_palette_does_things_and_the_help_has_the_documents(author: Page) -> None:
    palette = author.get_by_role("dialog", name="Commands")
    options = palette.get_by_role("option")
    author.keyboard.press("Control+k")
    field = palette.get_by_role("combobox")
    expect(field).to_be_focused()
    files = ("New", "Open from this computer…", "Import files…", "Recent…", "Versions…", "Rename…", "Export…")
    for title in ("Author", "Gallery", "Save", "Run the prompt", "Light or dark", *files):
        expect(options.filter(has_text=title).first).to_be_attached()
    author.keyboard.type("gal")
    expect(options.first).to_contain_text("Gallery")
    author.keyboard.press("Enter")
    expect(palette).to_be_hidden()
    expect(author).to_have_url(re.compile("#/gallery$"))
    author.keyboard.press("Control+Shift+p")
    author.keyboard.type("zzqx")
    expect(palette).to_contain_text("No matching command")
    field.fill("")
    author.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    author.keyboard.press("ArrowUp")
    author.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    field.fill("settings of")
    author.keyboard.press("Enter")
    expect(author.get_by_label("Max answer length")).to_be_focused()
    author.keyboard.press("Escape")
    expect(author.locator("#run-settings")).to_be_hidden()

    page = author
    page.evaluate("document.activeElement.blur()")  # "?" is text in a field
    shown = page.get_by_role("dialog", name="Help")
    page.keyboard.press("?")
    expect(shown.get_by_role("row")).to_have_count(page.evaluate(SHORTCUTS))
    expect(
        shown.get_by_role("row", name="Run the prompt; on the Batch page, the rows Ctrl Enter")
    ).to_be_visible()
    shown.get_by_role("button", name="Glossary").click()
    expect(shown.get_by_role("cell", name="TTFT", exact=True)).to_be_visible()
    shown.get_by_role("button", name="From a plain prompt").click()
    expect(shown.get_by_role("heading", level=1)).to_contain_text("Tutorial: from a plain prompt")
    link = shown.locator("article a").first
    link.click()
    expect(shown.locator("nav [aria-current]")).not_to_contain_text("Tutorial: from a plain prompt")
    shown.get_by_role("button", name="PML, the").click()
    expect(shown.locator("article pre").first).to_contain_text("<schema")
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()


def told_twice(route: Route) -> None:
    """The end of a run is told before its work is over, and again when it is."""
    answer = route.fetch()
    *earlier, last = answer.text().splitlines()
    route.fulfill(
        response=answer, body="\n".join([*earlier, json.dumps({**json.loads(last), "over": False}), last, ""])
    )


@pytest.mark.long
def test_the_first_steps_are_shown_once_and_cover_nothing(author: Page, watched: Watched) -> None:
    card = author.locator(".coach")
    expect(card).to_be_hidden()
    author.set_viewport_size({"width": 1280, "height": 720})
    author.get_by_role("button", name="Help (?)").click()
    author.get_by_role("button", name="Show the first steps").click()
    expect(card).to_contain_text("1 of 4")
    picker, run, answers, tabs = 0, (1, 2), 3, 4

    def covers_none(*places: int) -> None:
        becomes(author, f"places => places.some(at => ({COVERED})()[at])", False, places)

    covers_none(picker, tabs)
    expect(card.get_by_role("button", name="Got it")).to_be_focused()
    author.keyboard.press("Enter")
    expect(card).to_contain_text("2 of 4")
    covers_none(*run, tabs, 5, 6)
    few_tokens(author)
    author.route("**/work?**", told_twice)
    for step in ("3 of 4", "4 of 4"):
        author.locator("#run").click()
        expect(card).to_contain_text(step, timeout=LONG_RUN_MS)
        covers_none(tabs)
    covers_none(answers)
    card.get_by_role("button", name="Done").click()
    expect(card).to_be_hidden()
    assert author.evaluate("localStorage.getItem('prompt-cache-studio.first-steps')") == "4"
