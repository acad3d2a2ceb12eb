"""The Serve page: programs that are copied and work, requests as they come, and what of them was read."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import Watched
from tests.browser.test_author import few_tokens, rewrite, text_of

HOSTILE = "<img src=x onerror=alert(1)>"
BOXES = """() => [".studio-serve > *", ".serve-requests > header", ".serve-requests th"]
    .flatMap(one => [...document.querySelectorAll(one)])
    .filter(node => node.className !== "serve-requests").map(node => {
        const { x, y, width, height } = node.getBoundingClientRect()
        return [node.textContent.slice(0, 8), x, y + scrollY, width, height].join() })"""
"""Where everything stands but the rows of the table."""
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


@pytest.fixture
def faked(watched: Watched) -> Iterator[Callable[..., None]]:
    """Answers the page's question with something else, for states that a shared studio does not get into."""
    changed = dict[str, Any]()

    def answer(route: Route) -> None:
        if route.request.post_data_json["fn_name"] != "served":
            return route.continue_()
        told = route.fetch()
        return route.fulfill(response=told, json={**told.json(), **changed})

    watched.page.route("**/component_server/", answer)
    yield lambda **fields: changed.update(fields)
    watched.page.unroute("**/component_server/")


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
    expect(rows.first).to_contain_text(re.compile(r"chat/completions\s*OpenAI\s*demo\s*200 done"))
    cells = rows.first.locator("td").all_inner_texts()
    assert [cells[number] for number in (4, 8)] == [f"{read:,}", str(usage["completion_tokens"])]
    expect(page.locator(".hits .chart .bars path")).not_to_have_count(0)
    expect(page.locator(".serve-requests .sums")).to_contain_text("tokens read")


def test_programs_follow_edits_and_picks_and_faults(author: Page) -> None:
    page = author
    open_serve(page)
    choose(page, "Python, openai")
    choose(page, "Schema put once")
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
    expect(fault).to_contain_text("No schema is open. Open a sample in the gallery")
    edit(page, "schema", schema)
    expect(fault).to_contain_text("The prompt has an error in line 1: ")


def test_what_is_refused_is_listed_with_its_sentence_as_text(author: Page, watched: Watched) -> None:
    page, url = author, watched.url
    assert ask(url, model=HOSTILE, messages=[{"role": "user", "content": "x"}]).status_code == 404
    rows = open_serve(page)
    expect(rows.first).to_contain_text("404 refused")
    expect(rows.first).to_contain_text(f"There is no model '{HOSTILE}' here")
    assert page.locator(".serve-requests img").count() == 0
    faulty = '<schema name="a">' + "<b>x</b>" * 5 + "</schema>"
    assert ask(url, prompt_cache={"schema": faulty}).status_code == 400
    expect(rows.first).to_contain_text("400 refused")
    more = page.get_by_role("button", name="The whole sentence").first
    more.press("Enter")
    expect(more).to_have_attribute("aria-expanded", "true")
    expect(rows.first).to_contain_text("E205")
    with httpx.stream("POST", f"{url}/v1/messages", json=streamed()) as answer:
        answer.read()
    expect(rows.first).to_contain_text(
        re.compile(r"messages\s*Anthropic\s*demo\s*200 done at its token limit")
    )
    assert more.get_attribute("aria-expanded") == "true", "news leave other rows as they are"


def streamed() -> dict[str, Any]:
    message = {"role": "user", "content": "Hello"}
    return {"model": "demo", "max_tokens": 2, "temperature": 0, "stream": True, "messages": [message]}


def test_it_is_switched_off_and_on(author: Page, watched: Watched) -> None:
    page, url = author, watched.url
    rows = open_serve(page)
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
    watched.open("/#/serve")
    state, words = page.locator(".studio-serve .state"), page.locator(".served-state")
    faked(requests=[], change=0)
    page.reload()
    watched.ready()
    expect(page.locator(".serve-requests .empty")).to_contain_text("Copy the program above and run it")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    faked(state="loading", model="")
    expect(state).to_have_text("Loading")
    expect(words).to_contain_text("status 503")
    expect(words).to_contain_text("until the model is loaded")
    faked(state="draining", keys=2, origins=["http://a.example"], aliases=["other"])
    expect(state).to_have_text("Ending")
    expect(page.get_by_role("region", name="Address")).to_contain_text(
        re.compile(r"also called other.*one of the 2.*PML_API_KEY.*pages of http://a\.example", re.DOTALL)
    )
    expect(page.get_by_role("button", name="Switch off")).to_be_disabled()


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
    known, before = rows.count(), page.evaluate(BOXES)
    ask(url, model="x" * 150)
    hello(url, "Something else that is longer. " * 30)
    expect(rows).to_have_count(known + 2)
    expect(rows.first).to_contain_text("200 done")
    assert page.evaluate(BOXES) == before
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name="Hold").click()
    hello(url)
    expect(page.get_by_role("button", name="Go on (1 new)")).to_be_visible()
    assert rows.count() == known + 2
    page.keyboard.press("Enter")
    expect(rows).to_have_count(known + 3)


def test_the_keyboard_chooses_what_is_shown(author: Page) -> None:
    page = author
    open_serve(page)
    choose(page, "Python, openai")
    page.get_by_role("radio", name="Python, openai").press("ArrowRight")
    expect(page.get_by_role("radio", name="Python, anthropic")).to_be_checked()
    program(page, "import anthropic")
    page.reload()
    page.wait_for_selector("html[data-studio=ready]")
    expect(page.get_by_role("radio", name="Python, anthropic")).to_be_checked()
    page.get_by_role("button", name="All endpoints").click()
    expect(page.get_by_role("dialog")).to_contain_text("POST /v1/chat/completions")
    page.keyboard.press("Escape")
