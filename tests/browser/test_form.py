"""The form view: what is edited there is in both documents, by mouse and by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import becomes
from tests.browser.test_author import rewrite, text_of
from tests.browser.test_axe import violations

SCHEMA = """<schema name="tea">
  <user>
    Facts. <!-- kept -->
    <module name="green">
      Green &amp; <param name="price" len="4"/>.
    </module>
    <union>
      <module name="hot">Hot.</module>
      <module name="iced">Iced.</module>
    </union>
  </user>
</schema>
"""
PROMPT = '<prompt schema="tea">\n  <green price="2"/>\n  <user>Which?</user>\n</prompt>\n'
TEXT = "kind => window.promptCacheStudio.workspace.texts()[kind]"


@pytest.fixture
def form(author: Page) -> Locator:
    """The form of a schema with a parameter and a choice."""
    rewrite(author, "schema", SCHEMA)
    rewrite(author, "prompt", PROMPT)
    author.get_by_role("tab", name="Form").click()
    found = author.get_by_role("region", name="Form", exact=True)
    expect(found.get_by_role("textbox", name="Name of module iced")).to_be_visible()
    return found


def test_the_form_writes_both_documents_and_undo_takes_it_back(author: Page, form: Locator) -> None:
    question = form.get_by_role("textbox", name="Question")
    question.fill("Which one, <a> or b?")
    becomes(author, TEXT, PROMPT.replace("Which?", "Which one, &lt;a> or b?"), "prompt")
    text = form.get_by_role("textbox", name="Text of module green")
    expect(text).to_have_value("Green & {{price}}.")
    text.press("End")
    author.keyboard.type("\nAlso {{size}} <")
    written = SCHEMA.replace('"/>.\n', '"/>.\n      Also <param name="size" len="10"/> &lt;\n')
    becomes(author, TEXT, written, "schema")
    expect(text).to_be_focused()
    name = form.get_by_role("textbox", name="Name of module green")
    name.fill("hot")
    name.press("Tab")
    expect(name).to_have_accessible_description(re.compile("'hot' is already defined"))
    expect(name).to_have_value("hot")
    name.press("Escape")
    expect(name).to_have_value("green")
    name.fill("sencha")
    name.press("Tab")
    becomes(author, TEXT, written.replace('"green"', '"sencha"'), "schema")
    assert '<sencha price="2"/>' in text_of(author, "prompt")
    form.get_by_role("radio", name="iced in the prompt").click()  # an earlier check may redraw it
    author.wait_for_function("window.promptCacheStudio.workspace.texts().prompt.includes('<iced/>')")
    author.keyboard.press("Control+z")
    becomes(author, TEXT, written.replace('"green"', '"sencha"'), "schema")
    expect(form.get_by_role("radio", name="iced in the prompt")).not_to_be_checked()
    author.keyboard.press("Control+z")
    becomes(author, TEXT, written, "schema")
    assert '<green price="2"/>' in text_of(author, "prompt")
    author.keyboard.press("Control+y")
    becomes(author, TEXT, written.replace('"green"', '"sencha"'), "schema")


def test_a_button_adds_a_parameter_at_the_caret(author: Page, form: Locator) -> None:
    text = form.get_by_role("textbox", name="Text of module hot")
    text.press("Home")
    form.get_by_text("Add to module hot").click()
    form.get_by_role("group", name="Module hot").get_by_role("button", name="Parameter").click()
    name = form.get_by_role("textbox", name="Parameter value of hot: name")
    expect(name).to_be_focused()
    expect(text).to_have_value("{{value}} Hot.")
    author.keyboard.type("heat")
    author.keyboard.press("Tab")
    written = SCHEMA.replace(">Hot.", '><param name="heat" len="10"/> Hot.')
    becomes(author, TEXT, written, "schema")
    expect(text).to_have_value("{{heat}} Hot.")


def test_cards_move_and_go_by_keyboard_and_mouse(author: Page, form: Locator) -> None:
    form.get_by_role("textbox", name="Name of module iced").press("Alt+ArrowUp")
    hot, iced = '<module name="hot">Hot.</module>', '<module name="iced">Iced.</module>'
    swapped = SCHEMA.replace(hot, "-").replace(iced, hot).replace("      -\n", f"      {iced}\n")
    becomes(author, TEXT, swapped, "schema")
    expect(form.get_by_role("textbox", name="Name of module iced")).to_be_focused()
    source, target = (
        form.get_by_role("group", name="Module hot"),
        form.get_by_role("group", name="Module iced"),
    )
    source.locator(".grip").first.drag_to(target, target_position={"x": 40, "y": 3})
    becomes(author, TEXT, SCHEMA, "schema")
    form.get_by_role("button", name="Delete module green").click()
    question = author.get_by_role("dialog", name="Delete module green")
    expect(question).to_contain_text("The prompt imports “green”.")
    question.get_by_role("button", name="Delete module green").click()
    becomes(author, TEXT, PROMPT.replace('  <green price="2"/>\n', ""), "prompt")
    assert "<!-- kept -->\n    <union>" in text_of(author, "schema")
    form.locator("summary", has_text="Add").last.click()
    assert violations(author, "the form", ".form-view") == []
    rewrite(author, "schema", SCHEMA.replace("Facts.", "&"))
    author.get_by_role("tab", name="Form").click()
    expect(form).to_contain_text("The schema has an error, so the form cannot edit it. Line 3: a plain '&'")
    assert violations(author, "a form of an invalid schema", ".form-view") == []
    form.get_by_role("button", name="Go to the error in the source").click()
    expect(author.get_by_role("textbox", name="Schema document")).to_be_focused()
    author.get_by_role("tab", name="Form").click()
    form.locator(".form-error:visible button").first.click()
    becomes(author, TEXT, SCHEMA.replace("Facts.", "&amp;"), "schema")
