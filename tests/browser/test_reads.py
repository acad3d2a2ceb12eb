"""What the model reads, and the layout strip: what they show, what they say, and the way to the source."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import QUESTIONS, becomes, came, unrouted
from tests.browser.test_author import text_of

SHOWN = "[...document.querySelectorAll('.reads .block')].map(one => one.textContent).join('')"
REPLACE = "([kind, text]) => window.promptCacheStudio.workspace.editors[kind].replace(text)"
CARET = """kind => { const { state } = window.promptCacheStudio.workspace.editors[kind].view
  return state.doc.sliceString(state.selection.main.head, state.selection.main.head + 12) }"""
REVEAL = """words => { const { schema } = window.promptCacheStudio.workspace.editors
  schema.reveal(schema.text().indexOf(words)) }"""
CLICK = """word => {
  const walker = document.createTreeWalker(document.querySelector(".reads-text"), NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const at = walker.currentNode.data.indexOf(word)
    if (at < 0) continue
    const range = document.createRange()
    range.setStart(walker.currentNode, at)
    range.setEnd(walker.currentNode, at + 1)
    walker.currentNode.parentElement.scrollIntoView({ block: "center" })
    const box = range.getBoundingClientRect()
    return [box.left + 1, box.top + box.height / 2]
  }
}"""


def reads(page: Page) -> str:
    """Opens the tab; the text that it shows."""
    page.get_by_role("tab", name="What the model reads").click()
    expect(page.locator(".reads .passage").first).to_be_visible()
    return str(page.evaluate(SHOWN))


def click(page: Page, word: str, kind: str) -> None:
    """Clicks the first character of a word of the text, which opens its document."""
    tab = page.get_by_role("tab", name=kind.title(), exact=True)
    for _ in range(100):  # the text may move meanwhile
        if place := page.evaluate(CLICK, word):
            page.mouse.click(*place)
        page.wait_for_timeout(100)
        if tab.get_attribute("aria-selected") == "true":
            return
    raise AssertionError(f"{word} opens no {kind}")


def at_caret(page: Page, kind: str, words: str) -> None:
    """Waits until the caret stands before some words of a document."""
    becomes(page, f"kind => ({CARET})(kind).slice(0, {len(words)})", words, kind)


def test_the_text_leads_to_its_sources(author: Page) -> None:
    text = reads(author)
    assert text.startswith("<s><|im_start|>system\nYou are a travel planner")
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert "I would like to travel for 3 days in total." in text
    expect(author.locator(".reads").get_by_role("list", name="Legend")).to_be_in_viewport(ratio=1)
    for name in ("Tokens", "White space"):
        button = author.get_by_role("button", name=name, exact=True)
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
    expect(author.locator(".reads .token").first).to_be_visible()
    expect(author.locator(".reads .space").nth(9)).to_be_attached()
    becomes(author, SHOWN, text)
    for name in ("Tokens", "White space"):
        author.get_by_role("button", name=name, exact=True).click()
    expect(author.locator(".reads").locator(".token, .space")).to_have_count(0)

    held: list[Route] = []

    def hold(route: Route) -> None:
        first = not held and "read_prompt" in (route.request.post_data or "")
        held.append(route) if first else route.continue_()

    author.route(QUESTIONS, hold)
    prompt = text_of(author, "prompt")
    with author.expect_request(lambda request: "read_prompt" in (request.post_data or "")):
        author.evaluate(REPLACE, ["prompt", prompt.replace("surf spots.", "surf spots. And then?")])
    author.get_by_role("button", name="Tokens", exact=True).click()
    came(author, held).continue_()
    expect(author.locator(".reads-text")).to_contain_text("And then?")
    expect(author.locator(".reads .token").first).to_be_visible()
    unrouted(author)
    author.get_by_role("button", name="Tokens", exact=True).click()
    author.evaluate(REPLACE, ["prompt", prompt])
    author.wait_for_function(f"text => {SHOWN} === text", arg=text)

    author.get_by_role("tab", name="Schema").click()
    for tag, said in (("overseas", r"\d+ tokens, \d+ of its own · "), ("domestic", r"\d+ tokens · not yet")):
        author.evaluate(REVEAL, f'<module name="{tag}"')
        author.get_by_text(f'"{tag}"', exact=True).first.hover()
        expect(author.locator(".cm-help")).to_have_text(re.compile(said))
    author.get_by_role("tab", name="What the model reads").click()

    for word, kind in (("Asakusa is low", "schema"), ("surf spots.", "prompt")):
        click(author, word, kind)
        at_caret(author, kind, word.split()[0])
        assert text_of(author, kind)[:1] == "<"
        reads(author)
    author.locator(".reads-text").focus()
    readout = author.locator(".reads-readout")
    for words in ("chat template", "chat template", "fixed text"):
        author.keyboard.press("ArrowDown")
        expect(readout).to_contain_text(words)
    expect(readout).to_contain_text(re.compile(r"\d tokens at [\d–]+ · .*encoded after"))
    author.keyboard.press("Enter")
    expect(author.get_by_role("tab", name="Schema", exact=True)).to_have_attribute("aria-selected", "true")
    at_caret(author, "schema", "You are a tr")


@pytest.mark.long
def test_the_text_follows_the_documents_and_outlives_their_errors(author: Page) -> None:
    reads(author)
    body, note = author.locator(".reads-text"), author.locator(".reads-note")
    prompt = text_of(author, "prompt")
    body.evaluate("node => { node.scrollTop = 300 }")
    author.evaluate(REPLACE, ["prompt", prompt.replace("Highlight", "Name<")])
    expect(note).to_contain_text("From the last valid text. E")
    expect(body).to_contain_text("Highlight the surf spots.")
    author.evaluate(REPLACE, ["prompt", prompt.replace("Highlight", "Name")])
    expect(body).to_contain_text("Name the surf spots.")
    expect(note).to_be_hidden()
    assert body.evaluate("node => node.scrollTop") == 300

    note_of = "It rained on that day.\n" * 12
    many = "".join(f'<module name="m{n}">Note {n}. {note_of}</module>\n' for n in range(80))
    end = '<module name="x">end</module><module name="y">Stop</module>'
    picks = "".join(f"<m{n}/>" for n in range(80))
    author.evaluate(REPLACE, ["schema", f'<schema name="long"><user>{many}{end}</user></schema>'])
    author.evaluate(REPLACE, ["prompt", f'<prompt schema="long">{picks}<x/><y/></prompt>'])
    expect(body).to_contain_text("Note 79. It rained")
    assert author.locator(".reads .block").count() > 5
    author.get_by_role("button", name="Tokens", exact=True).click()
    expect(author.locator(".reads .token").first).to_be_visible()
    assert 0 < author.locator(".reads .token").count() < 3000  # of twice as many
    author.get_by_role("button", name="1 place to check").click()
    expect(author.locator(".reads-readout")).to_contain_text("Words run together: 'endStop'")
    expect(author.locator(".reads .passage.meets.current")).to_be_in_viewport()


@pytest.mark.long
def test_another_schema_with_errors_takes_the_place_of_the_last_one(author: Page) -> None:
    reads(author)
    expect(author.locator(".reads-text")).to_contain_text("surf spots")
    schema = '<schema name="bakery"><module name="bread">Rye & wheat.</module></schema>'
    author.evaluate(REPLACE, ["schema", schema])
    author.evaluate(
        REPLACE, ["prompt", '<prompt schema="bakery"><bread/>\n  <user>How much?</user>\n</prompt>']
    )
    note = author.locator(".reads-note")
    expect(note).to_contain_text("Shown when both documents have no errors.")
    expect(author.locator(".reads-text")).not_to_contain_text("surf spots")
    author.get_by_role("tab", name="Prompt").click()
    expect(author.locator(".panel.prompt .status")).to_have_text("no problems")


def test_the_strip_names_its_parts_and_leads_to_them(author: Page) -> None:
    track, readout = author.locator(".strip .track"), author.locator(".strip .readout")
    expect(track.locator(".name", has_text="tokyo")).to_be_visible()
    expect(author.locator(".strip .axis")).to_contain_text(re.compile(r"200.*1,\d{3} tokens"))
    narrow = track.locator(".piece.argument").evaluate("node => node.clientWidth")
    author.get_by_role("button", name="Equal", exact=True).click()
    wider = "narrow => document.querySelector('.strip .piece.argument').clientWidth > narrow"
    becomes(author, wider, True, narrow)
    track.focus()
    for _ in range(3):
        author.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("trip-plan:duration")
    author.keyboard.press("Enter")
    at_caret(author, "prompt", "duration")
    track.locator(".piece", has_text="tokyo").hover()
    expect(readout).to_contain_text(
        re.compile("run to see what it saves|estimated from run|measured by run [0-9]+")
    )
    track.locator(".piece", has_text="tokyo").click()
    at_caret(author, "schema", "Welcome to T")
