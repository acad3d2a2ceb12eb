"""No page, dialog or state breaks a rule of axe-core, in light and in dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched
from tests.browser.test_author import document, rewrite, run
from tests.browser.test_dropping import dropped

STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules that a dark page can break and a light one keeps."""
THEME = "dark => document.body.classList.toggle('dark', dark)"
PAGES = "[...document.querySelectorAll('nav a[href^=\"#/\"]')].map(link => link.hash)"
VIOLATIONS = """async ([within, runOnly]) => {
    const { violations } = await axe.run(within, { runOnly, resultTypes: ["violations"] })
    return violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) =>
        `${id}: ${html.slice(0, 200)} ${failureSummary?.slice(0, 300)}`)) }"""


HELLO = [{"role": "user", "content": "Hello"}]
CONFLICT = """() => { const { workspace } = window.promptCacheStudio
    const conflict = { schema: "<a/>", prompt: "<b/>" }
    workspace.emit("conflict", { message: "Another tab has changed this.", conflict }) }"""


def violations(page: Page, state: str, within: str = "html") -> list[str]:
    """What breaks a rule in either theme of an element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    broken = []
    for theme, rules in (("light", STANDARDS), ("dark", COLOURS)):
        page.evaluate(THEME, theme == "dark")
        broken += [f"{state}, {theme}: {one}" for one in page.evaluate(VIOLATIONS, [within, rules])]
    page.evaluate(THEME, False)
    return broken


def test_every_page_keeps_the_rules(watched: Watched) -> None:
    page = watched.open()
    run(page)  # so that the Runs page and the Cache page have rows
    broken = []
    for name in page.evaluate(PAGES):
        page.evaluate("name => { location.hash = name }", name)
        page.locator(f"#page-{name.removeprefix('#/')} :is(h1, h2)").first.wait_for()
        broken += violations(page, name)
    assert broken == [], "\n".join(broken)


@pytest.mark.long
def test_every_dialog_and_state_keeps_the_rules(author: Page, tmp_path: Path) -> None:
    broken: list[str] = []
    dialog = author.locator("dialog[open]")

    def look(state: str, within: str = "dialog[open]") -> None:
        author.locator(within).first.wait_for()
        broken.extend(violations(author, state, within))
        for _ in range(author.locator("dialog[open]").count()):
            author.keyboard.press("Escape")
        expect(dialog).to_have_count(0)

    run(author)
    look("a run that is done", ".studio-author")
    author.get_by_role("button", name="Compare with another model…").click()
    look("a comparison with another model")
    author.get_by_role("button", name="What Run does").click()
    look("the menu of Run", ".run-bar")
    author.keyboard.press("Escape")
    author.get_by_role("button", name="Settings", exact=True).click()
    look("the settings", "#run-settings")
    author.keyboard.press("Escape")
    author.keyboard.press("Control+k")
    look("the palette")
    author.get_by_role("button", name="Help (?)").click()
    look("the help")
    author.get_by_role("button", name="File", exact=True).click()
    look("the menu of files", "#file-menu")
    author.get_by_role("menuitem", name="Versions…").click()
    look("the versions")
    author.evaluate(CONFLICT)
    author.locator(".notices").get_by_role("button", name="Compare…").click()
    expect(dialog.locator("table").first).to_be_visible()
    look("theirs or mine")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "sea.md").write_text("# Sea", encoding="utf-8")
    (tmp_path / "notes" / "photo.jpg").write_bytes(b"\xff\xd8\0")
    dropped(author, tmp_path / "notes")
    look("an import")
    rewrite(author, "prompt", '<prompt schema="travel">\n  <toyko/>\n</prompt>')
    author.keyboard.press("Control+Enter")
    expect(author.locator(".run-status")).to_contain_text("E402")
    expect(document(author, "prompt")).to_be_visible()
    look("a run that is refused, and problems", ".studio-author")
    asked = f"{author.evaluate('location.origin')}/v1/chat/completions"
    author.request.post(asked, data={"model": "demo", "max_tokens": 1, "messages": HELLO})
    faulty = f'<schema name="a"><{"b" * 300}/></schema>'
    author.request.post(asked, data={"model": "demo", "messages": [], "prompt_cache": {"schema": faulty}})
    author.evaluate("location.hash = '#/serve'")
    author.locator(".serve-requests").get_by_role("button", name="The whole sentence").first.click()
    author.locator(".hits .legend li").first.wait_for()
    author.locator(".hits .chart .bars path").first.wait_for(state="attached")
    look("requests, and a prompt that cannot be asked for", ".studio-serve")
    author.evaluate("location.hash = '#/cache'")
    author.locator("#page-cache tbody input[type=checkbox]").first.check()
    author.locator("#page-cache").get_by_role("button", name="Delete").first.click()
    look("a question before something is deleted")
    assert broken == [], "\n".join(broken)
