"""The Decide tab: questions of the form and of the prompt, errors at their fields, bars, and a reload."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import reloaded
from tests.browser.test_author import LONG_RUN_MS, rewrite
from tests.browser.test_axe import violations

OWN = (
    '<prompt schema="travel"><decide type="choice">Which <i>city</i>?'
    '<option value="Rome"/><option value="Tokyo"/></decide></prompt>'
).replace("<i>city</i>", "&lt;i>city&lt;/i>")


def test_both_sides_decide_and_a_reload_loses_nothing(author: Page) -> None:
    author.get_by_role("tab", name="Decide").click()
    panel, button = author.get_by_role("region", name="Decide"), author.locator(".decide-foot .primary")
    expect(panel).to_contain_text("It generates no text.")
    question = panel.get_by_label("Question", exact=True)
    question.fill("How <b>busy</b> is it?")
    panel.get_by_label("Kind of question 1").select_option("score")
    levels = panel.get_by_label("Levels from the lowest, one a line")
    levels.fill("calm\ncalm\n")
    button.click()
    expect(levels).to_be_focused()
    expect(levels).to_have_attribute("aria-invalid", "true")
    expect(panel.locator(".decide-error:visible")).to_have_text(
        "The question has the option 'calm' twice; every label must differ."
    )
    levels.fill("calm\nbusy")
    expect(panel.locator(".decide-error:visible")).to_have_count(0)
    question.press("Enter")
    group = panel.get_by_role("region", name="How <b>busy</b> is it?")
    expect(group.locator("[data-best] .decide-value")).to_have_count(2, timeout=LONG_RUN_MS)
    expect(group.locator("b")).to_have_count(0)
    expect(group.locator("tbody td").first).to_contain_text("%")
    expect(group.locator("tfoot")).to_contain_text("Average level (0 = calm, 1 = busy)")
    assert violations(author, "decisions", ".decide") == []
    shown = panel.locator(".decide-result").inner_text()
    reloaded(author)
    expect(question).to_have_value("How <b>busy</b> is it?")
    expect(levels).to_have_value("calm\nbusy")
    expect(panel.locator(".decide-sides")).to_be_visible()
    assert panel.locator(".decide-result").inner_text() == shown
    question.fill("word " * 9000)
    button.click()
    status = panel.locator(".decide-status")
    expect(status).to_contain_text("reads at most", timeout=LONG_RUN_MS)
    reloaded(author)
    expect(status).to_contain_text("reads at most")
    assert panel.locator(".decide-result").inner_text() == shown, "a failed run keeps the earlier result"
    rewrite(author, "prompt", OWN)
    expect(panel.locator(".decide-own")).to_contain_text("Which <i>city</i>? Choice: Rome, Tokyo")
    expect(panel.locator(".decide-age")).to_contain_text("earlier text of the prompt")
    button.click()
    expect(panel.get_by_role("region", name="Which <i>city</i>?")).to_be_visible(timeout=LONG_RUN_MS)
    expect(panel.locator(".decide-age")).to_have_text("")


def test_the_author_page_shows_what_decide_encoded_and_a_changed_question(author: Page) -> None:
    rewrite(author, "schema", '<schema name="mood"><module name="m">ten cold words</module></schema>')
    rewrite(author, "prompt", '<prompt schema="mood"><m/>Go.</prompt>')
    missing = author.locator(".strip .legend li", has_text="not cached yet")
    expect(missing).to_be_visible()
    author.get_by_role("tab", name="Decide").click()
    panel = author.get_by_role("region", name="Decide")
    panel.get_by_label("Question", exact=True).fill("Is it cold?")
    panel.get_by_label("Kind of question 1").select_option("predicate")
    panel.locator(".decide-foot .primary").click()
    expect(panel.locator(".decide-verdict")).to_be_visible(timeout=LONG_RUN_MS)
    expect(missing).to_be_hidden()
    age = panel.locator(".decide-age")
    expect(age).to_have_text("")
    panel.get_by_label("Kind of question 1").select_option("choice")
    expect(age).to_have_text("Decided with other questions. Decide again.")
    reloaded(author)
    expect(panel.locator(".decide-verdict")).to_be_visible()
    expect(age).to_have_text("Decided with other questions. Decide again.")
    panel.get_by_label("Kind of question 1").select_option("predicate")
    expect(age).to_have_text("")


def test_the_readout_and_the_descriptions_of_options_survive_a_reload(author: Page) -> None:
    author.get_by_role("tab", name="Decide").click()
    panel = author.get_by_role("region", name="Decide")
    panel.get_by_label("Question", exact=True).fill("Which city?")
    panel.get_by_label("Kind of question 1").select_option("choice")
    panel.get_by_label("Options, one a line").fill("Rome\nTokyo\nBonn")
    panel.get_by_text("Descriptions, which the model reads").click()
    panel.get_by_label("Tokyo").fill("in <b>Japan</b>")
    panel.get_by_text("Readout").click()
    orders, score = panel.get_by_label("Orders of options"), panel.get_by_label("Score temperature")
    orders.fill("65")
    panel.locator(".decide-foot .primary").click()
    expect(orders).to_be_focused()
    expect(panel.locator(".decide-status")).to_have_text(
        "Orders of options must be a whole number, at least 1 and at most 64."
    )
    orders.fill("3")
    score.fill("50")
    assert violations(author, "readout", ".decide") == []
    panel.locator(".decide-foot .primary").click()
    group = panel.get_by_role("region", name="Which city?")
    expect(group.locator("tbody tr")).to_have_count(3, timeout=LONG_RUN_MS)
    author.evaluate("window.promptCacheStudio.workspace.save()")
    reloaded(author)
    expect(panel.locator(".readout summary")).to_have_text("Readout (2 changed)")
    expect(panel.get_by_label("Tokyo")).to_have_value("in <b>Japan</b>")
    panel.get_by_text("Readout").click()
    expect(orders).to_have_value("3")
    orders.fill("2")
    expect(panel.locator(".decide-age")).to_contain_text("other settings (Orders of options)")
    author.get_by_role("button", name="Settings").click()
    expect(author.locator("#run-settings .field")).not_to_have_count(0)
    expect(author.locator("#run-settings").get_by_label("Orders of options")).to_have_count(0)


def test_the_rows_of_a_batch_show_decisions_and_their_accuracy(author: Page) -> None:
    author.evaluate("location.hash = '#/batch'")
    author.get_by_role("radio", name="Table").check()  # an earlier test may have left a grid
    author.get_by_label("Table of rows, as CSV or JSON Lines").fill(
        "id,text,gold\na,<i>One</i>.,yes\nb,Two.,no\n" + "".join(f"c{at},Three.,yes\n" for at in range(8))
    )
    expect(author.locator(".read")).to_contain_text("10 rows")
    part = author.locator("details.batch-part", has_text="Decide about each row")
    part.locator("summary").first.click()
    part.get_by_label("Question", exact=True).fill("Is it a number?")
    part.get_by_role("button", name="Decide", exact=True).click()
    rows = part.locator(".table tbody tr")
    expect(rows).to_have_count(10, timeout=LONG_RUN_MS)
    expect(rows.first).to_contain_text("<i>One</i>.")
    expect(part.locator(".decide-sides").first).to_contain_text("% of 10 rows")
    chart = part.get_by_role("img", name="Share of right answers by confidence for “Is it a number?”")
    expect(chart.locator(".points path").first).to_be_attached()
    part.get_by_role("button", name="Fit temperature").click()
    fitted = part.get_by_role("region", name="Fitted temperature")
    expect(fitted.locator("tbody tr")).to_have_count(2)
    assert violations(author, "decisions of rows", "details.batch-part") == []
    value = fitted.locator("tbody td").first.inner_text()
    fitted.get_by_role("button", name="of the cached side").click()
    expect(part.get_by_label("Score temperature")).to_have_value(value)
    with author.expect_download() as saved:
        part.get_by_role("button", name="Save as CSV").click()
    first = saved.value.path().read_text(encoding="utf-8-sig").splitlines()[0]
    assert first.startswith("id,line,picks,text,gold,error,cached answer,cached answer: yes,")
    shown = rows.first.inner_text()
    author.evaluate("localStorage.clear()")
    reloaded(author)
    part.locator("summary").first.click()
    expect(rows).to_have_count(10)
    assert rows.first.inner_text() == shown
    stored = author.locator(".batch-earlier")
    stored.locator("summary").click()
    expect(stored.locator("tbody tr").first).to_contain_text("decisions")


@pytest.mark.parametrize("width", [1440, pytest.param(390, marks=pytest.mark.long)])
def test_decisions_that_were_stopped_go_on(author: Page, width: int) -> None:
    author.set_viewport_size({"width": width, "height": 1000})
    author.evaluate("location.hash = '#/batch'")
    lines = "".join(f"Text {number} of many.,yes\n" for number in range(20))
    author.get_by_role("radio", name="Table").check()  # an earlier test may have left a grid
    author.get_by_label("Table of rows, as CSV or JSON Lines").fill(f"text,gold\n{lines}")
    expect(author.locator(".read")).to_contain_text("20 rows")
    part = author.locator("details.batch-part", has_text="Decide about each row")
    part.locator("summary").first.click()
    part.get_by_label("Question", exact=True).fill("Is it a number?")
    part.get_by_role("button", name="Decide", exact=True).click()
    expect(part.locator(".decide-form .decide-status")).to_contain_text("of 20: deciding…")
    part.get_by_role("button", name="Stop").click()
    part.get_by_text("Stopped: ").wait_for(timeout=LONG_RUN_MS)
    again = part.get_by_role("button", name="Decide the other ")
    expect(again).to_be_visible()
    assert author.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    again.click()
    expect(part.locator(".decide-result")).to_contain_text("20 of 20 rows decided.", timeout=LONG_RUN_MS)
