"""The Batch page: rows in, answers of both sides beside checks, a summary, and the way to the Author page."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.browser.conftest import QUESTIONS, came, reloaded, unrouted
from tests.browser.test_author import rewrite

ROWS = (
    "id;picks;trip-plan/duration;text;set max_new_tokens;expect contains\r\n"
    "rome;rome;2 days;Make a plan.;6;Here\r\n"
    "lisbon;lisbon;;Make a plan.;6;no such words\r\n"
    "oslo;oslo;;;;\r\n"
)


def open_batch(page: Page) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Batch").click()
    expect(page.get_by_role("heading", name="Batch", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Add a check")).to_be_enabled()  # what was kept is there


def test_a_table_is_answered_judged_kept_and_opened(author: Page, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_bytes(b"\xef\xbb\xbf" + ROWS.encode())
    open_batch(author)
    run = author.locator(".batch-run .primary")
    expect(run).to_be_disabled()
    author.get_by_label("Open a table from this computer").set_input_files(rows)
    faults = author.get_by_role("list", name="Errors in the rows")
    expect(faults).to_contain_text("The schema 'travel' has no module 'oslo'.")
    faults.get_by_role("button", name="Line 4, column picks").click()
    expect(author.get_by_label("Table of rows")).to_be_focused()
    author.get_by_role("button", name="Add a check").click()
    author.get_by_label("Kind of check 1").select_option("max words")
    expect(run).to_have_text("Run 3 rows")
    held = author.get_by_role("region", name="Prompt and settings of every row")
    expect(held).to_contain_text("Reuse auto")
    held.get_by_role("button", name="Change settings").click()
    author.get_by_label("Scope").select_option("scaffold")
    author.keyboard.press("Escape")
    expect(held).to_contain_text("Scope scaffold encodes the modules again for each row:")
    held.get_by_role("button", name="Use scope anchored").click()
    expect(held).to_contain_text("Scope anchored")
    run.click()
    status, looked_for = author.locator(".batch-status"), author.get_by_label("Text of check 1")
    expect(status).to_have_text("Nothing was run. Check 1 has no text.")
    expect(looked_for).to_be_focused()
    expect(author.locator(".check-list")).to_contain_text("Check 1 has no text. Enter a text")
    looked_for.fill("50")
    expect(looked_for).not_to_have_attribute("aria-invalid", "true")
    run.click()
    expect(status).to_have_text("Done: 2 rows answered, 1 failed.", timeout=120_000)
    tiles = author.locator(".tiles")
    expect(tiles).to_contain_text(re.compile(r"Passed, cached1 of 2.*Passed, uncached1 of 2"))
    # The page may go and come: the batch is the server's, and what was filled in is kept.
    reloaded(author)
    expect(author.get_by_label("Table of rows")).to_have_value(re.compile("^id;picks"))
    expect(author.get_by_label("Text of check 1")).to_have_value("50")
    table = author.get_by_role("region", name="Rows of the batch")
    expect(table.locator("tbody tr")).to_have_count(3)
    table.get_by_role("button", name="Question").click()
    expect(table.locator("tbody tr").first).to_contain_text("lisbon")
    find = author.get_by_label("Find rows")
    find.fill("no module oslo")
    expect(table.locator("tbody tr")).to_have_count(1)
    find.fill("")
    author.get_by_role("button", name=re.compile("^Failed checks")).click()
    expect(table.locator("tbody tr")).to_have_count(1)
    good = author.get_by_role("button", name="Good: the cached answer of row lisbon")
    good.click()
    expect(good).to_have_attribute("aria-pressed", "true")
    expect(tiles).to_contain_text("1 row scored")
    table.focus()
    expect(author.locator(".tip:not(.fix-preview)")).to_be_hidden()
    cell = table.get_by_role("button", name="lisbon", exact=True).locator("xpath=..")
    cell.click(position={"x": 3, "y": 3})  # the whole cell opens its row
    expect(author.get_by_role("region", name="Checks of this row")).to_contain_text(
        "✕ It does not contain 'no such words'."
    )
    author.locator(".batch-earlier summary").click()
    earlier = author.get_by_role("region", name="Stored batches")
    name = earlier.get_by_role("textbox").first
    name.fill("Before the change")
    name.press("Enter")
    expect(author.locator(".batch-outcome > header")).to_contain_text("Before the change")
    earlier.get_by_role("button", name="Show Before the change").press("Enter")
    expect(earlier.locator("tr[aria-current=true]")).to_contain_text("2 of 3")
    with author.expect_download() as download:
        author.get_by_role("button", name="Save as CSV").click()
    assert download.value.suggested_filename == "before-the-change.csv"
    assert "lisbon" in Path(download.value.path()).read_text("utf-8-sig")
    author.get_by_role("button", name="Open in Author").click()
    expect(author.get_by_label("Prompt document")).to_contain_text("<lisbon/>")
    open_batch(author)
    expect(author.locator(".batch-age")).to_contain_text("the documents have changed")


@pytest.mark.long
def test_a_grid_tells_its_rows_and_is_stopped_halfway(author: Page) -> None:
    open_batch(author)
    author.get_by_role("radio", name="Grid").check()
    size = author.locator(".grid-size")
    expect(size).to_contain_text("Choose what differs")
    vary = author.get_by_label("What varies")
    vary.select_option(label="trip-plan/duration")
    author.get_by_label("Values of trip-plan/duration, one per line").fill(
        "\n".join(f"{n} days" for n in range(60))
    )
    vary.select_option("setting repair")
    author.get_by_label("Values of Repair, one per line").fill("none\nlink:2")
    expect(size).to_have_text("60 × 2 = 120 rows")
    author.set_viewport_size({"width": 400, "height": 800})
    assert author.evaluate("document.documentElement.scrollWidth") <= 400
    cards = author.locator(".axes > li").evaluate_all("all => all.map(one => one.getBoundingClientRect())")
    assert all(above["bottom"] < below["top"] for above, below in itertools.pairwise(cards)), (
        "not one on another"
    )
    inside = author.locator(".axes > li").evaluate_all(
        "all => all.every(one => one.scrollHeight <= one.clientHeight)"
    )
    assert inside, "a card is as high as what it holds"
    author.set_viewport_size({"width": 1280, "height": 900})
    vary.select_option("setting temperature")
    author.get_by_label("Values of Temperature, one per line").fill(
        "\n".join(f"0.{n}" for n in range(100, 200))
    )
    expect(size).to_have_text(re.compile("= 12,000 rows, but a batch has at most 10,000"))
    author.get_by_role("button", name="Do not vary Temperature").click()
    run = author.locator(".batch-run .primary")
    expect(run).to_have_text("Run 120 rows")
    run.click()
    table = author.get_by_role("region", name="Rows of the batch")
    expect(table.locator("tr[data-state=done]").first).to_be_visible(timeout=120_000)
    expect(table.locator("tbody tr")).to_have_count(120)
    author.get_by_role("link", name="Author").click()
    open_batch(author)
    author.get_by_role("button", name="Stop", exact=True).last.click()
    expect(author.locator(".batch-status")).to_have_text(re.compile(r"Stopped: \d+ of 120 rows answered\."))
    expect(run).to_have_text("Run 120 rows")


@pytest.mark.long
def test_what_was_filled_in_before_takes_the_place_of_nothing_written_since(author: Page) -> None:
    open_batch(author)
    author.get_by_role("radio", name="Grid").check()
    author.get_by_role("radio", name="Table").check()
    author.get_by_label("Table of rows").fill("id,picks\nkept,rome\n")
    sides = author.get_by_label("Sides")
    with author.expect_request(asks("batch_keep")):
        sides.select_option("cached")
    held = reloaded_without_what_was_kept(author)
    grid, alone = (
        author.get_by_role("radio", name="Grid"),
        author.get_by_label("Ignore the modules ticked in Author"),
    )
    grid.check()
    alone.check()
    sides.select_option("cached")
    sides.select_option("both")
    expect(author.get_by_role("button", name="Add a check")).to_be_disabled()
    with author.expect_request(asks("batch_keep")) as kept:
        held[0].continue_()
    unrouted(author)
    assert kept.value.post_data_json["data"]["form"] | {"checks": [], "grid": []} == {
        "source": "grid",
        "table": "id,picks\nkept,rome\n",
        "grid": [],
        "alone": True,
        "checks": [],
        "combine": "all",
        "mode": "both",
        "judge": {"by": "model", "url": "", "model": "", "template": ""},
    }
    expect(author.locator("option[value='setting temperature']")).to_be_attached()
    expect(grid).to_be_checked()
    expect(alone).to_be_checked()
    expect(sides).to_have_value("both")
    author.get_by_role("radio", name="Table").check()
    expect(author.get_by_label("Table of rows")).to_have_value("id,picks\nkept,rome\n")
    alone.uncheck()


def test_a_table_written_while_a_saved_grid_arrives_is_the_source(author: Page) -> None:
    open_batch(author)
    author.get_by_role("radio", name="Grid").check()  # as a saved form may do
    author.get_by_label("Table of rows").evaluate(
        "node => { node.value = 'id,text\\na,One?\\nb,Two?\\n'; node.dispatchEvent(new Event('input')) }"
    )
    expect(author.get_by_role("radio", name="Table")).to_be_checked()
    expect(author.get_by_label("Table of rows")).to_be_visible()
    expect(author.locator(".read")).to_contain_text("2 rows")


def reloaded_without_what_was_kept(page: Page) -> list[Route]:
    """Loads the page again; what was kept of the form comes when the route that is returned goes on."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if asks("batch_form")(route.request):
            held.append(route)
        else:
            route.continue_()

    page.route(QUESTIONS, hold)
    reloaded(page)
    page.wait_for_function("document.querySelector('.batch-run select') !== null")
    came(page, held)
    return held


def asks(question: str) -> Callable[[Request], bool]:
    """Whether a request puts a question of this name to the server."""
    return lambda request: f'"{question}"' in (request.post_data or "")


@pytest.mark.long
def test_rows_run_by_their_keys_and_tell_which_of_them_were_encoded(author: Page) -> None:
    rewrite(
        author, "schema", '<schema name="cold"><module name="m">ten cold words of a batch</module></schema>'
    )
    rewrite(author, "prompt", '<prompt schema="cold"><m/>Go.</prompt>')
    missing = author.locator(".strip .legend li", has_text="not cached yet")
    expect(missing).to_be_visible()
    open_batch(author)
    author.get_by_role("radio", name="Table").check()
    author.get_by_label("Table of rows").fill("id,picks,set max_new_tokens\nfirst,m,2\nagain,m,2\n")
    run = author.locator(".batch-run .primary")
    expect(run).to_have_text("Run 2 rows")
    author.get_by_role("button", name="Add a check").click()
    expect(author.get_by_label(re.compile("^Text of check .")).last).to_be_focused()
    author.keyboard.type("a")
    run.focus()
    author.keyboard.press("Control+Enter")
    expect(author.locator(".batch-status")).to_have_text("Done: 2 rows answered.", timeout=120_000)
    expect(run).to_be_focused()
    assert author.url.endswith("#/batch")
    first, again = author.get_by_role("region", name="Rows of the batch").locator("tbody tr").all()
    expect(first).to_contain_text(re.compile(r"first time\. \d+ tokens of its modules were not cached"))
    expect(first.locator(".time-cached")).to_have_count(0)
    expect(again).not_to_contain_text("first time")
    expect(author.locator(".batch-earlier summary")).to_have_text(re.compile(r"^Stored batches: \d+$"))
    author.get_by_role("link", name="Author").click()
    expect(author.get_by_role("region", name="Layout")).to_be_visible()
    expect(missing).to_be_hidden()
    rewrite(author, "schema", '<schema name="other"><module name="m">ten other words</module></schema>')
    open_batch(author)
    expect(author.locator(".batch-age")).to_contain_text("another schema is open")
