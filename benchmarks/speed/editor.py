"""How fast errors appear in a schema of 2,000 lines: in the parser, and in the browser after a key press."""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.base.case import Group, Say, Sides, case
from benchmarks.base.charts import FLAGS, chromium
from engine.pml import parse_schema

LINES = 2000
MARK = """
() => new Promise((resolve, reject) => {
    let pressed = null
    const marks = () => document.querySelectorAll(".panel.schema .cm-lintRange-error").length
    addEventListener("keydown", () => { pressed ??= performance.now() }, {capture: true, once: true})
    const watch = new MutationObserver(() => {
        if (pressed === null || !marks()) return
        watch.disconnect()
        requestAnimationFrame(() => resolve(performance.now() - pressed))
    })
    watch.observe(document.querySelector(".panel.schema"), {subtree: true, childList: true, attributes: true})
    setTimeout(() => reject(new Error("no mark within 10 s")), 10000)
    window.watching = true
})
"""


def schema_of(lines: int) -> str:
    """A schema with this number of lines: unions of modules with a parameter and a few lines of text."""
    written = ['<schema name="large">', "  <user>"]
    number = 0
    while len(written) + 24 <= lines:
        written.append("    <union>")
        for _ in range(4):
            number += 1
            written += [
                f'      <module name="place-{number}">',
                f"        Place {number} is a town on the river with a market and {number % 7} bridges.",
                f'        I stay for <param name="days-{number}" len="5" default="a day"/> and walk a lot.',
                "        The best season is spring; trains run until midnight &amp; museums are free.",
                "      </module>",
            ]
        written.append("    </union>")
    written += ["    What should I see?"] * (lines - len(written) - 2)
    return "\n".join([*written, "  </user>", "</schema>"]) + "\n"


def parsing(repeats: int) -> list[float]:
    """Milliseconds for all diagnostics of the schema, which has an error in its middle."""
    lines = schema_of(LINES).split("\n")
    lines[LINES // 2] += "<modul"
    samples = []
    gc.collect()
    gc.freeze()  # like the studio; else some parses wait for a look at all imported objects
    try:
        for number in range(repeats + 1):
            source = "\n".join([*lines, " " * number])  # another text each time: parsed texts are cached
            start = time.perf_counter()
            parsed = parse_schema(source)
            samples.append((time.perf_counter() - start) * 1000)
            if parsed.ok:
                raise RuntimeError("the error was not found")
    finally:
        gc.unfreeze()
    return samples[1:]


def marking(keys: int, browser_path: str) -> list[float]:
    """Milliseconds between a key press and its mark, at different places of the schema."""
    from playwright.sync_api import sync_playwright

    from app.studio import launch

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        studio = launch(
            port=0, open_browser=False, block=False, cache_dir=place / "cache", data_dir=place / "data"
        )
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(studio.url)
                page.wait_for_selector("html[data-studio=ready]", timeout=60_000)
                page.get_by_role("textbox", name="Schema document").click()
                page.keyboard.press("Control+a")
                page.keyboard.insert_text(schema_of(LINES))
                samples = [_mark(page, number, keys) for number in range(-3, keys)]
                browser.close()
        finally:
            studio.close()
    return samples[3:]


def _mark(page: Any, number: int, keys: int) -> float:
    """Types a lone & into the schema, waits for its mark, and deletes it."""
    source = page.evaluate("window.promptCacheStudio.workspace.texts().schema")
    at = source.index("is a town", int(len(source) * (abs(number) / keys) * 0.9))
    page.wait_for_function(
        "() => document.querySelector('.panel.schema .status').textContent === 'no problems'"
    )
    page.wait_for_timeout(700)
    page.evaluate("at => window.promptCacheStudio.workspace.editors.schema.reveal(at)", at)
    page.evaluate(f"() => {{ window.marked = ({MARK})() }}")
    page.keyboard.type("&")
    taken = float(page.evaluate("window.marked"))
    page.keyboard.press("Backspace")
    return taken


@case
def errors(group: Group, say: Say, parses: int, keys: int) -> Sides:
    """All diagnostics of the schema, and the time from a key press to its mark."""
    group.params = {"lines": LINES}
    say("parsing")
    group.percentile("diagnostics", parsing(parses))
    browser = chromium()
    if keys and browser is None:
        group.notes.append("the page was not measured: there is no Chromium (PML_CHROMIUM names one)")
    elif keys and browser is not None:
        say("typing in a browser")
        group.percentile("key to mark", marking(keys, browser))
    yield []
