"""Text that the server did not keep before its tab was gone is found again, and then leaves the browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.browser.conftest import Server, reloaded
from tests.browser.test_author import rewrite, text_of, wait_for_text

KEYS = "Object.keys(localStorage).filter(key => key.includes('unsaved')).length"


@pytest.fixture(scope="module")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.fixture
def context(profile: BrowserContext, studio: Server) -> BrowserContext:
    """One browser with a storage of its own, which is empty; its tabs come and go."""
    profile.unroute_all(behavior="ignoreErrors")
    for left in profile.pages:
        left.close()
    page = profile.new_page()
    page.goto(f"{studio.url}/theme.css")
    page.evaluate("localStorage.clear()")
    page.close()
    return profile


def opened(context: BrowserContext, studio: Server) -> Page:
    context.unroute_all(behavior="ignoreErrors")
    page = context.new_page()
    page.goto(studio.url)
    page.wait_for_selector("html[data-studio=ready]", timeout=60_000)
    return page


REFUSE = """() => {
  const ask = window.fetch, refused = () => Promise.reject(new TypeError("refused"))
  window.fetch = (where, how) => String(how?.body).includes("save_draft") ? refused() : ask(where, how)
}"""


def keep_nothing(page: Page) -> None:
    """Until the next page is opened no draft reaches the server.

    What a page sends as it closes passes by every route: so the page itself refuses. The route is for what
    is loaded in its place.
    """

    def refuse(route: Route) -> None:
        if "save_draft" in (route.request.post_data or ""):
            route.abort()
        else:
            route.continue_()

    page.context.route("**/component_server**", refuse)
    page.evaluate(REFUSE)


def prompt(words: str) -> str:
    return f'<prompt schema="travel"><user>{words}</user></prompt>'


def leave(page: Page) -> None:
    page.goto("about:blank")
    page.close()


def test_a_closed_tabs_text_comes_back_and_leaves_the_browser(
    context: BrowserContext, studio: Server
) -> None:
    page = opened(context, studio)
    keep_nothing(page)
    rewrite(page, "prompt", prompt("kept one"))
    page.wait_for_function(f"{KEYS} === 1")
    page.close()
    page = opened(context, studio)
    wait_for_text(page, "prompt", "kept one")
    expect(page.locator(".notices")).to_contain_text("Unsaved text of a closed tab was restored")
    page.wait_for_function(f"{KEYS} === 0")
    keep_nothing(page)
    rewrite(page, "prompt", prompt("in haste"))
    page.goto("about:blank")
    context.unroute_all(behavior="ignoreErrors")
    page.goto(studio.url)
    page.wait_for_selector("html[data-studio=ready]", timeout=60_000)
    wait_for_text(page, "prompt", "in haste")
    expect(page.locator(".workspace-name .saved")).to_contain_text("Draft saved")


@pytest.mark.long
def test_text_that_another_tab_overtook_is_among_the_earlier_workspaces(
    browser: Browser, context: BrowserContext, studio: Server
) -> None:
    page = opened(context, studio)
    keep_nothing(page)
    rewrite(page, "prompt", prompt("overtaken"))
    leave(page)
    other = browser.new_context()
    page = opened(other, studio)
    rewrite(page, "prompt", prompt("newer"))
    expect(page.locator(".workspace-name .saved")).to_contain_text("Draft saved")
    other.close()
    page = opened(context, studio)
    wait_for_text(page, "prompt", "newer")
    page.wait_for_function(f"{KEYS} === 0")
    notice = page.locator(".notices")
    expect(notice).to_contain_text("under File, Versions")
    notice.get_by_role("button", name="Open it").click()
    wait_for_text(page, "prompt", "overtaken")


@pytest.mark.long
def test_the_text_of_a_tab_that_lives_is_left_to_it(context: BrowserContext, studio: Server) -> None:
    first = opened(context, studio)
    keep_nothing(first)
    rewrite(first, "prompt", prompt("still mine"))
    first.wait_for_function(f"{KEYS} === 1")
    second = opened(context, studio)
    assert "still mine" not in text_of(second, "prompt")
    assert second.evaluate(KEYS) == 1
    reloaded(first)
    wait_for_text(first, "prompt", "still mine")


@pytest.mark.long
def test_only_text_that_is_kept_nowhere_is_asked_about(context: BrowserContext, studio: Server) -> None:
    page = opened(context, studio)
    keep_nothing(page)
    asked: list[str] = []

    def answer(dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    rewrite(page, "prompt", prompt("kept here"))
    reloaded(page)
    assert asked == []
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error() } }")
    rewrite(page, "prompt", prompt("kept nowhere"))
    page.reload()
    assert asked == ["beforeunload"]


@pytest.mark.long
def test_text_that_gives_way_to_another_tabs_is_among_the_earlier_workspaces(
    context: BrowserContext, studio: Server
) -> None:
    first, second = opened(context, studio), opened(context, studio)
    rewrite(second, "prompt", prompt("of the second tab"))
    expect(second.locator(".workspace-name .saved")).to_contain_text("Draft saved")
    rewrite(first, "prompt", prompt("gives way"))
    first.locator(".notices").get_by_role("button", name="Load that text").click()
    wait_for_text(first, "prompt", "of the second tab")
    first.get_by_role("button", name="File").click()
    first.get_by_role("menuitem", name="Versions…").click()
    versions = first.locator("dialog.shelf")
    versions.get_by_role("list").get_by_role("button").first.click()
    expect(versions).to_contain_text("gives way")
