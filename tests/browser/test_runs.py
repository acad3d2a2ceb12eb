"""The Runs page: runs that last, found, named, compared, shared, deleted, imported and opened again."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.app.studio.model.test_second_model import fake_server
from tests.browser.conftest import Watched, becomes
from tests.browser.test_author import rewrite

SCHEMA = '<schema name="{name}"><module name="m">one two three</module></schema>'
PROMPT = '<prompt schema="{name}"><m/>{words}</prompt>'

TABLE = """async () => {
    const { href } = document.querySelector("link[href*='studio.css']")
    const { Table } = await import(new URL("../base/table.js", href))
    const columns = [{ name: "a", title: "A", value: row => row.a }]
    const key = row => row.id, choice = row => row.a
    window.table = new Table({ label: "Two", key, sort: ["a", 1], choice, columns })
    const host = document.body.appendChild(window.table.node)
    host.style.cssText = "position: fixed; inset: 0; z-index: 99"
    window.table.fill([{ id: "one", a: "first" }, { id: "two", a: "second" }]) }"""
CHANGED = """window.table.fill([
    { id: "one", a: "first, measured" }, { id: "two", a: "second, measured" }, { id: "x", a: "third" }])"""


def run(page: Page, name: str, words: str) -> None:
    """Answers a prompt of a schema of this name."""
    page.get_by_role("link", name="Author").click()
    rewrite(page, "schema", SCHEMA.format(name=name))
    rewrite(page, "prompt", PROMPT.format(name=name, words=words))
    if not page.get_by_label("Max answer length").is_visible():
        page.get_by_role("button", name="Settings").click()
    page.get_by_label("Max answer length").fill("3")
    page.locator("#run").click()
    expect(page.locator(".run-status")).to_contain_text("Done", timeout=120_000)


def open_runs(page: Page) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


def test_a_press_on_a_row_survives_an_update_of_the_row(watched: Watched) -> None:
    page = watched.open("/#/gallery")
    page.evaluate(TABLE)
    table = page.get_by_role("region", name="Two")
    table.get_by_role("checkbox", name="Choose second").hover()
    page.mouse.down()
    page.evaluate(CHANGED)
    page.mouse.up()
    expect(table.get_by_role("checkbox", name="Choose second, measured")).to_be_checked()
    assert page.evaluate("window.table.chosen.map(row => row.a)") == ["second, measured"]
    expect(table.locator("tbody tr")).to_have_count(3)


def test_runs_are_found_named_compared_shared_and_brought_back(
    author: Page, watched: Watched, tmp_path: Path
) -> None:
    page = author
    run(page, "kept", "Go to <!-- hidden --> Rome.")
    page.get_by_role("button", name="Good: cached answer").click()
    expect(page.get_by_role("group", name="Rating: cached answer").get_by_role("status")).to_have_text(
        "Saved"
    )
    run(page, "kept", "Go to Paris &lt;img src=x onerror=alert(1)&gt;.")
    open_runs(page)
    rows, status = page.locator(".runs-list tbody tr"), page.locator(".runs-head [role=status]").first
    page.get_by_label("Runs of schema").select_option("kept")
    expect(rows).to_have_count(2)
    page.get_by_label("Runs by rating").select_option("Rated good")
    expect(rows).to_have_count(1)
    page.get_by_label("Runs by rating").select_option("Not rated")
    expect(rows.first).to_contain_text("Paris")
    page.get_by_label("Runs by rating").select_option("All ratings")
    page.get_by_label("Find runs").fill("one TWO rome")
    expect(rows).to_have_count(1)
    name = rows.first.get_by_label(re.compile("^Name of"))
    name.fill("The Roman <b>one</b>")
    name.press("Enter")
    expect(status).to_have_text("The name is saved.")
    page.reload()
    watched.ready()
    page.get_by_label("Find runs").fill("roman")
    expect(rows).to_have_count(1)
    expect(rows.first.get_by_label(re.compile("^Name of"))).to_have_value("The Roman <b>one</b>")
    page.get_by_label("Find runs").fill("")
    page.get_by_label("Runs of schema").select_option("kept")
    expect(rows).to_have_count(2)

    fits = "(one => one.scrollWidth <= one.clientWidth)(document.querySelector('.runs-list .scroll'))"
    whole = "[...document.querySelectorAll('.runs-list th button')].every(one => one.clientHeight <= 40)"
    for width in (1280, 940, 390):
        page.set_viewport_size({"width": width, "height": 900})
        becomes(page, fits, True)  # nothing is cut
        becomes(page, whole, True)  # no word of a head is broken
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(rows.last.locator(".asked > .clip")).to_have_text([re.compile("^Go to Rome"), "m"])
    page.get_by_label("Choose all 2 shown").check()
    page.get_by_role("button", name="Compare 2 side by side").click()
    expect(page.get_by_role("heading", name="2 runs side by side")).to_be_focused()
    assert "#/runs/" in page.url
    page.go_back()
    expect(rows).to_have_count(2)
    page.go_forward()
    expect(page.get_by_role("heading", name="2 runs side by side")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Compare 2 side by side")).to_be_focused()
    page.keyboard.press("Enter")
    beside = page.get_by_role("region", name="Runs side by side").locator("table")
    expect(beside.locator("tr", has_text="Prompt").locator("mark").first).to_contain_text("Paris")
    schema = beside.locator("tr", has_text="Schema text")
    expect(schema).to_be_hidden()
    page.get_by_label("Differences only").uncheck()
    expect(schema).to_contain_text("The same in all runs.")
    titles = [title.split("\n")[0] for title in beside.locator("tbody th").all_inner_texts()]
    assert titles.index("Prompt") < titles.index("Temperature"), "what was asked comes before the settings"
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    expect(rows).to_have_count(2)

    page.get_by_role("button", name="Share…").click()
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Web page").click()
    shared = tmp_path / "shared.html"
    downloading.value.save_as(shared)
    reads_without_the_studio(page, shared)

    page.get_by_role("button", name="Delete 2 runs").click()
    question = page.locator("dialog.question")
    expect(question).to_contain_text("1 of them has a name, a note or a rating.")
    question.get_by_role("button", name="Delete 2 runs").click()
    expect(status).to_have_text("Deleted 2 runs.")
    expect(page.get_by_text("No runs match.").or_(page.get_by_text("No runs yet."))).to_be_visible()
    page.get_by_label("Import a file of runs").set_input_files(shared)
    expect(status).to_have_text("2 runs of shared.html imported.")
    page.get_by_label("Import a file of runs").set_input_files(shared)
    expect(status).to_contain_text("0 runs of shared.html imported; 2 existed already.")

    page.get_by_label("Find runs").fill("roman")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("button", name=re.compile("^Show")).click()
    page.get_by_role("button", name=re.compile("in the editors$")).click()
    expect(page.locator(".workspace-name")).to_contain_text("The Roman <b>one</b>")
    expect(page.get_by_label("Prompt document")).to_contain_text("Rome")
    age = page.locator(".answers .age")
    expect(age).to_have_text(re.compile(r"^A stored run, [^.]+\.$"))
    expect(page.locator(".pane .ttft").first).to_have_text(re.compile(r"\d"))
    listed = page.get_by_role("list", name="Runs of this schema")
    expect(listed.locator("[aria-current]")).to_have_count(1)
    listed.get_by_role("button").and_(listed.locator(":not([aria-current])")).first.click()
    expect(age).to_contain_text("It ran with an earlier text of the prompt. Run again.")
    rewrite(page, "schema", '<schema name="desk"><module name="lamp">The lamp is green.</module></schema>')
    expect(page.locator(".workspace-name .document")).to_have_text("desk")


def test_a_run_is_compared_with_a_server_of_this_machine(author: Page) -> None:
    page = author
    run(page, "kept", "Go to Oslo.")
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Compare with another model…").click()
    dialog = page.get_by_role("dialog", name="Compare with another model")
    dialog.get_by_label("A server on this machine").check()
    url, compare = dialog.get_by_label("Base URL"), dialog.get_by_role("button", name="Compare")
    expect(compare).to_be_disabled()
    url.fill("http://example.org/v1")
    url.blur()
    expect(dialog.get_by_role("status").last).to_contain_text("Only servers on this machine")
    with fake_server() as (address, _):
        url.fill(address)
        url.blur()
        expect(dialog.get_by_label("Model", exact=True)).to_have_value("one")
        compare.click()
        expect(page.get_by_role("heading", name="2 runs side by side")).to_be_visible()
    beside = page.get_by_role("region", name="Runs side by side").locator("table")
    expect(beside.locator("thead th").last).to_contain_text("one")
    expect(beside.locator("tr", has_text="Answer from the cache")).to_contain_text("9 from the cache")
    expect(beside.locator("tr", has_text="Answer without it").locator("mark").last).to_contain_text(
        "Yes, it is."
    )
    page.get_by_role("button", name=re.compile("^Remove")).last.click()
    expect(page.get_by_role("button", name="Compare with one")).to_be_visible()


def reads_without_the_studio(page: Page, file: Path) -> None:
    """The file opens from the disk, runs no script, asks for nothing, and shows markup as text."""
    other = page.context.new_page()
    asked: list[str] = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto(file.as_uri())
    expect(other.get_by_role("heading", name="2 runs")).to_be_visible()
    expect(other.get_by_role("heading", name="The Roman <b>one</b>")).to_be_visible()
    assert other.locator("img, script:not([type='application/json']), link, iframe").count() == 0
    assert asked == [file.as_uri()]
    other.set_viewport_size({"width": 400, "height": 800})
    assert other.evaluate("document.documentElement.scrollWidth") <= 400
    other.close()
