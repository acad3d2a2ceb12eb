"""Formatting and exporting on the Author page."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from benchmarks.speed.editor import schema_of
from engine.pml import parse_schema
from engine.pml.edit.formatter import format_source
from engine.programs import compile_source
from tests.browser.conftest import QUESTIONS, Watched, unrouted
from tests.browser.test_author import document, rewrite, text_of, wait_for_text

LOOSE = '<schema  name="a"><module name="m" >text</module>\n<module name="n">more</module></schema>'


def open_export(page: Page, form: str) -> None:
    page.get_by_role("button", name="File").click()
    page.get_by_role("menuitem", name="Export…").click()
    page.get_by_label("Format", exact=True).select_option(form)


def test_a_document_is_formatted_as_one_step_of_undo_unless_it_is_broken(author: Page) -> None:
    rewrite(author, "schema", LOOSE)
    button = author.get_by_role("region", name="Schema").get_by_role("button", name="Format")
    for format_it in (lambda: author.keyboard.press("Shift+Alt+f"), button.click):
        format_it()
        wait_for_text(author, "schema", r"\n  <module name=\"m\">text</module>\n")
        assert text_of(author, "schema") == format_source(LOOSE)
        document(author, "schema").press("Control+z")
        wait_for_text(author, "schema", re.escape(LOOSE))
    broken = LOOSE.replace("</schema>", "")
    rewrite(author, "schema", broken)
    author.keyboard.press("Shift+Alt+f")
    expect(author.locator(".notice")).to_contain_text("was not formatted")
    assert text_of(author, "schema").startswith(broken)


def test_every_form_is_shown_and_downloads_parse(author: Page) -> None:
    schema = parse_schema(text_of(author, "schema")).tree
    open_export(author, "anthropic")
    shown = author.locator("dialog.export pre")
    expect(shown).to_contain_text("cache_control")
    expect(author.locator("dialog.export ul")).to_contain_text("characters stand before")
    assert json.loads(shown.inner_text())["messages"]
    for form, check in (
        ("python", lambda text: compile_source(text).schema() == schema),
        ("pml", lambda text: parse_schema(text).tree == schema),
        ("openai", lambda text: json.loads(text)["messages"][0]["role"] == "system"),
        ("jinja", lambda text: "{% block user %}" in text),
        ("text", lambda text: text.startswith("System: ")),
    ):
        author.get_by_label("Format", exact=True).select_option(form)
        expect(author.locator("dialog.export button.primary")).to_be_enabled()
        with author.expect_download() as download:
            author.locator("dialog.export button.primary").click()
        assert check(download.value.path().read_text(encoding="utf-8")), form
    author.context.grant_permissions(["clipboard-read", "clipboard-write"])
    dialog = author.locator("dialog.export")
    dialog.get_by_role("button", name="Copy").click()
    expect(dialog).to_contain_text("Copied.")
    assert author.evaluate("navigator.clipboard.readText()").startswith("System: ")
    author.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    rewrite(author, "prompt", "<prompt><atlantis/></prompt>")
    open_export(author, "openai")
    expect(dialog).to_contain_text("E402")
    expect(dialog.locator("button.primary")).to_be_disabled()


@pytest.mark.long
def test_a_mistake_in_2000_lines_is_marked(author: Page) -> None:
    source = schema_of(2000)
    assert source.count("\n") == 2000
    rewrite(author, "schema", source)
    expect(author.locator(".panel.schema .status")).to_have_text("no problems")
    author.keyboard.type("<modul")
    expect(author.locator(".panel.schema .status")).to_contain_text("error")


@pytest.mark.long
def test_modules_are_found_by_their_text(author: Page) -> None:
    guide = '<module name="install">Run the installer.</module> <module name="faq">The disk is full.</module>'
    modules = f'<module name="guide">{guide}</module><module name="api">The installer has a flag.</module>'
    rewrite(author, "schema", f'<schema name="docs">{modules}</schema>')
    rewrite(author, "prompt", '<prompt schema="docs"/>')
    expect(author.locator(".tree .row")).to_have_count(4)
    field = author.get_by_role("searchbox", name="Find modules by their text")
    field.fill("installer flag")
    shown = author.locator(".tree .row:visible .name")
    expect(shown).to_have_text(["guide", "install", "api"])
    expect(author.locator(".tree .row:visible .rank")).to_have_text(["", "2", "1"])
    author.locator(".tree .row:visible input").last.click()
    wait_for_text(author, "prompt", "<api/>")
    expect(shown).to_have_count(3)
    field.fill('zebra "')
    expect(author.locator(".picker > .empty")).to_have_text("No modules match.")
    expect(shown).to_have_count(0)
    field.fill("")
    expect(shown).to_have_count(4)


def test_a_draft_that_is_kept_at_last_takes_its_notice_back(author: Page, watched: Watched) -> None:
    def answer(route: Route) -> None:
        broken = "save_draft" in (route.request.post_data or "")
        route.fulfill(status=500, body="broken") if broken else route.continue_()

    author.route(QUESTIONS, answer)
    rewrite(author, "prompt", '<prompt schema="travel"/>')
    expect(author.locator(".notices")).to_contain_text("server failed")
    expect(author.locator(".notices")).not_to_contain_text("does not answer")
    expect(author.locator(".workspace-name .saved")).to_have_text("Draft not saved")
    unrouted(author)
    expect(author.locator(".workspace-name .saved")).to_contain_text("Draft saved")
    expect(author.locator(".notices")).to_be_empty()
    assert all("500" in line for line in watched.complaints)
    watched.complaints.clear()


def test_a_check_without_a_change_leaves_the_buttons_of_fixes_in_place(author: Page) -> None:
    rewrite(author, "schema", '<schema name="a"><modul name="m">text</modul></schema>')
    fix = author.get_by_role("list", name="Problems in the schema").get_by_role(
        "button", name=re.compile("fixes E")
    )
    expect(fix).to_have_count(1)
    button = fix.element_handle()
    rewrite(author, "prompt", '<prompt schema="a"><atlantis/></prompt>')
    expect(author.locator(".panel.prompt .status")).to_contain_text("error")
    rewrite(author, "prompt", '<prompt schema="a"/>')
    expect(author.locator(".panel.prompt .status")).not_to_contain_text("error")
    assert button.evaluate("one => one.isConnected")


def test_a_quick_fix_mends_both_tags_and_loses_nothing(author: Page) -> None:
    source = '<schema name="a">\n<modul name="m">text</modul>\n<module name="n">more\n</schema>'
    rewrite(author, "schema", source)
    status = author.locator(".panel.schema .status")
    expect(status).to_contain_text("2 errors")
    author.keyboard.press("Control+Home")
    author.keyboard.press("F8")
    author.keyboard.press("Control+.")
    wait_for_text(author, "schema", "</module>\n<module")
    expect(status).to_contain_text("1 error")
    author.locator(".panel.schema .cm-lintRange-error").first.hover()
    author.locator(".cm-diagnosticAction", has_text="Write </module>").click()
    expect(status).to_have_text("no problems")
    mended = '<schema name="a">\n<module name="m">text</module>\n<module name="n">more\n</module></schema>'
    assert text_of(author, "schema") == mended
    author.keyboard.press("Control+z")
    author.keyboard.press("Control+z")
    expect(status).to_contain_text("2 errors")
    problems = author.get_by_role("list", name="Problems in the schema")
    for left in ("1 error", "no problems"):
        problems.get_by_role("button", name=re.compile("fixes E")).first.click()
        expect(status).to_contain_text(left)
        expect(author.get_by_role("textbox", name="Schema document")).to_be_focused()
    assert text_of(author, "schema") == mended
    expect(problems).to_be_hidden()


def test_of_several_repairs_a_person_chooses_and_each_can_be_undone(author: Page) -> None:
    rewrite(author, "schema", '<schema name="a"><user><module name="tone">Be brief.</module></user></schema>')
    source = '<prompt schema="a"><tone>Where?</prompt>'
    rewrite(author, "prompt", source)
    problems = author.get_by_role("list", name="Problems in the prompt")
    repairs = problems.get_by_role("button", name=re.compile("fixes E105"))
    expect(repairs).to_have_count(2)
    author.keyboard.press("Control+Home")
    author.keyboard.press("F8")
    author.keyboard.press("Control+.")
    expect(repairs.first).to_be_focused()
    preview = author.locator(".fix-preview:popover-open")
    expect(preview.locator("ins")).to_have_text(source.replace("<tone>", "<tone/>"))
    expect(preview.locator("li")).to_have_text(["user · tone Be brief.", "user · text Where?"])
    places = repairs.evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    covered = preview.evaluate("node => node.getBoundingClientRect().bottom")
    assert covered <= min(places), "the preview leaves both repairs in view"
    assert text_of(author, "prompt") == source
    for place, after in enumerate((source.replace("<tone>", "<tone/>"), source.replace("?", "?</tone>"))):
        repairs.nth(place).click()
        wait_for_text(author, "prompt", re.escape(after))
        expect(repairs).to_have_count(0)
        author.keyboard.press("Control+z")
        wait_for_text(author, "prompt", re.escape(source))
        expect(repairs).to_have_count(2)
