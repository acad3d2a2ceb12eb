"""How fast mistakes are found in 2,000 lines: by the parser, and between a key and its mark in the browser.

Run it as `python -m benchmarks.editor [--keys N] [--json]`. The second part needs Chromium and the packages
of the extra `dev`; without a Chromium it is left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.pml import parse_schema

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
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
    """A schema with that many lines: unions of modules with a parameter and a few lines of text each."""
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
    """Milliseconds for all diagnostics of the schema, which has a mistake in its middle."""
    lines = schema_of(LINES).split("\n")
    lines[LINES // 2] += "<modul"
    source = "\n".join(lines)
    samples = []
    gc.collect()
    gc.freeze()  # as the studio does; else some wait while all that was imported is looked at
    try:
        for _ in range(repeats):
            start = time.perf_counter()
            parsed = parse_schema(source)
            samples.append((time.perf_counter() - start) * 1000)
            if parsed.ok:
                raise RuntimeError("the mistake was not found")
    finally:
        gc.unfreeze()
    return samples


def marking(keys: int, browser_path: str) -> list[float]:
    """Milliseconds between a key and the mark that it causes, at different places of the schema."""
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
                samples = [_mark(page, number, keys) for number in range(-3, keys)]
                browser.close()
        finally:
            studio.close()
    return samples[3:]


def _mark(page: Any, number: int, keys: int) -> float:
    """Types a lone & into the schema and waits for its mark; then takes it back."""
    if number == -3:
        page.get_by_role("textbox", name="Schema document").click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(schema_of(LINES))
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


def summary(samples: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    ordered = sorted(samples)
    return {
        "median_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 1),
        "samples": len(ordered),
    }


def chromium() -> str | None:
    """The browser that is here, PML_CHROMIUM before all."""
    names = (os.environ.get("PML_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=40, help="keys that are typed in the browser")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    results = {"diagnostics of 2,000 lines": summary(parsing(100))}
    browser = chromium()
    if browser is not None:
        results["key to mark in the browser, 2,000 lines"] = summary(marking(chosen.keys, browser))
    if chosen.json:
        print(json.dumps(results, indent=2))
        return
    for what, found in results.items():
        print(f"{what}: median {found['median_ms']} ms, 95% within {found['p95_ms']} ms ({found['samples']})")
    if browser is None:
        print("no chromium was found, so the browser was not measured (PML_CHROMIUM names one)")


if __name__ == "__main__":
    main()
