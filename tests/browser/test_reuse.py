"""Scopes, repairs, and what reuse changed, on the Author page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from engine.fidelity.findings import Fidelity, Flip, ModuleFidelity, Remedy
from engine.pml import parse_schema
from tests.browser.conftest import reloaded
from tests.browser.test_author import rewrite, text_of, wait_for_text

FILTERED = """node => {
    const drawn = one => getComputedStyle(one).filter
    while (node && drawn(node) === "none") node = node.parentElement
    return node?.className ?? ""
}"""
"""The nearest element around a ground that is drawn through a filter, which would colour it otherwise."""


def measure(page: Page) -> None:
    page.locator("#explain").press("Enter")
    expect(page.locator("#explain")).to_be_enabled(timeout=120_000)
    expect(page.locator(".explained .advice")).to_be_visible(timeout=120_000)


@pytest.mark.long
def test_settings_of_reuse_reach_the_run(author: Page) -> None:
    author.get_by_role("button", name="Settings").click()
    author.get_by_label("Max answer length").fill("4")
    author.get_by_role("combobox", name="Repair").fill("link:2")
    author.get_by_role("combobox", name="Scope").select_option("scaffold")
    author.get_by_label("Store earlier turns").check()
    author.get_by_label("Stop before").fill("\\n")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=120_000)
    expect(author.locator(".scale-words")).to_contain_text("scaffold · link:2")
    expect(author.locator(".verdicts dd").nth(1)).to_have_text(re.compile("^(0|< 0.001)"))


def test_the_measurement_of_the_shown_run_survives_an_edit_and_a_reload(author: Page) -> None:
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2})")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=120_000)
    measure(author)
    advice = author.locator(".explained .advice").inner_text()
    rewrite(author, "prompt", re.sub("<user>.*</user>", "<user>Why?</user>", text_of(author, "prompt")))
    said = author.locator(".explanation .bar [role=status]")
    words = "Measured with an earlier text of the prompt. Measure again."
    expect(said).to_have_text(words)
    expect(author.locator(".explained[data-old]")).to_have_count(1)
    reloaded(author)
    expect(said).to_have_text(words)
    expect(author.locator(".explained .advice")).to_have_text(advice)


WHOLE = """async sizes => {
  const scripts = [...document.scripts].map(one => one.src || one.textContent)
  const script = scripts.find(text => text.includes("studio.js"))
  const url = script.match(/[^"'\\s]*studio\\.js/)[0].replace("studio.js", "runs/panes.js")
  const { wholeWords } = await import(new URL(url, location.href).href)
  const side = (generated, time) =>
    ({ state: "done", ttft_ms: time, tokens: { generated }, tokens_per_second: 10 })
  return sizes.map(size => wholeWords(
    { comparison: { ttft_speedup: 10 }, sides: { cached: side(size, 100), uncached: side(5, 1000) } }))
}"""


def test_whole_answers_of_different_lengths_are_not_compared(author: Page) -> None:
    assert author.evaluate(WHOLE, [5, 6]) == ["whole answer 2.8× faster", ""]


def test_what_reuse_changed_is_measured_and_mended(author: Page) -> None:
    # asked for what no picked note says, the cached side reads the notes otherwise
    author.evaluate("location.hash = '#/gallery'")
    author.get_by_role("button", name="Open Documents with prompt 2").press("Enter")
    wait_for_text(author, "prompt", "dune-mills")
    prompt = text_of(author, "prompt")
    question = "Who owns the Dune Mills?"
    rewrite(author, "prompt", re.sub("<user>.*</user>", f"<user>{question}</user>", prompt))
    author.get_by_role("button", name="Settings").click()
    author.get_by_label("Max answer length").fill("12")
    author.get_by_role("combobox", name="Scope").select_option("isolated")
    measure(author)
    settings = author.get_by_role("button", name="Settings")
    close = author.locator(".drawer [aria-label=Close]")
    close.click()  # they lie over what was measured
    change = "settings => window.promptCacheStudio.workspace.change(settings)"
    said, owes = author.locator(".explanation .bar [role=status]"), author.locator(".owes")
    author.evaluate(change, {"max_new_tokens": 40, "temperature": 2})
    expect(said).to_have_text("Measured with other settings (Max answer length, Temperature). Measure again.")
    expect(author.locator(".explained[data-old]")).to_have_count(1)
    expect(owes).to_have_attribute("data-empty", "")
    author.evaluate(change, {"max_new_tokens": 12, "temperature": 0})
    expect(said).to_be_empty()
    expect(owes).not_to_have_attribute("data-empty", "")
    rows = author.get_by_role("region", name="Fidelity by module").locator("tbody tr")
    expect(rows.first).to_contain_text("fixed text")
    assert rows.count() >= 3
    tried = author.get_by_role("region", name="Fixes")
    repairs = tried.get_by_role("row").filter(has_text="Recompute ")
    use, fix = repairs.get_by_role("button", name="Use").first, author.locator(".notice[data-notice=fix]")
    settings.click()
    reuse, repair = (author.get_by_role("combobox", name=name) for name in ("Reuse", "Repair"))
    reuse.select_option("auto")
    close.click()
    use.click()
    words = r"^Reuse: auto → off\. Scope: anchored → isolated\. Repair: none → [a-z]+:[0-9.]+\.Undo"
    expect(fix).to_contain_text(re.compile(words))  # all that differs from the measured answer
    expect(said).to_have_text("Measured with other settings (Repair). Measure again.")
    fix.get_by_role("button", name="Undo").click()
    settings.click()
    expect(reuse).to_have_value("auto")
    expect(repair).to_have_value("none")
    close.click()
    use.click()
    settings.click()
    author.get_by_label("Seed").fill("7")
    expect(fix).to_be_visible()
    repair.fill("none")
    expect(fix).to_have_count(0)
    close.click()
    use.click()
    author.evaluate("window.promptCacheStudio.workspace.emit('opened')")
    expect(fix).to_have_count(0)  # its Undo would change other documents
    tried.get_by_role("button", name="Add to schema").first.click()
    wait_for_text(author, "schema", r"<scaffold modules=")
    assert parse_schema(text_of(author, "schema")).ok
    settings.click()
    author.get_by_role("combobox", name="Scope").select_option("scaffold")
    author.locator("#explain").press("Enter")
    expect(author.locator(".explained .advice")).to_contain_text("nothing to fix", timeout=120_000)
    expect(owes).not_to_have_attribute("data-empty", "")
    author.evaluate("""() => { for (const editor of Object.values(window.promptCacheStudio.workspace.editors))
        editor.replace(editor.text().replace(/"documents"/g, '"others"')) }""")
    expect(said).to_contain_text("Measured with another schema (documents)")
    expect(owes).to_have_attribute("data-empty", "")  # though the modules have the same names


def test_a_run_under_a_promise_says_which_remedy_it_took_and_what_a_check_found(author: Page) -> None:
    author.get_by_role("button", name="Settings").click()
    author.get_by_label("Max answer length").fill("4")
    reuse, scope = author.get_by_role("combobox", name="Reuse"), author.locator("#setting-scope-hint")
    expect(reuse).to_have_value("auto")
    expect(scope).to_have_text("Chosen for each prompt. Setting it yourself turns Reuse off.")
    author.get_by_role("combobox", name="Scope").select_option("isolated")
    expect(reuse).to_have_value("off")
    expect(scope).not_to_contain_text("Chosen")
    reuse.select_option("auto")
    expect(author.get_by_role("combobox", name="Scope")).to_have_value("anchored")
    expect(scope).to_contain_text("Chosen for each prompt.")
    author.locator(".drawer [aria-label=Close]").click()
    author.locator("#run").click()
    taken = author.locator(".reuse-taken")
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=120_000)
    expect(taken).to_have_text(re.compile(r"^(Recomputed \d+ of|Reused as stored)"))
    expect(taken).to_have_text(re.compile(r": mean KL [^;]+, limit 0.02\.$"), timeout=60_000)


def test_a_measurement_is_kept_over_a_reload_and_listed_with_the_runs(author: Page) -> None:
    change = "settings => window.promptCacheStudio.workspace.change(settings)"
    author.evaluate(change, {"max_new_tokens": 3})
    measure(author)
    body, said = author.locator(".explained"), author.locator(".explanation .bar [role=status]")
    expect(body).to_contain_text("Measured ")
    advice = body.locator(".advice").inner_text()
    author.evaluate("window.promptCacheStudio.workspace.save()")
    author.reload()
    expect(body.locator(".advice")).to_have_text(advice)
    expect(author.locator(".owes")).not_to_have_attribute("data-empty", "")
    author.evaluate(change, {"scope": "isolated", "reuse": "off"})
    expect(said).to_have_text("Measured with other settings (Reuse, Scope). Measure again.")
    measure(author)
    expect(said).to_be_empty()
    author.evaluate(change, {"scope": "anchored", "reuse": "auto"})
    expect(said).to_be_empty()
    expect(author.locator(".explained[data-old]")).to_have_count(0)
    expect(body.locator(".advice")).to_have_text(advice)
    author.evaluate("location.hash = '#/runs'")
    rows = author.get_by_role("region", name="Runs").locator("tbody tr").filter(has_text="measured")
    expect(rows.first).to_be_visible()
    for number in range(2):  # the newest come first
        rows.nth(number).get_by_role("checkbox").check()
    author.get_by_role("button", name="Compare 2 side by side").click()
    table = author.locator(".beside-scroll table")
    for title in ("Mean KL per token", "KL by module", "Advice"):
        expect(table.locator("tr").filter(has_text=title)).to_have_count(1)
    expect(table).to_contain_text(advice)


VERDICT = """async found => {
  const scripts = [...document.scripts].map(one => one.src || one.textContent)
  const script = scripts.find(text => text.includes("studio.js"))
  const url = script.match(/[^"'\\s]*studio\\.js/)[0].replace("studio.js", "runs/verdict.js")
  const { fixFor, sameness } = await import(new URL(url, location.href).href)
  const first = { word: 3, cached: "before", uncached: "was" }
  const run = { mode: "both", settings: { temperature: 0, scope: "anchored" }, reuse: null,
      difference: { first, differing: 2 },
      sides: { uncached: { ttft_ms: 2000, tokens: { computed: 1000 } } } }
  const exact = { ...run, settings: { temperature: 0, scope: "scaffold" } }
  const drawn = { ...run, settings: { temperature: 1 } }
  const fixes = [fixFor(run, null), fixFor(run, found), fixFor(exact, found)]
  return [sameness(run).join(" "), sameness(drawn)[0],
      ...fixes.map(fix => fix && [JSON.stringify(fix.settings), fix.words, fix.once, fix.ms].join(" "))]
}"""


COSTS = """async () => {
  const scripts = [...document.scripts].map(one => one.src || one.textContent)
  const script = scripts.find(text => text.includes("studio.js"))
  const url = script.match(/[^"'\\s]*studio\\.js/)[0].replace("studio.js", "runs/verdict.js")
  const { Verdict } = await import(new URL(url, location.href).href)
  const run = { mode: "both", state: "done", of: {}, model: {}, reuse: null,
      settings: { temperature: 0, scope: "anchored" },
      difference: { first: { word: 3, cached: "before", uncached: "was" }, differing: 2 },
      encoding: { segments: 3, ms: 900 },
      sides: { cached: { ttft_ms: 100 }, uncached: { ttft_ms: 2000, tokens: { computed: 1000 } } } }
  const same = { ...run, settings: { temperature: 0, scope: "scaffold" }, difference: { first: null } }
  const words = []
  for (const [missing, encoding] of [[400, { segments: 2, ms: 500 }], [0, { segments: 0, ms: 0 }]]) {
    const verdict = new Verdict({ on() {}, differences: () => [] }, { on() {} })
    const cost = () => words.push(verdict.node.querySelector(".fix-line span").textContent)
    verdict.missing = async () => missing
    verdict.show(run)
    await new Promise(done => setTimeout(done))
    cost()
    verdict.node.querySelector("button").click()
    verdict.show({ ...same, encoding })
    cost()
  }
  return words
}"""


SHOW = """async found => {
  const scripts = [...document.scripts].map(one => one.src || one.textContent)
  const script = scripts.find(text => text.includes("studio.js"))
  const url = script.match(/[^"'\\s]*studio\\.js/)[0].replace("studio.js", "runs/fidelity.js")
  const { Explanation } = await import(new URL(url, location.href).href)
  const host = document.body.appendChild(document.createElement("section"))
  host.id = "shown"
  const drawer = { on() {}, refusal: () => "" }
  window.shown = { differs: "", told: [] }
  const on = (_, action) => window.shown.told.push(action)
  const belonging = { on, sentence: () => window.shown.differs }
  const workspace = { texts: () => ({}), origin: "", settings: {} }
  const result = { found, of: {}, settings: {}, model: {} }
  const server = { ask: async () => ({ over: true, fault: "", result }) }
  await new Explanation(host, workspace, server, drawer, belonging).start()
}"""


def test_a_measurement_is_shown_with_its_tables_which_fit(author: Page) -> None:
    flips = tuple(Flip(40 + n, " <b>Rome", " Oslo", f"go to {n}", 0.3) for n in range(10))
    names = ("a", "text/of/an/archipelago", "the-lighthouse-of-the-harbour")
    modules = (
        ModuleFidelity(names[0], 9, 0.1, 0.1, 0.1, 0.3, 0),
        ModuleFidelity(names[1], 1111, 0.1, 0.1, 0.1, 0.1, 12),
        ModuleFidelity(names[2], 9, 0.1, 0.1, 0.1, 0.5, -1),
    )
    remedies = (
        Remedy("repair link:2", "link:2", (), "", 3, 0.125, 0.015, 0.9, 4),
        Remedy("scaffold of three", "", names, "", 10, 0.0021, 0.0015, 0.9, 1111),
        Remedy("scope preceding", "", (), "preceding", 0, 0.125, 0.015, 1.0, -78),
        Remedy("repair link:8", "link:8", (), "", 10, 0.4, 0.03, 0.9, 16),  # worse than now: not offered
    )
    advice = "Ten differ. KL 0.3 at 1.5."
    found = Fidelity(0.1, True, 0.9, 0.02, 0.3, 41, 128, False, flips, modules, remedies, advice)
    fix = Remedy("repair link:2", "link:2", (), "", 0, 0.1, 0.01, 1.0, 200)
    repaired = replace(found, remedies=(fix,), scope="preceding", repair="none")
    assert author.evaluate(VERDICT, repaired.to_json()) == [
        "Differs from word 3 “before” instead of “was”; 2 words differ. warn",
        "Sampled",
        '{"scope":"scaffold"} Encode these modules together true 2000',
        '{"scope":"preceding","repair":"link:2"} Recompute some tokens false 400',
        None,
    ]
    assert author.evaluate(COSTS) == [
        *("0.8 s once", "Encode these modules together: it took 500 ms once (expected 800 ms)."),
        *("encoded already", "Encode these modules together: they were encoded already."),
    ]
    author.evaluate(SHOW, found.to_json())
    shown = author.locator("#shown")
    expect(shown.locator(".advice")).to_have_text(advice)
    expect(shown.locator(".advice strong")).to_have_text("Ten differ.")  # the figures are not bold
    expect(shown).to_contain_text("128 tokens, and agrees on 90% of them")
    expect(shown).to_contain_text("0.30 at worst, at token 42")
    expect(shown.locator("tr[data-worst=yes] th")).to_have_text(names[1])
    rows = shown.get_by_role("region", name="Flipped tokens").locator("tbody tr")
    expect(rows).to_have_count(8)
    expect(rows.first).to_have_text('41" <b>Rome"" Oslo"0.30…go to 0')
    expect(shown).to_contain_text("And 2 tokens more.")
    tried = shown.get_by_role("region", name="Fixes").locator("tbody tr")
    expect(tried).to_have_count(4)
    expect(tried.first).to_have_text("As now100.300.02090%as now")
    expect(tried.nth(1)).to_contain_text("Recompute the first 2 tokens of each module30.130.01590%4 more")
    expect(tried.last).to_contain_text("Scope preceding00.130.015100%78 fewerUse")
    author.evaluate("document.querySelector('.results').append(document.querySelector('#shown'))")
    shown.get_by_role("region", name="Fidelity by module").focus()  # as on hover, each figure is explained
    author.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tip = author.locator(".tip:not(.fix-preview)")
    expect(tip).to_be_visible()  # though the focus scrolled to the table
    expect(tip).to_contain_text("KL (nats) Part of the answer's KL per token")
    author.evaluate("document.querySelector('#shown').style.width = '500px'")  # as at 1280 pixels
    tables = shown.locator(".explained .scroll")
    expect(tables).to_have_count(3)
    for table in tables.all():
        assert table.evaluate("node => node.scrollWidth - node.clientWidth") == 0, table.inner_text()
        tall = "all => Math.max(...all.map(one => one.getBoundingClientRect().height))"
        assert table.locator("thead th").evaluate_all(tall) <= 45, "no word of a head is broken"
    tell = "differs => { window.shown.differs = differs; window.shown.told.forEach(action => action()) }"
    author.evaluate(tell, "with an earlier text of the prompt")
    expect(shown.locator(".explained[data-old]")).to_have_count(1)
    said = shown.locator("[role=status]")
    expect(said).to_have_text("Measured with an earlier text of the prompt. Measure again.")
    assert shown.locator("table").first.evaluate(FILTERED) == "", "its ground is the panel's"
    author.evaluate(tell, "")
    expect(shown.locator(".explained[data-old]")).to_have_count(0)
    expect(said).to_be_empty()
    encode = shown.get_by_role("button", name="Encode these modules together")
    expect(encode).to_have_count(0)  # the table has fixes
    author.evaluate("document.querySelector('#shown').remove()")
    author.evaluate(SHOW, replace(found, remedies=remedies[3:], complete=True).to_json())
    expect(encode).to_be_visible()


@pytest.mark.long
def test_answers_to_other_texts_say_so(author: Page) -> None:
    author.evaluate("window.promptCacheStudio.workspace.change({max_new_tokens: 2})")
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=120_000)
    age = author.locator(".answers .age")
    expect(age).to_be_empty()
    author.evaluate("location.hash = '#/gallery'")
    author.get_by_role("button", name="Open Documents with prompt 2").press("Enter")
    expect(age).to_contain_text("ran with another schema (travel)")
    expect(author.locator(".panes[data-old]")).to_have_count(1)
    assert author.locator(".pane .answer").first.evaluate(FILTERED) == "", "its ground is that of any panel"
    author.evaluate("window.promptCacheStudio.workspace.editors.prompt.replace('<prompt><oops></prompt>')")
    expect(age).to_contain_text("Fix the errors in the prompt, then run again.")
    author.keyboard.press("Control+Enter")
    expect(author.locator(".run-status")).to_contain_text("Go there")
    author.evaluate("location.hash = '#/gallery'")
    author.get_by_role("button", name="Open Documents with prompt 2").press("Enter")
    expect(age).to_contain_text("Run again.")
    strip = author.get_by_role("region", name="Layout")
    expect(strip.locator(".track:not([data-old]) .piece").first).to_be_visible()
    author.evaluate("""() => {
        const { schema } = window.promptCacheStudio.workspace.editors
        window.sound = schema.text()
        schema.replace('<schema name="documents"><oops>')
    }""")
    expect(strip.locator(".readout")).to_contain_text("Drawn with an earlier text of the schema.")
    expect(strip.locator(".track[data-old]")).to_have_count(1)
    author.evaluate("window.promptCacheStudio.workspace.editors.schema.replace(window.sound)")
    expect(strip.locator(".track[data-old]")).to_have_count(0)
    author.evaluate("window.promptCacheStudio.workspace.save()")
    author.reload()
    expect(age).to_contain_text("with another schema (travel)")
    author.locator("#run").click()
    expect(age).to_be_empty()
    expect(author.locator(".panes[data-old]")).to_have_count(0)
    expect(author.locator(".run-status")).to_contain_text("Done", timeout=120_000)
