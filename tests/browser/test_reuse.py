"""Scopes, repairs, and what reuse changed, on the Author page."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from engine.pml import parse_schema
from tests.browser.test_author import rewrite, text_of, wait_for_text


def measure(page: Page) -> None:
    page.locator("#explain").click()
    expect(page.locator(".explained .advice")).to_be_visible(timeout=120_000)


def test_settings_of_reuse_reach_the_run(author: Page) -> None:
    author.get_by_role("button", name="Settings").click()
    author.get_by_label("New tokens, at most").fill("4")
    author.get_by_role("combobox", name="Repair").fill("link:2")
    author.get_by_role("combobox", name="Scope").select_option("scaffold")
    author.get_by_role("combobox", name="Earlier turns").select_option("disk")
    author.get_by_label("Stop before").fill("\\n")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=120_000)
    expect(author.locator(".run-title")).to_contain_text("scaffold · link:2")
    expect(author.locator(".verdicts dd").nth(1)).to_have_text("0")


def test_a_repair_that_is_none_is_refused_by_the_drawer(author: Page) -> None:
    author.get_by_role("button", name="Settings").click()
    author.get_by_role("combobox", name="Repair").fill("much")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("out of its range")


def test_what_reuse_changed_is_measured_and_mended(author: Page) -> None:
    # asked for somebody whom no picked note is about, the cached side reads the notes otherwise
    author.evaluate("location.hash = '#/gallery'")
    author.get_by_role("button", name="Open Documents with prompt 2").click()
    wait_for_text(author, "prompt", "dune-mills")
    prompt = text_of(author, "prompt")
    question = "Which pet does Tomas Brekk keep?"
    rewrite(author, "prompt", re.sub("<user>.*</user>", f"<user>{question}</user>", prompt))
    author.get_by_role("button", name="Settings").click()
    author.get_by_label("New tokens, at most").fill("12")
    author.get_by_role("combobox", name="Scope").select_option("isolated")
    measure(author)
    rows = author.get_by_role("region", name="Fidelity by module").locator("tbody tr")
    expect(rows.first).to_contain_text("anonymous text")
    assert rows.count() >= 3
    tried = author.get_by_role("region", name="What was tried")
    tried.get_by_role("button", name="Use").first.click()
    expect(author.get_by_role("combobox", name="Repair")).to_have_value(re.compile(r"(link|blend|query):"))
    tried.get_by_role("button", name="Add to schema").first.click()
    wait_for_text(author, "schema", r"<scaffold modules=")
    assert parse_schema(text_of(author, "schema")).ok
    author.get_by_role("combobox", name="Scope").select_option("scaffold")
    author.locator("#explain").click()
    expect(author.locator(".explained .advice")).to_contain_text("nothing to mend", timeout=120_000)


def test_a_measurement_of_a_broken_prompt_is_refused_in_words(author: Page) -> None:
    author.get_by_role("textbox", name="Prompt document").click()
    author.keyboard.press("Control+End")
    author.keyboard.insert_text("<")
    author.locator("#explain").click()
    expect(author.locator(".explanation .bar [role=status]")).to_contain_text("E1", timeout=30_000)
