"""What a run tells: its times on one scale, and what its result belongs to."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import QUESTIONS, Watched, becomes, came, unrouted
from tests.browser.test_author import LONG_RUN_MS, few_tokens, rewrite, text_of

OWN = '<schema name="own"><module name="one">Alpha beta.</module><module name="two">Gamma.</module></schema>'
SELECTED = "window.promptCacheStudio.workspace.editors.prompt.view.state.selection.main"


CUT_WORDS = """() => [...document.querySelectorAll(".scale-words")]
    .some(one => one.scrollHeight > one.clientHeight || one.scrollWidth > one.clientWidth)"""


def status(page: Page, words: str) -> None:
    expect(page.locator(".run-status")).to_contain_text(words, timeout=LONG_RUN_MS)


def choose(page: Page, title: str) -> None:
    """Has Run do something else, by the keyboard."""
    page.get_by_role("button", name="What Run does").focus()
    page.keyboard.press("ArrowDown")
    item = page.locator(".run-menu button").filter(has_text=re.compile(f"^{title}"))
    for _ in range(4):
        if item.evaluate("one => one === document.activeElement"):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")


def milliseconds(words: str) -> float:
    number, unit = words.split()
    return float(number) * (1000 if unit == "s" else 1)


def scale_end(page: Page) -> float:
    """The time at the right end of the axis, which is twice the one in its middle."""
    begin, middle, end = page.locator(".scale-axis span").all_inner_texts()
    assert begin == "0"
    assert milliseconds(end) == 2 * milliseconds(middle)
    return milliseconds(end)


def test_who_comes_new_sees_after_three_clicks_what_caching_did(watched: Watched) -> None:
    page = watched.open()
    few_tokens(page)
    page.evaluate("window.clicks = 0; addEventListener('click', () => window.clicks++, true)")
    page.get_by_role("link", name="Gallery").click()
    page.locator("#page-gallery article").first.get_by_role("button").first.click()
    page.wait_for_function("document.querySelector('.workspace-name').textContent.startsWith('Travel')")
    few_tokens(page)
    page.locator("#run").click()
    status(page, "Done.")
    told = page.locator(".run-status").inner_text()
    assert re.fullmatch(
        r"Done\. (First token [\d.]+× (faster|slower) with the cache|No clear difference in time)\. "
        r"(The texts are the same|\d+ words? of the texts differs?)\.",
        told,
    )
    expect(page.locator(".run-status")).to_be_in_viewport(ratio=1)
    assert page.evaluate("window.clicks") <= 3


def test_an_answer_is_marked_as_its_format_demands_or_not(author: Page) -> None:
    few_tokens(author)
    prompt = '<prompt schema="own"><one/>Is it?<answer-format type="regex">{}</answer-format></prompt>'
    marks = author.locator(".pane .format-mark")
    cut = "incomplete: it reached the maximum length. Raise that setting."
    for pattern, words in (("yes|no", "valid ✓"), ("[a-z]{60}", cut)):
        rewrite(author, "schema", OWN)
        rewrite(author, "prompt", prompt.format(pattern))
        author.locator("#run").click()
        status(author, "Done.")
        expect(marks).to_have_text([words, words])
    rewrite(author, "prompt", prompt.format("(yes"))
    expect(author.get_by_role("list", name="Problems in the prompt")).to_contain_text("unclosed group")


@pytest.mark.long
def test_a_run_that_is_asked_for_while_a_sample_is_opened_is_of_that_sample(author: Page) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        first = not held and '"open_sample"' in (route.request.post_data or "")
        held.append(route) if first else route.continue_()

    author.route(QUESTIONS, hold)
    author.get_by_role("link", name="Gallery").click()
    card = author.locator("#page-gallery article").nth(1)
    card.get_by_role("button").first.click()
    author.locator("#run").click()
    author.locator("#run").click()
    came(author, held)
    with author.expect_request(lambda request: "run_prompt" in (request.post_data or "")) as asked:
        author.wait_for_timeout(500)
        held[0].continue_()
    unrouted(author)
    assert '<schema name=\\"travel\\"' not in (asked.value.post_data or "")
    author.locator("#stop").click()
    expect(author.locator("#stop")).to_be_disabled(timeout=LONG_RUN_MS)


def test_a_first_run_shows_its_encoding_apart_and_its_result_knows_what_it_is_of(author: Page) -> None:
    rewrite(author, "prompt", text_of(author, "prompt").replace("<tokyo/>", "<maldives/>"))
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2, repeats: 3})")
    author.locator("#run").press("Enter")
    status(author, "Done.")
    expect(author.locator("#run")).to_be_focused()
    scale = author.get_by_role("group", name="Time to the first token")
    rows = scale.get_by_role("listitem")
    expect(rows).to_have_text([re.compile(f"^{name}.*[ms]s|^{name}.* s") for name in
                               ("First time", "From the cache", "Without the cache")])  # fmt: skip
    widths = [
        row.locator(".scale-bar").evaluate_all("bars => bars.reduce((sum, bar) => sum + bar.offsetWidth, 0)")
        for row in rows.all()
    ]
    assert widths[0] > widths[1] > 0, "the first time is the encoding and then the time from the cache"
    assert scale_end(author) >= milliseconds(rows.first.locator(".scale-value").inner_text())
    expect(scale).to_contain_text("Encoded now in ")
    becomes(author, CUT_WORDS, False)
    first = [one.get_attribute("class") for one in rows.first.locator(".scale-bar").all()]
    assert first[-2:] == ["scale-bar encode", "scale-bar cached"]
    expect(rows.first).to_contain_text(re.compile("encoded now in .*, then .* from the cache"))
    expect(author.locator(".headline")).to_contain_text("first token")
    expect(author.locator(".headline")).to_contain_text(re.compile(r"whole answer ([\d.]+×|as fast)"))
    # on a machine that does other work too the timings may overlap
    expect(author.locator(".comparison")).to_contain_text(
        re.compile("Pays off|Faster from the first run|no clear difference")
    )
    expect(author.locator(".ratio-range")).to_have_text(re.compile(r"\(.*\d.* to .*\d.*\)"))
    cached = author.get_by_role("region", name="Cached", exact=True)
    expect(rows.nth(1)).to_contain_text("the median of 3; ")
    expect(cached.locator(".state")).to_have_text("Cut at Max answer length, 2.")
    author.context.grant_permissions(["clipboard-read", "clipboard-write"])
    cached.get_by_role("button", name="Copy the cached answer").press("Enter")
    expect(cached.locator(".copy")).to_contain_text("Copied")
    assert author.evaluate("navigator.clipboard.readText()") == cached.locator(".answer").inner_text()

    age, change = (
        author.locator(".answers .age"),
        "settings => window.promptCacheStudio.workspace.change(settings)",
    )
    author.evaluate(change, {"repeats": 1})
    expect(age).to_be_empty()
    author.evaluate(change, {"scope": "isolated"})
    expect(age).to_contain_text("ran with other settings (Scope). Run again.")
    author.evaluate(change, {"scope": "anchored"})
    expect(age).to_be_empty()
    prompt = text_of(author, "prompt")
    colour = "getComputedStyle(document.querySelector('.run-status')).color"
    fresh = author.evaluate(colour)
    rewrite(author, "prompt", prompt.replace("surf", "quiet"))
    expect(age).to_contain_text("ran with an earlier text of the prompt. Run again.")
    becomes(author, f"fresh => {colour} !== fresh", True, fresh)  # it is greyed with the rest
    rewrite(author, "prompt", prompt)
    expect(age).to_be_empty()

    author.evaluate(change, {"temperature": 5, "seed": 7, "max_new_tokens": 8})
    author.locator("#run").click()
    status(author, "texts are sampled and differ by chance")
    expect(scale).to_contain_text("All modules were encoded earlier, in")
    expect(scale.locator(".scale-bar.encode")).to_have_count(0)  # that is of earlier runs
    expect(rows.first).to_contain_text("encoded by earlier runs in ")
    expect(author.locator(".verdicts dd").nth(1)).not_to_have_text("")
    expect(author.locator(".sameness")).to_have_text("Sampled")
    expect(author.locator(".answer mark")).to_have_count(0)


@pytest.mark.long
def test_what_is_encoded_is_shown_while_the_run_goes_on(author: Page) -> None:
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 200, repeats: 9})")
    words = "A text that no other test has: cobalt, saffron, umber, viridian. " * 9
    rewrite(author, "schema", f'<schema name="fresh"><module name="new">{words}</module></schema>')
    rewrite(author, "prompt", '<prompt schema="fresh"><new/>Which colours?</prompt>')
    missing = author.locator(".strip .legend li", has_text="not cached yet")
    expect(missing).to_be_visible()
    place = author.locator(".track").bounding_box()
    author.locator("#run").click()
    author.wait_for_function(
        """() => /side|again/.test(document.querySelector(".run-status").textContent)
            && !document.querySelector(".piece.uncached") && !document.querySelector("#stop").disabled"""
    )
    expect(missing).to_be_hidden()
    expect(author.get_by_role("region", name="Modules").locator("text=memory").first).to_be_visible()
    assert author.locator(".track").bounding_box() == place
    author.locator("#stop").click()
    status(author, "Stopped")


def test_run_does_one_side_or_encodes_all(author: Page) -> None:
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2, repeats: 2})")
    rewrite(author, "schema", OWN)
    rewrite(author, "prompt", '<prompt schema="own"><one/>So?</prompt>')
    choose(author, "Encode all")
    # other tests may have stored the same text
    expect(author.locator(".run-status")).to_contain_text(re.compile(r"Done\. [1-3] segments?, "))
    expect(author.locator(".picker .badge[data-tier=none]")).to_have_count(0)
    author.get_by_role("separator", name="Width of the modules").press("Control+Enter")
    status(author, "Done. ")  # encoding is an act: the button and its keys answer
    expect(author.get_by_role("region", name="Cached", exact=True).locator(".answer")).not_to_have_text("")
    choose(author, "Encode all")
    status(author, re.compile(r"Done\. All \d+ segments were already stored\.$"))
    choose(author, "Uncached only")
    status(author, "Done.")
    expect(author.get_by_role("group", name="Time to the first token").get_by_role("listitem")).to_have_count(
        1
    )
    expect(author.get_by_role("region", name="Cached", exact=True).locator(".answer")).to_contain_text(
        "used the other side only"
    )
    choose(author, "Both sides")
    status(author, "Done.")
    expect(author.locator("#run")).to_have_text(re.compile("^Run"))


def test_a_refused_run_puts_the_caret_at_the_fault(author: Page) -> None:
    rewrite(author, "prompt", '<prompt schema="travel">\n  <toyko/>\n</prompt>')
    author.keyboard.press("Control+Home")
    author.evaluate("window.promptCacheStudio.workspace.faults()")  # Run then needs no answer of the server
    author.evaluate("location.hash = '#/gallery'")
    author.wait_for_function("document.documentElement.dataset.page === 'gallery'")
    author.keyboard.press("Control+Enter")
    status(author, "line 2, column 4")
    status(author, "E402")
    status(author, "tokyo")
    expect(author.locator("#page-author")).to_be_visible()
    author.wait_for_function(f"{SELECTED}.head === 28")
    assert author.evaluate(f"{SELECTED}.empty")
    assert author.evaluate("Boolean(document.activeElement.closest('.panel.prompt .cm-editor'))")
