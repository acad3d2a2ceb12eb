"""The frame of the Author page: it fills the window, borders are moved, nothing jumps while it answers."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.studio.runs.payback import NEVER
from tests.browser.conftest import Watched, becomes
from tests.browser.test_author import LONG_RUN_MS, document, rewrite, run

LINES = """() => [...document.querySelectorAll(".pane .answer")].map(box => {
    const { top, bottom } = box.getBoundingClientRect(), style = getComputedStyle(box)
    const column = box.closest(".results").getBoundingClientRect().bottom
    const inner = Math.min(bottom, column, innerHeight) - top
        - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)
    return inner / parseFloat(style.lineHeight) })"""
OVER = """(({ scrollHeight, scrollWidth }) => [
    scrollHeight - innerHeight, Math.max(0, scrollWidth - innerWidth)])(document.documentElement)"""
CUT = """() => [".pane .ttft", ".verdicts dd", ".verdict .check", ".tree .name", ".top button",
    ".explanation .bar button", ".scale-axis span"]
    .flatMap(one => [...document.querySelectorAll(one)]).filter(node => {
        if (!node.checkVisibility()) return false
        node.scrollIntoView({ block: "center" })
        const { left, right, top, height } = node.getBoundingClientRect()
        const inside = top > 0 && top + height < innerHeight && !node.closest(".tree")
        const over = inside && document.elementFromPoint(right - 2, top + height / 2)
        const tall = node.matches(".bar button, .scale-axis span") ? 18 : height
        const line = node.matches(".tree .name") ? 30 : tall
        const lines = height / line
        const under = over && !node.contains(over) && !over.contains(node)
        return left < 0 || right > innerWidth || lines > 2.5 || under
    }).map(node => `${node.className || node.tagName} ${node.textContent}`)"""
"""What is cut at the side of the window, broken into single letters, or lies under something else."""

COVERED = """() => [...document.querySelectorAll(".panel.prompt .problem:focus")].filter(node => {
    const { left, bottom } = node.getBoundingClientRect()
    return !node.contains(document.elementFromPoint(left + 9, bottom - 3)) })"""
SCROLLED = """async to => {
    const boxes = [...document.querySelectorAll(".pane .answer")]
    if (to !== null) boxes[1].scrollTop = to
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
    return boxes.map(box => box.scrollTop) }"""
SAID = """async words => {
    document.querySelector(".payback").textContent = words
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))) }"""
"""Says something else of when a run pays off, as further timings may."""

WATCH_SHIFTS = """async () => {
    window.shifts = []
    const told = source => source.node?.className ?? source.node?.parentElement?.className ?? "?"
    new PerformanceObserver(list => { for (const one of list.getEntries())
        window.shifts.push([one.value, ...one.sources.map(told)]) }).observe({ type: "layout-shift" })
    for (let before = -1; before !== window.shifts.length;) {  // the page still takes the size of the window
        before = window.shifts.length
        await new Promise(done => setTimeout(done, 500))
    }
    window.shifts.length = 0
}"""


def fills(page: Page) -> None:
    """No page scrolls, and both answers show at least eight lines below their question."""
    becomes(page, OVER, [0, 0])
    becomes(page, f"({LINES})().map(lines => lines >= 8)", [True, True])


@pytest.mark.long
def test_the_page_fills_the_window_and_nothing_shifts_while_it_answers(author: Page) -> None:
    author.set_viewport_size({"width": 1280, "height": 720})
    run(author)
    fills(author)
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 40})")
    author.locator("#explain").scroll_into_view_if_needed()
    author.evaluate(WATCH_SHIFTS)
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=LONG_RUN_MS)
    expect(author.locator(".run-status")).to_be_in_viewport(ratio=1)
    few = ("Pays off after about 12 runs.", "Faster from the first run on.", "", "Pays off.", NEVER)
    for words in few:
        author.evaluate(SAID, words)
    assert author.evaluate("window.shifts") == []
    fills(author)
    author.set_viewport_size({"width": 1280, "height": 500})  # too low for the whole answers
    becomes(author, SCROLLED, [0, 0])  # both are shown from their first line on
    first, second = author.evaluate(SCROLLED, 9)
    assert first == second
    for width, height in ((1160, 720), (1024, 768), (768, 1024), (400, 800)):
        author.set_viewport_size({"width": width, "height": height})
        becomes(author, f"({OVER})[1]", 0)
        becomes(author, CUT, [])
        becomes(author, "document.querySelector('.top').offsetHeight < 100", True)
    rewrite(author, "prompt", '<prompt schema="travel">\n' + "  <atlantis/>\n" * 9 + "</prompt>")
    author.locator(".panel.prompt .problem").nth(8).focus()
    becomes(author, COVERED, [])
    author.keyboard.press("Tab")
    author.get_by_role("tab", name="Prompt").focus()
    author.evaluate("window.promptCacheStudio.workspace.editors.prompt.undo()")
    expect(author.locator(".panel.prompt .status")).to_have_text("no problems")
    author.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    for button in ("#run", "#stop"):
        expect(author.locator(button)).to_be_in_viewport(ratio=1)
    for name in ("Author", "Gallery"):
        expect(author.get_by_role("link", name=name)).to_be_in_viewport(ratio=1)
    run(author)
    expect(author.locator(".run-status")).to_be_in_viewport()


def test_borders_and_documents_stay_where_they_were_put(watched: Watched) -> None:
    page = watched.open()
    border = page.get_by_role("separator", name="Width of the modules")
    picker = page.get_by_role("region", name="Modules")

    def width() -> float:
        return float(picker.evaluate("node => node.getBoundingClientRect().width"))

    def is_wide(wanted: float) -> None:
        near = "document.querySelector('.picker').getBoundingClientRect().width"
        becomes(page, f"wanted => Math.abs({near} - wanted) < 2", True, wanted)

    usual = width()
    border.focus()
    page.keyboard.press("Shift+ArrowLeft")
    expect(border).to_have_attribute("aria-valuenow", "31")
    narrow = width()
    assert narrow < usual - 40
    box = border.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 4, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 64, box["y"] + 200)
    page.mouse.up()
    is_wide(narrow + 60)
    expect(document(page, "prompt")).to_be_visible()
    expect(page.get_by_role("textbox", name="Schema document")).to_be_hidden()
    moved = width()
    page.reload()
    watched.ready()
    is_wide(moved)
    expect(page.get_by_role("textbox", name="Prompt document")).to_be_visible()
    border.focus()
    page.keyboard.press("Enter")
    is_wide(usual)
    page.set_viewport_size({"width": 1900, "height": 900})
    for kind in ("Schema", "Prompt"):
        expect(page.get_by_role("textbox", name=f"{kind} document")).to_be_visible()
    page.get_by_role("button", name="Side by side").click()
    expect(page.get_by_role("textbox", name="Schema document")).to_be_hidden()
    page.get_by_role("tab", name="Prompt").press("ArrowLeft")
    expect(page.get_by_role("textbox", name="Schema document")).to_be_visible()
    expect(page.get_by_role("tab", name="Schema")).to_be_focused()
