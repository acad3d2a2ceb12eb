"""What lies over the page: the command palette and the help."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

SHORTCUTS = """async () => {
    const { href } = document.querySelector("link[href*='studio.css']") ?? {}
    return Object.keys((await import(new URL("../shell/shortcuts.js", href))).SHORTCUTS).length }"""


def test_the_palette_does_things_and_the_help_has_the_documents(author: Page) -> None:
    palette = author.get_by_role("dialog", name="Commands")
    options = palette.get_by_role("option")
    author.keyboard.press("Control+k")
    field = palette.get_by_role("combobox")
    expect(field).to_be_focused()
    files = (
        "New…",
        "Open from this computer…",
        "Import files…",
        "Recent…",
        "Versions…",
        "Rename…",
        "Export…",
    )
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
