"""What all pages share: their addresses, the keyboard's way through them, and controls in the dark."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image, ImageStat
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import COLOURS, Watched

FOCUSED = (
    """() => {
    const at = document.activeElement
    if (!at || at === document.body) return ["", ""]
"""
    + COLOURS
    + """
    const name = at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.textContent || at.title
    const style = getComputedStyle(at), a = light(style.outlineColor), b = light(ground(at.parentElement))
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05)
    const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && ratio >= 3
    const elsewhere = at.closest(".cm-editor") || !at.closest(".studio-host")
    return [name.trim(), seen || elsewhere ? "" : at.outerHTML.slice(0, 200)]
}"""
)


def focused(page: Page) -> str:
    """The name of what has the focus, which must be seen to have it."""
    name, unseen = page.evaluate(FOCUSED)
    assert unseen == ""
    return str(name)


def tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Presses Tab until something has the focus whose name begins so."""
    met = []
    for _ in range(80):
        if page.evaluate("Boolean(document.activeElement.closest('.cm-editor'))"):
            page.keyboard.press("Escape")
        page.keyboard.press(key)
        met.append(focused(page))
        if met[-1].startswith(name):
            return
    raise AssertionError(f"{name} is not among {met}")


def press_on(page: Page, name: str, key: str, *, by: str = "Tab") -> None:
    tab_to(page, name, by)
    page.keyboard.press(key)


def turn_dark(page: Page) -> None:
    page.get_by_role("button", name="Light or dark").click()


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_the_keyboard_walks_through_all_pages(watched: Watched, theme: str) -> None:
    page = watched.open("/#/gallery")
    if theme == "dark":
        turn_dark(page)
        page.evaluate("document.activeElement.blur()")
    expect(page.locator("#page-gallery article")).to_have_count(6)
    press_on(page, "Open Travel", "Enter")
    page.wait_for_function("document.documentElement.dataset.page === 'author'")
    page.wait_for_function("document.querySelector('.workspace-name').textContent.startsWith('Travel')")
    page.evaluate("document.activeElement.blur()")
    page.evaluate("window.promptCacheStudio.workspace.change({reuse: 'off'})")  # nothing is checked meanwhile
    press_on(page, "Settings", "Enter")
    tab_to(page, "Max answer length")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    expect(page.locator(".run-status")).to_contain_text("Done", timeout=120_000)
    press_on(page, "Cache", "Enter", by="Shift+Tab")
    rows = page.get_by_role("region", name="Segments").locator("tbody tr")
    expect(rows.first).to_be_visible()
    tab_to(page, "Filter segments")
    page.keyboard.type("travel tokyo anchored")
    expect(rows).to_have_count(1)
    press_on(page, "Tokens", "Enter")
    expect(page.locator("th[aria-sort]")).to_contain_text("Tokens")
    assert focused(page).startswith("Tokens")
    press_on(page, "Choose all", "Space", by="Shift+Tab")
    assert focused(page).startswith("Choose all")
    press_on(page, "Delete 1 segment", "Enter", by="Shift+Tab")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    press_on(page, "Delete", "Enter", by="Shift+Tab")
    expect(page.locator(".cache-head [role=status]")).to_contain_text("Deleted 1 segment")
    expect(rows).to_have_count(0)
    expect(page.locator(".studio-cache .empty", has_text="No segments match.")).to_be_visible()
    assert focused(page) == "Segments"
    tab_to(page, "travel")
    for state in (True, False):
        page.keyboard.press("Space")
        expect(page.get_by_role("checkbox", name="travel")).to_be_checked(checked=state)
        assert focused(page) == "travel"
    press_on(page, "Verify", "Enter", by="Shift+Tab")
    expect(page.locator(".cache-head [role=status]")).to_contain_text("Index and files agree")
    assert focused(page) in ("Verify", "Stop")


def lightness(control: Locator) -> float:
    """The mean lightness of a control as it is drawn, from 0 to 255."""
    return ImageStat.Stat(Image.open(io.BytesIO(control.screenshot())).convert("L")).mean[0]


KINDS = (
    "input[type=checkbox]:not(:checked)",
    "input[type=radio]:not(:checked)",
    "select",
    "input:is([type=text], [type=number], [type=search])",
)


def test_controls_are_dark_in_the_dark(author: Page) -> None:
    turn_dark(author)
    author.get_by_role("button", name="Settings").click()
    author.get_by_label("Max answer length").fill("2")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=120_000)
    drawn: dict[str, float] = {}
    for name in ("Author", "Cache"):
        author.get_by_role("link", name=name).click()
        host = author.locator(f".studio-{name.lower()}")
        if name == "Cache":
            expect(host.locator("tbody tr").nth(2)).to_be_visible()
        for kind in KINDS:
            found = host.locator(f"{kind}:visible")
            if found.count():
                drawn[f"{name} {kind}"] = lightness(found.first)
    assert len(drawn) >= 5
    assert {name: light for name, light in drawn.items() if light > 110} == {}


def test_an_address_without_a_page_is_corrected_and_said(watched: Watched) -> None:
    page = watched.open("/#nothere")
    notice = page.locator(".notices")
    expect(notice).to_contain_text("The studio has no page “nothere”; this is Author.")
    expect(page).to_have_url(re.compile("#/author$"))
    expect(page.locator("#page-author")).to_be_visible()
    page.get_by_role("link", name="Cache").click()
    expect(page.get_by_role("heading", name="Cache", exact=True)).to_be_visible()
    expect(notice).to_be_empty()
    page.set_viewport_size({"width": 800, "height": 400})
    page.get_by_role("link", name="Author").click()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.evaluate("location.hash = '#/nowhere'")
    expect(notice).to_contain_text("no page “nowhere”")
    expect(notice.locator(".notice")).to_be_in_viewport()
    expect(page.get_by_role("link", name="Author")).to_have_attribute("aria-current", "page")
    page.evaluate("location.hash = '#cache'")
    expect(page.get_by_role("heading", name="Cache", exact=True)).to_be_visible()
    expect(notice).to_be_empty()


@pytest.mark.long
def test_the_first_page_is_shown_also_where_its_place_comes_after_the_head(watched: Watched) -> None:
    watched.page.add_init_script(
        """const found = Document.prototype.querySelector
        let asked = 0
        Document.prototype.querySelector = function (wanted) {
            return wanted === "#page-author" && !asked++ ? null : found.call(this, wanted) }"""
    )
    page = watched.open()
    expect(page.get_by_role("region", name="Modules")).to_be_visible()


@pytest.mark.long
def test_a_page_is_loaded_when_it_is_first_shown(watched: Watched) -> None:
    page = watched.open()

    def loaded(name: str) -> int:
        return sum(
            one.split("?")[0].endswith((f"pages/{name}.js", f"pages/{name}.css")) for one in watched.requests
        )

    assert (loaded("author"), loaded("cache"), loaded("gallery")) == (2, 0, 0)
    expect(page).to_have_title("Author · Prompt Cache Studio")
    assert page.evaluate("document.activeElement.tagName") != "H2"
    for name in ("Gallery", "Cache", "Gallery"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_focused()
        expect(page).to_have_title(f"{name} · Prompt Cache Studio")
    assert (loaded("author"), loaded("cache"), loaded("gallery")) == (2, 2, 2)
    expect(page.locator("#page-gallery article")).to_have_count(6)
    page.get_by_role("button", name="Run", exact=False).first.click()
    expect(page).to_have_url(re.compile("#/author$"))
    expect(page.locator(".run-status")).to_contain_text("Done", timeout=120_000)


@pytest.mark.long
def test_a_card_says_how_many_more_modules_are_picked_and_shows_them(watched: Watched) -> None:
    page = watched.open("/#/gallery")
    more = page.locator("#page-gallery .more").first
    chips = page.locator("#page-gallery .picked").filter(has=page.locator(".more")).first.locator("code")
    shown = chips.filter(visible=True).count()
    hidden = chips.count() - shown
    expect(more).to_have_text(f"+{hidden}")
    assert len((more.get_attribute("title") or "").split(", ")) == hidden > 0
    more.focus()
    page.keyboard.press("Enter")
    expect(chips.filter(visible=True)).to_have_count(shown + hidden)
    expect(more).to_have_attribute("aria-expanded", "true")
    assert page.evaluate("document.documentElement.dataset.page") == "gallery"
    more.click()
    expect(chips.filter(visible=True)).to_have_count(shown)


def test_a_run_at_the_bare_address_leaves_the_focus_where_it_is(watched: Watched) -> None:
    page = watched.open()
    page.get_by_role("button", name="Settings").click()
    field = page.locator(".drawer input").first
    field.fill("")
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(f"{watched.url}/#/author")
    expect(field).to_be_focused()
