"""The Author page: writing, picking, running and comparing, as a person does it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.conftest import COLOURS, QUESTIONS, Server, Studios, Watched, becomes, reloaded

LONG_RUN_MS = 120_000
TEXTS = "window.promptCacheStudio.workspace.texts()"


def text_of(page: Page, kind: str) -> str:
    return str(page.evaluate(f"{TEXTS}.{kind}"))


def wait_for_text(page: Page, kind: str, pattern: str) -> None:
    page.wait_for_function(
        f"pattern => new RegExp(pattern).test({TEXTS}.{kind})", arg=pattern, timeout=20_000
    )


def document(page: Page, kind: str) -> Locator:
    """The editor of a document, which is brought to the front."""
    page.get_by_role("tab", name=kind.title()).click()
    return page.get_by_role("textbox", name=f"{kind.title()} document")


PASTE = """(node, text) => {
    const clipboardData = new DataTransfer()
    clipboardData.setData("text/plain", text)
    node.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true })) }"""


def rewrite(page: Page, kind: str, text: str) -> None:
    """Pastes a document over the one that is there. Text that is typed takes a browser 20 ms a line."""
    editor = document(page, kind)
    editor.click()
    page.keyboard.press("Control+a")
    editor.evaluate(PASTE, text)


def few_tokens(page: Page) -> None:
    """A run is as long as it must be: what it takes is not what is tried."""
    page.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 6})")


def run(page: Page) -> None:
    few_tokens(page)
    page.locator("#run").click()
    expect(page.locator(".run-status")).to_contain_text("Done", timeout=LONG_RUN_MS)


def pane(page: Page, name: str):
    return page.get_by_role("region", name=name, exact=True)


def test_the_page_says_what_the_bundled_model_is_and_how_to_load_another(author: Page) -> None:
    line = author.locator(".about-model")
    expect(line).to_be_visible()
    expect(line).to_contain_text("knows only the samples")
    line.get_by_role("link", name="Get a real model").click()
    expect(author.get_by_role("button", name="SmolLM2-135M-Instruct")).to_be_visible()
    asked: list[str] = []

    def refuse(route: Route) -> None:
        body = route.request.post_data or ""
        if "switch_model" not in body:
            return route.fallback()
        asked.append(body)
        return route.fulfill(json={"error": "The network is out."})

    author.route(QUESTIONS, refuse)
    author.get_by_role("button", name="Download 93.8 MiB and load").first.click()
    expect(author.locator("#page-models")).to_contain_text("The network is out.")
    expect(author.get_by_role("textbox", name="A folder or GGUF file")).to_have_value("smollm2")
    assert len(asked) == 1
    assert "smollm2" in asked[0]


def test_sizes_that_the_server_failed_to_count_come_later(author: Page) -> None:
    failures: list[str] = []

    def fail_once(route: Route) -> None:
        if '"measure"' not in (route.request.post_data or "") or failures:
            return route.fallback()
        failures.append(route.request.url)
        return route.fulfill(json={"error": "The model is busy."})

    author.route(QUESTIONS, fail_once)
    rewrite(author, "schema", '<schema name="travel"><module name="new">Some words.</module></schema>')
    notice = author.locator(".notice[data-notice=unchecked]")
    expect(notice).to_be_visible()
    expect(notice).to_have_count(0)
    expect(author.locator(".picker .badge[data-tier]")).to_have_count(1)
    author.evaluate("window.promptCacheStudio.workspace.editors.schema.undo()")


def test_a_mistake_is_underlined_and_named_while_typing(author: Page) -> None:
    document(author, "schema").click()
    author.keyboard.press("Control+Home")
    # Between two keystrokes the mark must come quickly; the page measures from the key to the underline.
    author.evaluate(
        """() => {
            window.marked = new Promise(resolve => {
                let pressed = 0
                addEventListener("keydown", () => { pressed = performance.now() }, true)
                new MutationObserver((_, observer) => {
                    if (!document.querySelector(".panel.schema .cm-lintRange-error")) return
                    observer.disconnect()
                    resolve(performance.now() - pressed)
                }).observe(document.body, {subtree: true, childList: true, attributes: true})
            })
        }"""
    )
    author.keyboard.type("&")
    author.evaluate("window.marked")
    problems = author.get_by_role("list", name="Problems in the schema")
    expect(problems).to_contain_text("E1")
    expect(author.locator(".panel.schema .status")).to_contain_text("error")
    author.locator(".panel.schema .cm-lintRange-error").first.hover()
    expect(author.locator(".cm-tooltip")).to_contain_text("E1")
    author.keyboard.press("Control+z")
    expect(author.locator(".panel.schema .status")).to_have_text("no problems")
    rewrite(author, "schema", '<schema name="own"><module name="one"><user>One</user></module></schema>')
    rewrite(author, "prompt", '<prompt schema="own">\nSo?\n<one/>\n</prompt>')
    notes = author.get_by_role("list", name="Problems in the prompt")
    expect(notes).to_have_text(re.compile(r"^▸\d notes?$"))  # what needs no action is folded
    notes.get_by_role("button").click()
    expect(notes).to_contain_text("W617")


def test_a_name_is_changed_in_both_documents_and_a_taken_one_is_refused(author: Page) -> None:
    rewrite(
        author, "schema", '<schema name="s"><module name="a">x</module> <module name="b">y</module></schema>'
    )
    rewrite(author, "prompt", '<prompt schema="s"><a/> What?</prompt>')
    author.evaluate("window.promptCacheStudio.workspace.editors.prompt.reveal(20)")
    author.keyboard.press("F2")
    dialog = author.get_by_role("dialog", name="Rename the module")
    field = dialog.get_by_role("textbox", name="New name of a")
    field.fill("b")
    author.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("Module 'b' already exists, at line 1.")
    field.fill("note")
    author.keyboard.press("Enter")
    wait_for_text(author, "schema", '<module name="note">x')
    wait_for_text(author, "prompt", "<note/> What")
    expect(dialog).to_have_count(0)
    author.keyboard.press("Control+z")
    wait_for_text(author, "prompt", "<a/> What")


LATE = """name => {
    const editor = window.promptCacheStudio.workspace.editors.prompt, mark = editor.mark()
    editor.view.dispatch({ changes: { from: 0, to: mark.text.length, insert: '<prompt schema="own"/>' } })
    editor.apply(mark, mark.text.replace("travel", name))
    return editor.text() }"""


def test_a_late_edit_does_not_change_a_text_that_replaced_its_own(author: Page) -> None:
    assert author.evaluate(LATE, "own") == '<prompt schema="own"/>'


def test_picks_write_the_prompt_and_follow_its_edits(author: Page) -> None:
    rewrite(author, "prompt", '<prompt schema="travel">\n  <user>Where shall I go?</user>\n</prompt>\n')
    tree = author.get_by_role("region", name="Modules")
    expect(tree.get_by_label("trip-plan").first).not_to_be_checked()
    tree.get_by_role("checkbox", name=re.compile("^trip-plan")).click()
    wait_for_text(author, "prompt", "<trip-plan")
    tree.get_by_role("radio", name=re.compile("^overseas")).click()
    wait_for_text(author, "prompt", "<overseas")
    tree.get_by_role("radio", name=re.compile("^tokyo")).click()
    wait_for_text(author, "prompt", "<tokyo/>")
    for name in ("overseas", "tokyo"):  # each is the choice of a union of its own
        expect(tree.get_by_role("radio", name=re.compile(f"^{name}"))).to_be_checked()
    duration = tree.get_by_role("textbox", name=re.compile("duration"))
    duration.fill("3 days")
    wait_for_text(author, "prompt", 'duration="3 days"')
    expect(tree.locator(".counter").first).to_contain_text(re.compile(r"\d / \d+ tokens"))
    assert "Where shall I go?" in text_of(author, "prompt")
    expect(author.locator(".panel.prompt .status")).to_have_text("no problems")
    rewrite(author, "prompt", text_of(author, "prompt").replace("<tokyo/>", "<rome/>"))
    expect(tree.get_by_role("radio", name=re.compile("^rome"))).to_be_checked()
    expect(tree.get_by_role("radio", name=re.compile("^tokyo"))).not_to_be_checked()
    author.keyboard.press("Control+z")
    expect(tree.get_by_role("radio", name=re.compile("^tokyo"))).to_be_checked()
    reloaded(author)
    wait_for_text(author, "prompt", "Where shall I go")


def fact(author: Page, name: str) -> int:
    """A number under the cached answer; 0 where it is not shown."""
    said = pane(author, "Cached").locator(".facts div", has_text=name)
    return int(re.sub(r"\D", "", said.locator("dd").inner_text())) if said.count() else 0


def test_both_sides_run_and_are_compared(author: Page) -> None:
    rewrite(author, "prompt", text_of(author, "prompt").replace("<tokyo/>", "<sydney/>"))
    run(author)
    for name in ("Cached", "Uncached"):
        expect(pane(author, name).locator(".ttft")).to_have_text(re.compile(r"[\d.,]+\s?(ms|s)"))
        expect(pane(author, name).locator(".answer")).to_have_text(re.compile(r"\S"))
        expect(pane(author, name).locator(".parts")).to_contain_text("prefill")
    expect(author.locator(".ratio")).to_have_text(re.compile(r"[\d.]+"))
    expect(author.locator(".scale-words")).to_contain_text("Encoded now")
    times = author.get_by_role("region", name="Times of this schema's runs")
    expect(times.locator(".js-plotly-plot")).to_be_visible()
    points = times.locator(".points path").count()
    run(author)
    expect(author.locator(".scale-words")).not_to_contain_text("Encoded now")
    expect(pane(author, "Cached").locator(".parts")).not_to_contain_text("encode")
    ratio = author.locator(".ratio").inner_text()
    unclear = ratio == "≈ 1×"  # timings overlap on a busy machine
    expect(times.locator(".runs button").first).to_contain_text("no clear" if unclear else ratio)
    words = "No clear difference" if unclear else f"First token {ratio} with the cache."
    expect(author.locator(".run-status")).to_contain_text(words)
    expect(author.locator(".sameness")).to_have_text(re.compile(r"^(Same text|Differs from word \d+)$"))
    assert fact(author, "from cache") > 500
    author.wait_for_function("n => document.querySelectorAll('.times .points path').length > n", arg=points)
    expect(author.get_by_role("region", name="Modules").locator(".row.on .badge").first).to_have_text(
        "memory"
    )


@pytest.mark.long
def test_a_run_that_another_tab_follows_is_stopped_and_keeps_what_came(
    author: Page, watched: Watched
) -> None:
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2000, temperature: 5})")
    author.locator("#run").click()
    author.wait_for_function(
        "document.querySelector('.pane[data-state=streaming] .answer')?.innerText.length > 40", timeout=60_000
    )
    other = author.context.new_page()
    other.goto(watched.url)
    other.wait_for_selector(".pane[data-state=streaming]", timeout=60_000)
    author.keyboard.press("Escape")
    expect(author.locator(".run-status")).to_contain_text("Stopped", timeout=30_000)
    assert any(len(text) > 30 for text in author.locator(".pane .answer").all_inner_texts())
    expect(author.locator("#run")).to_be_enabled()
    going = ":is([data-state=streaming], [data-state=waiting], [data-state=working])"
    expect(other.locator(f".pane{going}")).to_have_count(0)
    expect(other.locator(".pane[data-state=stopped]")).not_to_have_count(0)
    other.close()


def test_a_server_that_is_gone_is_noticed_and_the_page_goes_on_when_it_is_back(
    browser: Browser, studios: Studios, tmp_path: Path
) -> None:
    server = studios.start(tmp_path)
    watched = Watched(browser.new_page(), server.url)
    page = watched.open()
    page.evaluate("window.stays = 1")
    page.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2000, temperature: 5})")
    page.locator("#run").click()
    page.wait_for_selector(".pane[data-state=streaming]", timeout=60_000)
    server.kill()
    away = page.locator(".notice[data-notice=away]")
    expect(away).to_be_visible()
    expect(page.locator(".run-status")).to_contain_text("Stopped: the studio's server does not answer.")
    expect(page.locator(".pane[data-state=stopped] .state")).to_contain_text("server does not answer")
    expect(page.locator("#run")).to_be_enabled()
    rewrite(page, "prompt", text_of(page, "prompt").replace("surf", "calmest water"))
    expect(page.locator(".toast-body")).to_have_count(0)  # Gradio says nothing of its own

    server = studios.start(tmp_path, int(server.url.rpartition(":")[2]))
    expect(away).to_have_count(0)
    expect(page.locator(".results")).not_to_contain_text("does not answer")
    expect(page.locator(".picker .row.on .badge").first).to_have_text("disk")
    page.evaluate("window.promptCacheStudio.workspace.change({temperature: 0})")
    run(page)
    expect(page.locator(".scale-words")).not_to_contain_text("Encoded now")
    assert page.evaluate("window.stays") == 1, "the page was not loaded again"
    answer = page.locator(".pane .answer").first.inner_text()
    server.stop()
    server = studios.start(tmp_path, int(server.url.rpartition(":")[2]))
    page.reload()
    watched.ready()
    wait_for_text(page, "prompt", "calmest water")
    age = page.locator(".answers .age")
    expect(age).to_have_text(re.compile(r"^The last run, [^.]+\.$"))  # the stored one of these documents
    expect(page.locator(".pane .answer").first).to_have_text(answer)
    rewrite(page, "prompt", text_of(page, "prompt").replace("calmest", "warmest"))
    expect(age).to_contain_text("It ran with an earlier text of the prompt. Run again.")
    page.close()
    server.stop()


@pytest.mark.long
def test_markup_in_texts_is_only_text(author: Page) -> None:
    evil = "&lt;img src=x onerror=&quot;window.hacked=1&quot;&gt;"
    rewrite(author, "schema", f'<schema name="evil"><module name="m">{evil} {evil}</module></schema>')
    rewrite(author, "prompt", f'<prompt schema="evil"><m/> {evil}</prompt>')
    expect(author.locator(".panel.prompt .status")).to_have_text("no problems")
    author.locator(".picker .row").first.hover()
    run(author)
    assert author.evaluate("window.hacked") is None
    assert author.locator("img[src=x]").count() == 0


@pytest.mark.parametrize("origin", ["http://127.0.0.1:1", "http://evil.example"])
def test_requests_of_other_pages_are_refused(browser: Browser, studio: Server, origin: str) -> None:
    context = browser.new_context()
    answer = context.request.post(
        f"{studio.url}/gradio_api/component_server",
        headers={"Origin": origin, "Content-Type": "text/plain"},
        data=json.dumps({"session_hash": "x", "component_id": 1, "fn_name": "open_workspace", "data": []}),
    )
    assert answer.status == 403
    assert context.request.get(studio.url, headers={"Host": "evil.example"}).status == 403
    assert context.request.get(studio.url).status == 200
    context.close()


def test_another_pages_script_reaches_nothing(browser: Browser, studio: Server) -> None:
    """The attack itself: a page of another origin posts to the studio without asking."""
    page = browser.new_page()
    seen: list[int] = []
    page.on("response", lambda response: seen.append(response.status) if studio.url in response.url else None)
    page.goto("data:text/html,<title>elsewhere</title>")
    page.evaluate(
        """url => fetch(url + "/gradio_api/component_server", {
            method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: "{}"
        }).catch(() => {})""",
        studio.url,
    )
    assert 200 not in seen
    page.close()


DARK = "getComputedStyle(document.documentElement).colorScheme.includes('dark')"
CONTRAST = (
    """() => {"""
    + COLOURS
    + """
    const texts = ".bar h2, .row .name, .status, .soft, .run-status, .empty, .tokens"
    return [...document.querySelectorAll(texts)]
        .filter(n => n.textContent.trim() && n.offsetParent)
        .map(n => { const a = light(getComputedStyle(n).color), b = light(ground(n))
            return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), n.className, n.textContent] })
        .sort((x, y) => x[0] - y[0])[0] }"""
)


def test_the_page_fits_and_can_be_read(watched: Watched) -> None:
    page = watched.open()
    for theme, width in (("light", 400), ("light", 1280), ("dark", 1280), ("dark", 400)):
        page.set_viewport_size({"width": width, "height": 900})
        if (theme, width) == ("dark", 1280):
            page.get_by_role("button", name="Light or dark").click()
        becomes(page, DARK, theme == "dark")  # the scrollbar of the page is of its theme
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        for name in ("Run", "Settings", "File"):
            expect(page.get_by_role("button", name=re.compile(f"^{name}")).first).to_be_visible()
        contrast = page.evaluate(CONTRAST)
        assert contrast[0] >= 4.5, (theme, width, contrast)
    page.evaluate("location.hash = '#/benchmark'")
    expect(page.locator("[aria-current] span", has_text="Benchmark")).to_have_css(
        "height", re.compile("^1[0-6]")
    )
