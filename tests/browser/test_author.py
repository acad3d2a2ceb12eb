"""The Author page: writing, picking, running and comparing, as a person does it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from engine.pml import parse_schema
from tests.browser.conftest import COLOURS, QUESTIONS, Server, Studios, Watched

LONG_RUN_MS = 120_000
TEXTS = "window.promptCacheStudio.workspace.texts()"


def text_of(page: Page, kind: str) -> str:
    return str(page.evaluate(f"{TEXTS}.{kind}"))


def wait_for_text(page: Page, kind: str, pattern: str) -> None:
    page.wait_for_function(
        f"pattern => new RegExp(pattern).test({TEXTS}.{kind})", arg=pattern, timeout=10_000
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
    assert author.evaluate("window.marked") < 3000
    problems = author.get_by_role("list", name="Problems of the schema")
    expect(problems).to_contain_text("E1")
    expect(author.locator(".panel.schema .status")).to_contain_text("error")
    author.locator(".panel.schema .cm-lintRange-error").first.hover()
    expect(author.locator(".cm-tooltip")).to_contain_text("E1")
    author.keyboard.press("Control+z")
    expect(author.locator(".panel.schema .status")).to_have_text("no problems")


def test_picks_write_the_prompt(author: Page) -> None:
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


def test_edits_of_the_prompt_move_the_picks(author: Page) -> None:
    tree = author.get_by_role("region", name="Modules")
    expect(tree.get_by_role("radio", name=re.compile("^tokyo"))).to_be_checked()
    rewrite(author, "prompt", text_of(author, "prompt").replace("<tokyo/>", "<rome/>"))
    expect(tree.get_by_role("radio", name=re.compile("^rome"))).to_be_checked()
    expect(tree.get_by_role("radio", name=re.compile("^tokyo"))).not_to_be_checked()
    author.keyboard.press("Control+z")
    expect(tree.get_by_role("radio", name=re.compile("^tokyo"))).to_be_checked()


def fact(author: Page, name: str) -> int:
    """A number under the cached answer; 0 where it is not shown."""
    said = pane(author, "Cached").locator(".facts div", has_text=name)
    return int(re.sub(r"\D", "", said.locator("dd").inner_text())) if said.count() else 0


def encoded(page: Page) -> bool:
    """Whether the run that is shown has encoded something."""
    return "Encoded now" in page.locator(".scale-words").inner_text()


def test_both_sides_run_and_are_compared(author: Page) -> None:
    run(author)
    for name in ("Cached", "Uncached"):
        expect(pane(author, name).locator(".ttft")).to_have_text(re.compile(r"[\d.,]+\s?(ms|s)"))
        assert pane(author, name).locator(".answer").inner_text().strip()
        expect(pane(author, name).locator(".parts")).to_contain_text("prefill")
    expect(author.locator(".ratio")).to_have_text(re.compile(r"[\d.]+"))
    assert fact(author, "from cache") > 500
    times = author.get_by_role("region", name="Times of this schema's runs")
    expect(times.locator(".js-plotly-plot")).to_be_visible()
    points = times.locator(".points path").count()
    run(author)
    assert "encode" not in pane(author, "Cached").locator(".parts").inner_text()
    said = author.locator(".headline").inner_text().split()
    expect(times.locator(".runs button").first).to_contain_text("no clear" if said[1] == "no" else said[0])
    words = "No clear difference" if said[1] == "no" else f"First token {said[0]} {said[1]} with the cache."
    expect(author.locator(".run-status")).to_contain_text(words)  # timings overlap on a busy machine
    assert fact(author, "from cache") > 500
    assert not encoded(author)
    author.wait_for_function("n => document.querySelectorAll('.times .points path').length > n", arg=points)
    expect(author.get_by_role("region", name="Modules").locator(".row.on .badge").first).to_have_text(
        "memory"
    )


def test_a_new_module_is_encoded_once(author: Page) -> None:
    rewrite(author, "prompt", text_of(author, "prompt").replace("<tokyo/>", "<sydney/>"))
    run(author)
    assert encoded(author)
    assert "encode" not in pane(author, "Cached").locator(".parts").inner_text()
    run(author)
    assert not encoded(author)


def test_a_run_is_stopped_half_way_and_keeps_what_came(author: Page) -> None:
    author.get_by_role("button", name="Settings").click()
    author.get_by_label("Max answer length").fill("2000")
    author.get_by_label("Temperature").fill("5")
    author.get_by_label("Temperature").press("Tab")
    author.locator("#run").click()
    author.wait_for_function(
        "document.querySelector('.pane[data-state=streaming] .answer')?.innerText.length > 40", timeout=60_000
    )
    author.keyboard.press("Escape")
    expect(author.locator(".run-status")).to_contain_text("Stopped", timeout=30_000)
    assert any(len(text) > 30 for text in author.locator(".pane .answer").all_inner_texts())
    expect(author.locator("#run")).to_be_enabled()


def test_a_page_that_is_loaded_follows_a_run_that_it_did_not_begin(author: Page, watched: Watched) -> None:
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2000, temperature: 5})")
    author.locator("#run").click()
    author.wait_for_selector(".pane[data-state=streaming]", timeout=60_000)
    other = author.context.new_page()
    other.goto(watched.url)
    other.wait_for_selector(".pane[data-state=streaming]", timeout=60_000)
    author.keyboard.press("Escape")
    expect(author.locator(".run-status")).to_contain_text("Stopped", timeout=30_000)
    going = ":is([data-state=streaming], [data-state=waiting], [data-state=working])"
    expect(other.locator(f".pane{going}")).to_have_count(0)
    expect(other.locator(".pane[data-state=stopped]")).not_to_have_count(0)
    other.close()


def test_runs_in_two_tabs_share_the_machine(author: Page, watched: Watched) -> None:
    """A short one that begins later is over first, and the long one answers what it answers alone."""

    def answers() -> list[str]:
        return [pane(author, name).locator(".answer").inner_text() for name in ("Cached", "Uncached")]

    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 200, temperature: 5})")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=LONG_RUN_MS)
    alone = answers()
    other = author.context.new_page()
    other.goto(watched.url)
    other.wait_for_selector("html[data-studio=ready]", timeout=60_000)
    other.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2, temperature: 0})")
    author.locator("#run").click()
    author.wait_for_selector(".pane[data-state=streaming]", timeout=60_000)
    other.locator("#run").click()
    expect(other.locator(".run-status")).to_contain_text("Done", timeout=LONG_RUN_MS)
    assert "Done" not in author.locator(".run-status").inner_text()
    assert all(other.locator(".pane .answer").all_inner_texts())
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=LONG_RUN_MS)
    assert answers() == alone
    words = [page.locator(".scale-words").inner_text() for page in (author, other)]
    numbers = [re.findall(r"Run \d+", one) for one in words]
    assert all(numbers)
    assert numbers[0] != numbers[1]
    other.close()


def test_a_run_with_errors_is_refused_with_the_first_of_them(author: Page) -> None:
    rewrite(author, "prompt", '<prompt schema="travel"><toyko/></prompt>')
    author.keyboard.press("Control+Enter")
    status = author.locator(".run-status")
    expect(status).to_contain_text("E4")
    expect(status).to_contain_text("tokyo")
    assert "<toyko/>" in text_of(author, "prompt")


def test_the_schema_downloads_and_parses_again(author: Page) -> None:
    author.get_by_role("button", name="File").click()
    expect(author.locator(".menu-hint")).to_have_text(re.compile(r"start the studio with --schemas DIR\.$"))
    with author.expect_download() as download:
        author.get_by_role("menuitem", name="Download the schema").click()
    assert download.value.suggested_filename == "travel.pml"
    parsed = parse_schema(Path(download.value.path()).read_bytes())
    assert parsed.ok
    assert parsed.tree is not None
    assert parsed.tree.name == "travel"


def test_work_survives_a_reload(author: Page) -> None:
    rewrite(author, "prompt", '<prompt schema="travel">\n  <user>Never lose this.</user>\n</prompt>\n')
    author.wait_for_timeout(50)
    author.reload()
    author.wait_for_selector("html[data-studio=ready]", timeout=60_000)
    wait_for_text(author, "prompt", "Never lose this")


def noticed(page: Page, ended: Callable[[], object]) -> float:
    """Seconds from the end of a server to the sentence that tells of it."""
    ended()
    begun = time.monotonic()
    expect(page.locator(".notice[data-notice=away]")).to_be_visible()
    return time.monotonic() - begun


def test_a_server_that_is_gone_is_noticed_and_the_page_goes_on_when_it_is_back(
    browser: Browser, studios: Studios, tmp_path: Path
) -> None:
    server = studios.start(tmp_path)
    watched = Watched(browser.new_page(), server.url)
    page = watched.open()
    rewrite(page, "prompt", text_of(page, "prompt").replace("surf", "very best surf"))
    run(page)
    assert encoded(page)
    page.evaluate("window.stays = 1")
    page.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2000, temperature: 5})")
    page.locator("#run").click()
    page.wait_for_selector(".pane[data-state=streaming]", timeout=60_000)
    assert noticed(page, server.kill) < 2
    expect(page.locator(".run-status")).to_contain_text("Stopped: the studio's server does not answer.")
    expect(page.locator(".pane[data-state=stopped] .state")).to_contain_text("server does not answer")
    expect(page.locator("#run")).to_be_enabled()
    rewrite(page, "prompt", text_of(page, "prompt").replace("very best surf", "calmest water"))
    assert page.locator(".toast-body").count() == 0, "Gradio says nothing of its own"

    server = studios.start(tmp_path, int(server.url.rpartition(":")[2]))
    expect(page.locator(".notice[data-notice=away]")).to_have_count(0)
    expect(page.locator(".picker .row.on .badge").first).to_have_text("disk")
    page.evaluate("window.promptCacheStudio.workspace.change({temperature: 0})")
    run(page)
    assert not encoded(page), "segments survive"
    assert fact(page, "from cache") > 500
    assert page.evaluate("window.stays") == 1, "the page was not loaded again"
    page.reload()
    watched.ready()
    wait_for_text(page, "prompt", "calmest water")
    assert noticed(page, server.kill) < 2
    page.close()


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
    page.wait_for_timeout(300)
    assert 200 not in seen
    page.close()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_fits_and_can_be_read(watched: Watched, width: int, theme: str) -> None:
    page = watched.page
    page.set_viewport_size({"width": width, "height": 900})
    watched.open()
    if theme == "dark":
        page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for name in ("Run", "Settings", "File"):
        expect(page.get_by_role("button", name=re.compile(f"^{name}")).first).to_be_visible()
    contrast = page.evaluate(
        """() => {"""
        + COLOURS
        + """
            const texts = ".bar h2, .row .name, .status, .soft, .run-status, .empty, .tokens"
            return [...document.querySelectorAll(texts)]
                .filter(n => n.textContent.trim() && n.offsetParent)
                .map(n => { const a = light(getComputedStyle(n).color), b = light(ground(n))
                    return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), n.className, n.textContent] })
                .sort((x, y) => x[0] - y[0])[0]
        }"""
    )
    assert contrast[0] >= 4.5, contrast
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme.includes('dark')") == (
        theme == "dark"
    ), "the scrollbar of the page is of its theme"
    page.evaluate("location.hash = '#/benchmark'")
    expect(page.locator("[aria-current] span", has_text="Benchmark")).to_have_css(
        "height", re.compile("^1[0-6]")
    )


def test_the_keyboard_alone_is_enough(author: Page) -> None:
    few_tokens(author)
    document(author, "prompt").focus()
    author.keyboard.press("Escape")
    author.keyboard.press("Tab")
    assert not author.evaluate("Boolean(document.activeElement.closest('.panel.prompt .cm-editor'))")
    author.keyboard.press("Control+Enter")
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=LONG_RUN_MS)
    unnamed = author.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role=textbox]")]
            .filter(n => n.offsetParent && !n.closest(".plotly, .modebar")
                && !(n.getAttribute("aria-label") || n.labels?.length || n.textContent.trim() || n.title))
            .map(n => n.outerHTML.slice(0, 120))"""
    )
    assert unnamed == []


def test_the_gallery_opens_samples_ready_to_run(watched: Watched) -> None:
    page = watched.open("/#/gallery")
    cards = page.locator("#page-gallery article")
    expect(cards).to_have_count(6)
    page.get_by_role("button", name=re.compile("^Open .*document.* with prompt 1", re.IGNORECASE)).click()
    wait_for_text(page, "schema", 'name="documents"')
    run(page)
    assert pane(page, "Uncached").locator(".answer").inner_text().strip()


def test_a_link_on_another_site_opens_the_page_but_no_frame_does(browser: Browser, studio: Server) -> None:
    page = browser.new_page()
    page.goto(f"data:text/html,<a href='{studio.url}/'>open</a><iframe src='{studio.url}/'></iframe>")
    assert all(frame.query_selector("gradio-app") is None for frame in page.frames)
    page.get_by_role("link", name="open").click()
    page.wait_for_selector("html[data-studio=ready]", timeout=60_000)
    page.close()
