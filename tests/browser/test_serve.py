"""The Serve page: programs that are copied and work, requests as they come, and what of them was read."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import QUESTIONS, Server, Watched, becomes, reloaded, settled, unrouted
from tests.browser.test_author import few_tokens, rewrite, text_of

FAULTY = f'<schema name="a"><{"b" * 300}/></schema>'
"""What has a sentence of many lines."""
HOSTILE = "<img src=x onerror=alert(1)>"
BOXES = """() => [".studio-serve > *", ".serve-requests > header", ".serve-requests th"]
    .flatMap(one => [...document.querySelectorAll(one)])
    .filter(node => node.className !== "serve-requests").map(node => {
        const { x, y, width, height } = node.getBoundingClientRect()
        return [node.textContent.slice(0, 8), x, y + scrollY, width, height].join() })"""
"""Where everything stands but the rows of the table."""
FOCUS = """() => { const node = document.activeElement, choice = node.type === "radio"
    const name = node.getAttribute("aria-label") ?? (choice ? node.value : node.textContent)
    return [name, getComputedStyle(choice ? node.nextElementSibling : node).outlineStyle !== "none"] }"""
"""What has the focus, and whether that is seen."""
SHOWN = "document.querySelector('.program-frame pre').textContent"


def open_serve(page: Page) -> Locator:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Serve").click()
    expect(page.get_by_role("heading", name="Serve", exact=True)).to_be_focused()
    expect(page.locator(".studio-serve .state")).to_have_text("Ready")
    return page.locator(".serve-requests tbody tr")


def choose(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name).check()


def edit(page: Page, kind: str, text: str) -> None:
    """Pastes a document on the Author page, and comes back."""
    page.get_by_role("link", name="Author").click()
    rewrite(page, kind, text)
    open_serve(page)


def program(page: Page, holds: str) -> str:
    """The program that is shown, once it holds some words."""
    page.wait_for_function(f"words => {SHOWN}.includes(words)", arg=holds)
    return str(page.evaluate(SHOWN))


def ask(url: str, **more: Any) -> httpx.Response:
    """One request, as a program sends it."""
    body = {"model": "demo", "max_tokens": 2, "temperature": 0, "messages": [], **more}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def hello(url: str, words: str = "Hello") -> httpx.Response:
    return ask(url, messages=[{"role": "user", "content": words}])


def figure(row: Locator, name: str) -> Locator:
    return row.locator(f"td[data-column={name}]")


def request(number: int, outcome: str = "done", **more: Any) -> dict[str, Any]:
    """A request as the server tells it."""
    tokens = {"prompt": 1200, "read": 900, "written": 200, "rest": 100, "generated": 12}
    row = {"number": number, "at": time.time(), "path": "/v1/messages", "dialect": "anthropic", "who": ""}
    row |= {"model": "demo", "status": 200, "outcome": outcome, "stopped": "end", "sentence": ""}
    return {**row, "tokens": tokens, "ttft_ms": 12.5, "seconds": 1.5, **more}


def bottom(found: Locator) -> float:
    box = found.bounding_box()
    assert box is not None, "it is not seen"
    return box["y"] + box["height"]


@pytest.fixture
def faked(watched: Watched) -> Iterator[Callable[..., None]]:
    """Answers the page's question with something else, for states that a shared studio does not get into."""
    changed = dict[str, Any]()

    def answer(route: Route) -> None:
        if route.request.post_data_json["fn_name"] != "served":
            return route.continue_()
        told = route.fetch()
        return route.fulfill(response=told, json={**told.json(), **changed})

    watched.page.route(QUESTIONS, answer)
    yield lambda **fields: changed.update(fields)
    unrouted(watched.page)


def test_a_program_that_is_copied_gets_the_answer_and_is_listed(author: Page, watched: Watched) -> None:
    page = author
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    few_tokens(page)
    rows = open_serve(page)
    page.get_by_role("button", name="Copy the base URL for OpenAI's clients").click()
    assert page.evaluate("navigator.clipboard.readText()") == f"{watched.url}/v1"
    choose(page, "curl")
    choose(page, "Schema and picks")
    shown = program(page, "curl -sS")
    assert '"max_completion_tokens": 6' in shown
    copy = page.get_by_role("button", name="Copy the program")
    copy.click()
    expect(copy).to_have_text(re.compile("Copied"))
    expect(page.locator(".program-frame [role=status]")).to_have_text("Copied")
    assert page.locator("button [role=status]").count() == 0, "what is within a button is not told as news"
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == shown
    known = page.evaluate("document.querySelectorAll('.serve-requests tbody tr').length")
    first, second = (
        json.loads(subprocess.run(["bash", "-c", copied], capture_output=True, check=True).stdout)
        for _ in range(2)
    )
    assert first["choices"][0]["message"]["content"] == second["choices"][0]["message"]["content"] != ""
    expect(rows).to_have_count(known + 2)
    usage = second["usage"]
    read = usage["prompt_tokens_details"]["cached_tokens"]
    assert read > 0
    expect(rows.first).to_contain_text(re.compile(r"chat/completions\s*OpenAI · demo.*200 done", re.DOTALL))
    assert figure(rows.first, "read").inner_text() == f"{read:,}"
    assert figure(rows.first, "out").inner_text() == str(usage["completion_tokens"])
    expect(page.locator(".hits .chart .bars path")).not_to_have_count(0)
    expect(page.locator(".hits .sums")).to_contain_text("tokens read")
    expect(page.locator(".hits .legend li")).to_have_text(
        ["read", "written: computed and stored", "computed, not stored", "cached share so far"]
    )


@pytest.mark.long
def test_programs_follow_edits_and_picks_and_faults(author: Page) -> None:
    page = author
    open_serve(page)
    choose(page, "Python, openai")
    choose(page, "Schema uploaded once")
    shown = program(page, "httpx.put(url")
    assert "from openai import OpenAI" in shown
    assert "<tokyo" in shown
    choose(page, "Plain messages")
    marked = program(page, "prompt_cache_breakpoint")
    assert "prompt_cache=" not in marked
    choose(page, "Python, anthropic")
    program(page, '"cache_control": {"type": "ephemeral"}')
    choose(page, "JavaScript, openai")
    choose(page, "Schema and picks")
    program(page, "const schema = `<?xml")
    edit(page, "prompt", '<prompt schema="travel">Say "${x}" `y` C:\\n.\n</prompt>')
    program(page, 'Say "\\${x}" \\`y\\` C:\\\\n.')
    edit(page, "prompt", '<prompt schema="travel"><atlantis/></prompt>')
    fault = page.locator(".studio-serve .fault")
    expect(fault).to_contain_text("The prompt has an error in line 1: ")
    assert "schema" not in program(page, '"Hello"')
    schema = text_of(page, "schema")
    edit(page, "schema", " ")
    expect(fault).to_contain_text("No schema is open. Open a sample from the gallery")
    edit(page, "schema", schema)
    expect(fault).to_contain_text("The prompt has an error in line 1: ")


def test_what_is_refused_is_listed_as_text_and_all_is_while_it_is_off(author: Page, watched: Watched) -> None:
    page, url = author, watched.url
    assert ask(url, model=HOSTILE, messages=[{"role": "user", "content": "x"}]).status_code == 404
    rows = open_serve(page)
    expect(rows.first).to_contain_text("404 refused")
    expect(rows.first).to_contain_text(f"There is no model '{HOSTILE}' here")
    assert page.locator(".serve-requests img").count() == 0
    assert ask(url, prompt_cache={"schema": FAULTY}).status_code == 400
    expect(rows.first).to_contain_text("400 refused")
    more = page.get_by_role("button", name="The whole sentence").first
    more.press("Enter")
    expect(more).to_have_attribute("aria-expanded", "true")
    expect(rows.first).to_contain_text("E205")
    message = {"role": "user", "content": "Hello"}
    streamed = {"model": "demo", "max_tokens": 2, "temperature": 0, "stream": True, "messages": [message]}
    with httpx.stream("POST", f"{url}/v1/messages", json=streamed) as answer:
        answer.read()
    expect(rows.first).to_contain_text(
        re.compile(r"messages\s*Anthropic · demo.*200 done at its token limit", re.DOTALL)
    )
    expect(more).to_have_attribute("aria-expanded", "true")  # news leave other rows as they are
    try:
        page.get_by_role("button", name="Switch off").click()
        expect(page.locator(".studio-serve .state")).to_have_text("Off")
        expect(page.locator(".served-state")).to_contain_text("answered with status 503")
        refused = hello(url)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "switched_off")
        expect(rows.first).to_contain_text("The server is switched off.")
    finally:
        page.keyboard.press("Control+k")
        page.keyboard.type("switch the server")
        page.keyboard.press("Enter")
        expect(page.locator(".studio-serve .state")).to_have_text("Ready")
    assert hello(url).status_code == 200


def test_states_are_said_in_words(watched: Watched, faked: Callable[..., None]) -> None:
    page = watched.page
    page.set_viewport_size({"width": 400, "height": 800})
    faked(requests=[], change=0)
    watched.open("/#/serve")
    state, words = page.locator(".studio-serve .state"), page.locator(".served-state")
    steps = page.locator(".hits .steps")
    expect(steps).to_contain_text("No requests yet.")
    expect(steps).to_contain_text("Copy the program")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.set_viewport_size({"width": 1280, "height": 720})
    assert bottom(steps) < 720, "who has no request yet sees at once what to do"
    page.set_viewport_size({"width": 400, "height": 800})
    faked(state="off")
    expect(page.locator(".hits-place")).to_contain_text("The API is off and rejects")
    faked(state="loading", model="")
    expect(state).to_have_text("Loading")
    expect(words).to_contain_text("status 503")
    expect(words).to_contain_text("until the model is loaded")
    expect(page.get_by_role("button", name="Copy the model's name")).to_be_hidden()
    faked(state="draining", keys=2, origins=["http://a.example"], aliases=["other"])
    expect(state).to_have_text("Closing")
    expect(page.get_by_role("region", name="Address")).to_contain_text(
        re.compile(r"also called other.*2 keys.*PML_API_KEY.*Pages of http://a\.example", re.DOTALL)
    )
    expect(page.get_by_role("button", name="Switch off")).to_be_disabled()


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (400, 800)])
def test_nothing_but_rows_moves_while_requests_come(
    author: Page, watched: Watched, width: int, height: int
) -> None:
    page, url = author, watched.url
    page.set_viewport_size({"width": width, "height": height})
    hello(url)
    rows = open_serve(page)
    expect(page.locator(".hits .chart .bars path")).not_to_have_count(0)
    program(page, "travel")
    known, before = rows.count(), settled(page, BOXES)
    ask(url, model="x" * 150)
    hello(url, "Something else that is longer. " * 30)
    expect(rows).to_have_count(known + 2)
    expect(rows.first).to_contain_text("200 done")
    becomes(page, BOXES, before)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name="Pause").click()
    hello(url)
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    expect(rows).to_have_count(known + 2)
    page.keyboard.press("Enter")
    expect(rows).to_have_count(known + 3)


def test_the_first_screen_has_the_address_the_program_and_what_was_asked(
    watched: Watched, studio: Server, faked: Callable[..., None]
) -> None:
    studio.open_sample("travel")  # its program is long
    hello(watched.url)  # for the chart, which is drawn of what was asked
    faked(requests=[request(number) for number in range(1, 101)], change=1)
    page = watched.page
    page.set_viewport_size({"width": 1280, "height": 720})
    rows = opened(watched)
    expect(rows).to_have_count(100)
    program(page, "answer = client")
    expect(page.locator(".hits .chart .bars path")).not_to_have_count(0)
    for name in ("Switch off", "Copy the base URL for Anthropic's clients", "Copy the program"):
        assert bottom(page.get_by_role("button", name=name)) < 720, name
    for seen in (page.locator(".program-frame .fold").first, page.locator(".hits"), rows.nth(1)):
        assert bottom(seen) < 720
    expect(page.locator(".serve-requests .count")).to_have_text("100 requests")
    expect(page.locator(".hits .sums")).to_have_text("90,000 of 120,000 tokens read, 75%")
    rows.last.evaluate("node => { window.lastRow = node }")
    with page.expect_response(lambda answer: "component_server" in answer.url):
        pass  # the next look finds the same requests
    assert rows.last.evaluate("node => node === window.lastRow"), "a row that is the same stays"
    rows.last.scroll_into_view_if_needed()
    assert 0 < bottom(page.get_by_role("button", name="Copy the program")) < 720, "it stays beside them"


def opened(watched: Watched) -> Locator:
    """The rows of the page, which is what is loaded, once it has its styles."""
    page = watched.open("/#/serve")
    page.wait_for_function("getComputedStyle(document.querySelector('.serve-requests')).display === 'grid'")
    return page.locator(".serve-requests tbody tr")


SEEN = """([name, title]) => {
    const cell = document.querySelector(`.serve-requests tbody td[data-column="${name}"]`)
    if (!cell) return false
    const { left, right } = cell.getBoundingClientRect()
    const named = getComputedStyle(cell, "::before").content === JSON.stringify(title)
    return named && left >= 0 && right <= innerWidth && right > left && cell.scrollWidth <= cell.clientWidth
}"""
"""Whether a figure has its name above it, and all of it is within the window."""


def test_on_a_telephone_each_figure_is_seen_with_its_name(
    watched: Watched, faked: Callable[..., None]
) -> None:
    long = {"read": 123456, "written": 98765, "rest": 10000, "prompt": 232221, "generated": 8192}
    faked(requests=[request(1, tokens=long, ttft_ms=123456.0, who="key 1 (…ngth)")], keys=2, change=1)
    page = watched.page
    page.set_viewport_size({"width": 400, "height": 800})
    row = opened(watched).first
    shown = {"read": "123,456", "written": "98,765", "rest": "10,000", "ttft": "123.46 s", "out": "8,192"}
    titles = ["Read", "Written", "Computed", "First token", "Output"]
    for (name, words), title in zip(shown.items(), titles, strict=True):
        cell = figure(row, name)
        expect(cell).to_have_text(words)
        page.wait_for_function(SEEN, arg=[name, title])  # a row may be made anew while it is looked at
    expect(row).to_contain_text(
        re.compile(r"messages.*Anthropic · demo · key 1.*200 done.*in 1.50 s", re.DOTALL)
    )
    scroll = page.locator(".serve-requests .scroll")
    assert scroll.evaluate("node => node.scrollWidth <= node.clientWidth")


INSIDE = """width => {
    const said = document.querySelector(".serve-requests .sentence"), row = said?.closest("tr")
    if (!said || innerWidth !== width) return false
    const box = said.getBoundingClientRect(), outer = row.getBoundingClientRect()
    return box.width > 300 && box.right <= outer.right && document.documentElement.scrollWidth <= width }"""


@pytest.mark.long
def test_the_sentence_of_what_was_refused_has_the_room_of_the_figures(
    watched: Watched, faked: Callable[..., None]
) -> None:
    said = "Something of the request was not as it must be. " * 3
    refused = [request(1, "refused", status=400, tokens=None, sentence=said)]
    faked(requests=refused, keys=2, change=1)
    page = watched.page
    more = opened(watched).first.get_by_role("button", name="The whole sentence")
    for width in (1280, 1900, 400):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(INSIDE, arg=width)
        expect(more).to_be_visible(visible=width == 400)


@pytest.mark.long
def test_what_is_under_way_says_so_and_for_how_long(watched: Watched, faked: Callable[..., None]) -> None:
    began = {"at": time.time() - 65, "seconds": 0}
    waiting = request(1, "waiting", status=None, tokens=None, ttft_ms=None, **began)
    faked(requests=[waiting, request(2, "answering", **began)], change=1)
    opened(watched)
    first, second = (watched.page.locator(f".serve-requests tr[data-row='{number}']") for number in (1, 2))
    expect(first).to_contain_text(re.compile(r"waiting\s*for \d\d+ s"))
    expect(second).to_contain_text("200 answering")
    since = second.locator("[data-since]")
    expect(since).not_to_have_text(since.inner_text())
    expect(figure(second, "read")).to_have_text("900")


@pytest.mark.long
def test_long_texts_are_folded_and_the_keyboard_chooses_what_is_shown(author: Page) -> None:
    page = author
    open_serve(page)
    choose(page, "Schema and picks")
    choose(page, "Python, openai")
    whole = program(page, "answer = client")
    fold, pre = page.locator(".program-frame .fold"), page.locator(".program-frame pre")
    lines = len(whole.splitlines())
    assert len(pre.inner_text().splitlines()) < 40 < lines
    expect(fold.first).to_have_accessible_name(re.compile(r"… \d+ more lines"))
    for button in fold.all():
        button.press("Enter")
        expect(button).to_have_attribute("aria-expanded", "true")
        expect(button).to_be_focused()
    assert [line for line in pre.inner_text().splitlines() if line] == [*filter(None, whole.splitlines())]
    fold.first.press("Enter")
    expect(fold.first).to_have_attribute("aria-expanded", "false")
    assert page.evaluate(SHOWN) == whole
    page.get_by_role("radio", name="Python, openai").press("ArrowRight")
    expect(page.get_by_role("radio", name="Python, anthropic")).to_be_checked()
    program(page, "import anthropic")
    reloaded(page)
    expect(page.get_by_role("radio", name="Python, anthropic")).to_be_checked()
    page.get_by_role("button", name="All endpoints").click()
    expect(page.get_by_role("dialog")).to_contain_text("POST /v1/chat/completions")
    page.keyboard.press("Escape")


@pytest.mark.long
def test_the_keyboard_reaches_all_and_its_place_is_seen(author: Page, watched: Watched) -> None:
    page = author
    ask(watched.url, prompt_cache={"schema": FAULTY})
    open_serve(page)
    program(page, "travel")
    expect(page.locator(".serve-requests .more").first).to_be_visible()
    page.get_by_role("button", name="All endpoints").focus()
    reached: list[tuple[str, bool]] = []
    while len(reached) < 40 and "The whole sentence" not in dict(reached):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUS))
    assert all(outline for _, outline in reached), "a place without an outline"
    names = [name for name, _ in reached]
    for wanted in (
        "Switch off",
        "Copy the model's name",
        "openai-python",
        "inline",
        "Copy the program",
        "Program",
        "Pause",
        "Save as CSV",
        "Latest requests",
        "Time↓",
        "The whole sentence",
    ):
        assert wanted in names, (wanted, names)


def test_what_was_computed_again_says_why_and_becomes_a_schema(author: Page, watched: Watched) -> None:
    rules = "Answer in one short sentence and name the place first. " * 12
    for clock in ("10:41", "10:57"):
        system = {"role": "system", "content": f"The time is {clock} now. {rules}"}
        ask(watched.url, messages=[system, {"role": "user", "content": "Where to?"}]).raise_for_status()
    page = author
    rows = open_serve(page)
    told = figure(rows.first, "outcome")
    expect(told).to_contain_text("10:57")
    told.get_by_role("button", name="The whole sentence").click()
    expect(told).to_contain_text("Move the changed text behind the unchanged text")
    page.get_by_role("button", name="Make a schema").click()
    expect(page.locator(".serve-requests [role=status]").first).to_contain_text("was made of 2 requests")
    page.get_by_role("link", name="Author").click()
    assert '<param name="is" len="' in text_of(page, "schema")
    assert "10:57" in text_of(page, "prompt")
