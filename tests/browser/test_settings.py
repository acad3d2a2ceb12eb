"""The drawer of a run's settings: one policy for what is out of its range, and what becomes of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from app.studio.runs.settings import declarations, described
from tests.browser.conftest import reloaded

KEEP = """async settings => {
  const { workspace } = window.promptCacheStudio
  workspace.change(settings)
  await workspace.save()
}"""
AGREE = """async ([settings, values]) => {
  const scripts = [...document.scripts].map(one => one.src || one.textContent)
  const script = scripts.find(text => text.includes("studio.js"))
  const url = script.match(/[^"'\\s]*studio\\.js/)[0].replace("studio.js", "shell/settings.js")
  const { takes } = await import(new URL(url, location.href).href)
  return settings.map(setting => values.map(value => takes(setting, value)))
}"""
VALUES: list[Any] = [
    *(None, True, False, "", "x", "anchored", "schema", "none", "link:2", "link:2 ", "blend:0.15\n"),
    *(-1, 0, 1, 1.0, 0.01, 0.5, 2, 10, 10.5, 25, 26, 1_000_000, 1_000_001, 2**53 - 1, 2**53, 2**63, 1e300),
    *([], ["a"], [""], ["a", ""], [1], {}),
]


def notice(page: Page) -> Locator:
    return page.locator(".notice[data-notice=settings]")


def opened(page: Page) -> Page:
    page.get_by_role("button", name="Settings").click()
    return page


def test_kept_settings_that_are_not_valid_have_their_defaults_again(author: Page) -> None:
    author.evaluate(KEEP, {"scope": "wide", "temperature": 99, "gone": 1, "top_k": 3})
    reloaded(author)
    said = notice(author)
    expect(said).to_contain_text(
        'Scope was "wide" and must be one of isolated, anchored, preceding, scaffold'
    )
    expect(said).to_contain_text("Temperature was 99 and must be a number, at least 0 and")
    expect(author.locator(".strip .piece").first).to_be_visible()
    opened(author)
    expect(author.get_by_label("Scope")).to_have_value("anchored")
    expect(author.get_by_label("Temperature", exact=True)).to_have_value("0")
    expect(author.get_by_label("Top-k")).to_have_value("3")
    author.get_by_label("Scope").select_option("isolated")
    expect(said).to_be_visible()
    author.get_by_label("Temperature", exact=True).fill("1")
    expect(said).to_have_count(0)
    expect(author.locator(".notice")).to_have_count(0)


@pytest.mark.long
@pytest.mark.parametrize("how", ["dismiss", "leave", "run"])
def test_what_was_set_back_is_said_until_it_is_taken(author: Page, how: str) -> None:
    author.evaluate(KEEP, {"temperature": 99, "max_new_tokens": 2})
    reloaded(author)
    expect(notice(author)).to_contain_text("Temperature was 99 and must be")
    if how == "dismiss":
        notice(author).get_by_role("button", name="Dismiss").click()
    elif how == "leave":
        author.get_by_role("link", name="Cache").click()
        author.get_by_role("link", name="Author").click()
    else:
        author.locator("#run").click()
    expect(notice(author)).to_have_count(0)
    expect(author.locator(".saved")).to_contain_text("Draft saved")
    reloaded(author)
    expect(author.locator(".strip .piece").first).to_be_visible()
    expect(notice(author)).to_have_count(0)


def test_a_value_out_of_its_range_is_said_at_its_field_until_it_is_valid(author: Page) -> None:
    field = opened(author).get_by_label("Top-p")
    field.fill("2")
    field.press("Tab")
    expect(field).to_have_attribute("aria-invalid", "true")
    rule = "Top-p must be a number, above 0 and at most 1."
    expect(field).to_have_accessible_description(re.compile(f"^{rule} Draw from"))
    author.get_by_role("button", name="Settings").click()
    expect(field).to_be_hidden()
    author.locator("#run").click()
    expect(field).to_be_focused()
    status = author.locator(".run-status")
    expect(status).to_have_text(f"Nothing was run. {rule}")
    author.locator("#explain").press("Enter")
    measured = author.locator(".explanation .bar [role=status]")
    expect(measured).to_have_text(f"Nothing was measured. {rule}")
    field.fill("0.5")
    expect(author.locator("#setting-top_p-fault")).to_be_hidden()
    expect(field).not_to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile("^Draw from the likeliest tokens"))
    expect(status).to_be_empty()
    expect(measured).to_be_empty()
    for label, typed, valid in (
        ("Max answer length", "", "2"),
        ("Seed", "1.5", "1"),
        ("Repair", "much", "none"),
    ):
        field = author.get_by_label(label, exact=True)
        field.fill(typed)
        author.keyboard.press("Control+Enter")
        expect(field).to_be_focused()
        expect(status).to_contain_text(f"Nothing was run. {label} must be ")
        expect(field).to_have_accessible_description(re.compile(f"^{label} must be "))
        field.fill(valid)
        expect(status).to_be_empty()


def test_a_seed_is_the_number_that_was_typed_and_other_values_have_their_defaults_again(author: Page) -> None:
    seed = opened(author).get_by_label("Seed")
    expect(seed).to_have_attribute("max", str(2**53 - 1))
    seed.fill(str(2**53 + 1))
    seed.press("Tab")
    rule = f"Seed must be a whole number, at least 0 and at most {2**53 - 1}."
    expect(seed).to_have_accessible_description(re.compile(f"^{rule}"))
    seed.fill(str(2**53 - 1))
    expect(author.locator("#setting-seed-fault")).to_be_hidden()
    author.get_by_label("Temperature", exact=True).fill("11")
    reloaded(author)
    expect(author.get_by_label("Seed")).to_have_value(str(2**53 - 1))
    expect(notice(author)).to_contain_text("Temperature was 11 and must be a number")
    expect(notice(author)).not_to_contain_text("Seed")
    expect(author.get_by_label("Temperature", exact=True)).to_have_value("0")
    author.get_by_label("Seed").press("Escape")
    expect(author.locator("#run-settings")).to_be_hidden()
    expect(author.get_by_role("button", name="Settings")).to_be_focused()
    reloaded(author)
    expect(author.locator("#run-settings")).to_be_hidden()


@pytest.mark.parametrize("width", [1280, pytest.param(400, marks=pytest.mark.long)])
def test_changed_settings_are_marked_and_put_back(author: Page, width: int) -> None:
    author.set_viewport_size({"width": width, "height": 720})
    toggle = author.get_by_role("button", name="Settings")
    form = opened(author).get_by_role("dialog", name="Settings")
    expect(author.get_by_label("Max answer length")).to_be_focused()
    author.keyboard.press("Shift+Tab")
    author.keyboard.press("Shift+Tab")
    expect(form.locator("input").last).to_be_focused()
    author.keyboard.press("Tab")
    expect(form.get_by_role("button", name="Close")).to_be_focused()
    outside = author.evaluate(
        """() => { const { left, right } = document.querySelector(".drawer").getBoundingClientRect()
            return [...document.querySelectorAll(".drawer .field, .drawer .field *")].filter(one => {
                const box = one.getBoundingClientRect()
                return box.width > 1 && (box.left < left || box.right > right + 1) }).length }"""
    )
    assert outside == 0
    assert author.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    sentences = [one["sentence"] for one in described() if one["matters"] != "decided"]
    assert form.locator(".sentence").all_inner_texts() == sentences
    author.get_by_label("Temperature", exact=True).fill("1.5")
    author.get_by_label("Scope").select_option("isolated")
    reuse = author.get_by_role("combobox", name="Reuse")
    expect(reuse).to_have_value("off")
    expect(toggle).to_contain_text("3")
    form.get_by_role("button", name="Reset Temperature").click()
    expect(author.get_by_label("Temperature", exact=True)).to_have_value("0")
    expect(author.get_by_label("Temperature", exact=True)).to_be_focused()
    expect(toggle).to_contain_text("2")
    reuse.select_option("auto")
    expect(author.get_by_label("Scope")).to_have_value("anchored")
    author.get_by_label("Scope").select_option("isolated")
    form.get_by_role("button", name="Reset all").click()
    expect(author.get_by_label("Scope")).to_have_value("anchored")
    expect(reuse).to_have_value("auto")
    expect(form.get_by_role("button", name="Reset all")).to_be_disabled()
    author.keyboard.press("Escape")
    expect(form).to_be_hidden()
    expect(toggle).to_be_focused()
    assert author.evaluate("window.promptCacheStudio.workspace.settings.scope") == "anchored"
    opened(author)
    expect(form).to_be_visible()
    author.evaluate("location.hash = '#/gallery'")
    expect(form).to_be_hidden()
    expect(author.get_by_role("heading", name="Gallery", exact=True)).to_be_focused()
    wanted = [[one.takes(value) for value in VALUES] for one in declarations().values()]
    assert author.evaluate(AGREE, [described(), VALUES]) == wanted, "the page takes what the engine takes"
