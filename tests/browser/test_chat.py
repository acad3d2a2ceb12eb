"""The Chat tab: turns over the prompt, branches, what an error and a reload leave, and the prompt."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import QUESTIONS, reloaded, unrouted
from tests.browser.test_author import LONG_RUN_MS, few_tokens, rewrite, text_of
from tests.browser.test_axe import violations


def say(page: Page, words: str, turns: int) -> None:
    """Sends a message and waits for the answer, after which there are some turns."""
    box, last = page.get_by_label("Message", exact=True), page.locator(".exchange").last
    box.fill(words)
    box.press("Enter")
    expect(last).to_contain_text(words)
    expect(last.get_by_role("button", name=f"Copy answer {turns}")).to_be_visible(timeout=LONG_RUN_MS)


def test_a_chat_goes_on_from_an_answer_and_keeps_its_branches(author: Page) -> None:
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 6, repeats: 1})")
    before = text_of(author, "prompt")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done.", timeout=LONG_RUN_MS)
    first = author.get_by_role("region", name="Cached answer", exact=True).inner_text()
    author.get_by_role("tab", name="Chat").click()
    log, box = author.get_by_role("log"), author.get_by_label("Message", exact=True)
    expect(log).to_contain_text("Highlight the surf spots.")
    expect(author.locator(".exchange .answered .turn-text")).to_have_text(first)
    expect(box).to_have_value("")
    say(author, "And the <b>food</b>?", 2)
    expect(log.locator("b")).to_have_count(0)
    figures = author.locator(".exchange").last.locator(".turn-figures")
    stored = re.search(r"from the cache\s+([\d,]+) tokens", figures.inner_text())
    assert stored
    assert int(stored[1].replace(",", "")) > 1000, "the modules and the first turn were stored"
    expect(author.locator(".chat-left")).to_contain_text("tokens left")
    author.get_by_role("button", name="Edit").last.click()
    expect(box).to_be_focused()
    say(author, "And the temples?", 2)
    expect(author.locator(".turn-versions")).to_contain_text("2 of 2")
    author.get_by_role("button", name="Earlier version of question 2").click()
    expect(log).to_contain_text("And the <b>food</b>?")
    assert violations(author, "a chat", ".chat") == []
    author.get_by_role("button", name="Use as prompt").last.click()
    expect(author.locator(".chat-status")).to_contain_text("Undo")
    assert "<user>And the &lt;b>food&lt;/b>?</user>\n</prompt>" in text_of(author, "prompt")
    author.evaluate("window.promptCacheStudio.workspace.editors.prompt.undo()")
    assert text_of(author, "prompt") == before


def test_an_error_and_a_reload_lose_no_message(author: Page) -> None:
    few_tokens(author)
    rewrite(author, "prompt", '<prompt schema="travel"><user>Where is the lake?</user></prompt>')
    author.get_by_role("tab", name="Chat").click()
    author.get_by_role("button", name="New chat").click()
    box = author.get_by_label("Message", exact=True)
    expect(box).to_have_value("Where is the lake?")
    say(author, "Where is the sea?", 1)

    def refuse(route: Route) -> None:
        asks = '"ask_chat"' in (route.request.post_data or "")
        route.fulfill(json={"error": "The disk is full."}) if asks else route.continue_()

    author.route(QUESTIONS, refuse)
    box.fill("And the mountains?")
    box.press("Enter")
    expect(author.locator(".chat-status")).to_have_text("The disk is full.")
    expect(box).to_have_value("And the mountains?")
    unrouted(author)
    reloaded(author)
    expect(box).to_have_value("And the mountains?")
    expect(author.get_by_role("log")).to_contain_text("Where is the sea?")
    author.get_by_role("button", name="Chats", exact=True).click()
    assert violations(author, "the stored chats", ".chat") == []
    author.get_by_role("button", name="Delete the chat “Where is the sea?”").first.click()
    author.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(author.get_by_role("button", name="Delete the chat “Where is the sea?”")).to_have_count(0)
