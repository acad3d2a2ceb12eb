"""The Cache page: the store as it is, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from engine.store import Store
from tests.browser.conftest import QUESTIONS, Server
from tests.browser.test_author import rewrite

BUDGET = 20 << 30
SMALL = '<schema name="small"><module name="m">one two three</module></schema>'


@pytest.fixture
def bounded(studio: Server) -> Iterator[None]:
    """Afterwards the store has its budget again, and no pins."""
    yield
    store = Store.open(studio.folder / "cache")
    store.set_budget(BUDGET)
    for schema in store.settings.pins():
        store.settings.unpin(schema)
    store.close()


def open_cache(page: Page) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Cache").click()
    expect(page.get_by_role("heading", name="Cache", exact=True)).to_be_visible()


def run(page: Page) -> None:
    page.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2, reuse: 'off'})")
    page.locator("#run").click()
    expect(page.locator(".run-status")).to_contain_text("Done", timeout=120_000)


def test_segments_are_listed_filtered_sorted_and_deleted(author: Page) -> None:
    run(author)
    open_cache(author)
    rows = author.get_by_role("region", name="Segments").locator("tbody tr")
    expect(rows.first).to_be_visible()
    before = rows.count()
    author.get_by_label("Filter segments").fill("tokyo")
    expect(rows.first).to_contain_text("tokyo")
    expect(rows).not_to_have_count(before)
    rows.first.get_by_role("checkbox").check()
    question = author.locator("dialog.question")
    author.get_by_role("button", name="Delete 1 segment").click()
    expect(question).to_contain_text(re.compile(r"Delete \S*tokyo of travel, "))
    expect(question).to_contain_text(re.compile(r"recompute up to [1-9]\d* tokens, which took"))
    author.keyboard.press("Escape")
    expect(author.locator(".cache-head [role=status]")).to_have_text("Nothing was deleted.")
    author.get_by_role("button", name="Delete 1 segment").click()
    question.get_by_role("button", name="Delete").click()
    expect(author.locator(".cache-head [role=status]")).to_contain_text("Deleted 1 segment")
    author.get_by_label("Filter segments").fill("")
    expect(rows).to_have_count(before - 1)
    expect(author.locator(".evictions")).to_contain_text("deleted")
    author.get_by_role("button", name="Tokens", exact=True).click()
    expect(author.locator("th[aria-sort]")).to_contain_text("Tokens")
    cells = author.get_by_role("region", name="Segments").locator("tbody td:nth-child(6)")
    tokens = [int(cell.replace(",", "")) for cell in cells.all_inner_texts()]
    assert tokens == sorted(tokens, reverse=True)


@pytest.mark.long
def test_a_late_answer_does_not_take_the_focus(author: Page) -> None:
    run(author)
    open_cache(author)
    rows = author.get_by_role("region", name="Segments").locator("tbody tr")
    expect(rows.first).to_be_visible()
    before = rows.count()
    rows.first.get_by_role("checkbox").check()
    author.get_by_role("button", name="Delete 1 segment").press("Enter")
    held: list[Route] = []
    author.route(
        QUESTIONS,
        lambda route: (
            held.append(route) if "cache_state" in (route.request.post_data or "") else route.continue_()
        ),
    )
    author.locator("dialog.question").get_by_role("button", name="Delete").press("Enter")
    expect(author.locator(".cache-head [role=status]")).to_contain_text("Deleted 1 segment")
    wanted = author.get_by_label("Filter segments")
    wanted.focus()
    author.wait_for_timeout(100)
    for route in held:
        route.continue_()
    expect(rows).to_have_count(before - 1)
    expect(author.locator(".evictions")).to_contain_text("deleted")
    author.wait_for_timeout(200)
    expect(wanted).to_be_focused()


def test_the_map_narrows_the_list_and_what_is_pinned_is_asked_about_twice(author: Page) -> None:
    run(author)
    open_cache(author)
    rows = author.get_by_role("region", name="Segments").locator("tbody tr")
    expect(rows.first).to_be_visible()
    before = rows.count()
    expect(author.locator(".studio-cache")).to_contain_text("including repeated timings and batches")
    cells = author.locator(".treemap .cell")
    expect(cells.filter(has_text="fixed text").first).to_be_attached()
    expect(cells.filter(has_text="travel")).to_have_count(0)
    painted = """cells => cells.filter(cell => cell.dataset.key.startsWith("travel\\n"))
        .map(cell => getComputedStyle(cell).backgroundColor)"""
    colours = cells.evaluate_all(painted)
    assert len(set(colours)) == 1, "of one schema"
    cells.first.focus()
    author.keyboard.press("ArrowRight")
    author.keyboard.press("Enter")
    expect(author.locator(".narrowed")).to_contain_text("Only travel")
    expect(rows).not_to_have_count(before)
    expect(cells.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(cells.nth(1)).to_be_focused()
    author.keyboard.press("Enter")
    expect(rows).to_have_count(before)
    room = author.get_by_role("region", name="Making room")
    expect(room).to_contain_text("No evictions needed")
    room.get_by_label("Make room for").fill("1000000")
    room.get_by_role("button", name="Show").click()
    expect(room.get_by_role("row").nth(1)).to_contain_text("travel")
    expect(room).to_contain_text("would still be missing")
    expect(author.get_by_role("region", name="Latest misses")).to_contain_text("travel")
    author.get_by_role("checkbox", name="travel").check()
    expect(author.locator("tbody .pill").first).to_have_text("pinned")
    rows.first.get_by_role("checkbox").check()
    author.get_by_role("button", name="Delete 1 segment").click()
    question = author.locator("dialog.question")
    question.get_by_role("button", name="Delete").click()
    expect(question).to_contain_text("1 of them is of a pinned schema (travel)")
    author.keyboard.press("Escape")
    expect(author.locator(".cache-head [role=status]")).to_have_text("Nothing was deleted.")
    expect(rows).to_have_count(before)
    author.get_by_role("checkbox", name="travel").uncheck()
    expect(author.locator("tbody .pill")).to_have_count(0)


@pytest.mark.usefixtures("bounded")
def test_a_budget_that_evicts_is_asked_about_first(author: Page) -> None:
    run(author)
    open_cache(author)
    author.get_by_role("checkbox", name="travel").check()
    expect(author.locator("tbody .pill").first).to_have_text("pinned")
    author.get_by_role("link", name="Author").click()
    rewrite(author, "schema", SMALL)
    rewrite(author, "prompt", '<prompt schema="small"><m/>Go on.</prompt>')
    run(author)
    open_cache(author)
    rows = author.get_by_role("region", name="Segments").locator("tbody tr")
    expect(rows.filter(has_text="small")).not_to_have_count(0)
    before = rows.count()
    question, status = author.locator("dialog.question"), author.locator(".cache-head [role=status]")
    expect(author.get_by_role("spinbutton", name="Size")).to_have_value("20")
    expect(author.get_by_label("Unit")).to_have_value("GiB")
    author.get_by_role("button", name="Set as budget").click()
    expect(status).to_contain_text("The budget is set; 0 segments")
    for wrong in ("-3", ""):
        author.get_by_role("spinbutton", name="Size").fill(wrong)
        author.get_by_role("button", name="Set as budget").click()
        expect(status).to_have_text("A size is a number of 0 or more. Nothing was changed.")
        expect(author.get_by_role("spinbutton", name="Size")).to_be_focused()
    author.get_by_role("spinbutton", name="Size").fill("0")
    author.get_by_role("button", name="Set as budget").click()
    expect(question).to_be_visible()
    expect(status).to_be_empty()
    author.keyboard.press("Escape")
    for no in ("Cancel", "Escape"):
        author.get_by_role("button", name="Set as budget").click()
        expect(question).to_contain_text(re.compile(r"A budget of 0 GiB evicts [1-9]\d* segments?, [1-9]"))
        expect(question).to_contain_text(re.compile(r"Segments of pinned schemas, [1-9][\d.]* MiB, stay"))
        if no == "Cancel":
            question.get_by_role("button", name="Cancel").click()
        else:
            author.keyboard.press(no)
        expect(status).to_have_text("The budget is unchanged; nothing was evicted.")
        expect(question).to_have_count(0)
    expect(author.locator(".totals")).to_contain_text("of 20.00 GiB")
    expect(rows).to_have_count(before)
    author.get_by_role("button", name="Set as budget").click()
    question.get_by_role("button", name="Evict and set the budget").click()
    expect(status).to_contain_text(re.compile(r"The budget is set; [1-9]\d* segments?, .* evicted"))
    expect(rows.filter(has_text="small")).to_have_count(0)
    expect(rows.first).to_contain_text("travel")


@pytest.mark.long
@pytest.mark.usefixtures("bounded")
def test_a_budget_of_nothing_is_said_where_something_would_be_kept(author: Page) -> None:
    open_cache(author)
    author.get_by_role("spinbutton", name="Size").fill("0")
    author.get_by_role("button", name="Set as budget").click()
    question = author.locator("dialog.question")
    warning = author.locator(".warnings")
    expect(question.or_(warning.locator("p"))).to_be_visible()
    if question.count():
        question.get_by_role("button", name="Evict").click()
    expect(author.locator(".studio-cache")).to_contain_text("because the budget is 0")
    expect(warning).to_contain_text("The budget is 0 bytes: nothing new is stored")
    author.get_by_role("link", name="Author").click()
    rewrite(author, "schema", SMALL)
    rewrite(author, "prompt", '<prompt schema="small"><m/>Go on.</prompt>')
    run(author)
    expect(author.locator(".run-status")).to_contain_text("in memory at most")
    expect(author.locator(".run-status")).not_to_contain_text("are kept")


@pytest.mark.long
def test_verification_counts_what_is_none_of_the_stores_and_repairs_what_is(
    author: Page, studio: Server
) -> None:
    run(author)
    cache = studio.folder / "cache"
    (cache / "files" / "thesis.docx").write_text("years of work")
    open_cache(author)
    status = author.locator(".cache-head [role=status]")
    author.get_by_role("button", name="Verify").click()
    expect(status).to_contain_text(re.compile("Index and files agree: [1-9]"))
    expect(status).to_contain_text("1 other file in the folder: not created by the store, left unchanged.")
    stored = next((cache / "files").glob("*.safetensors"))
    stray = stored.with_name(f"{stored.name.rsplit('-', 1)[0]}-{'0' * 16}.safetensors")
    stray.write_bytes(stored.read_bytes())
    author.get_by_role("button", name="Verify").click()
    expect(status).to_contain_text("1 stray file found")
    author.get_by_role("button", name="Repair").click()
    expect(status).to_contain_text("1 stray file set aside, removed or rebuilt")
    assert not stray.exists()
    assert (cache / "files" / "thesis.docx").read_text() == "years of work"
    (cache / "files" / "thesis.docx").unlink()
