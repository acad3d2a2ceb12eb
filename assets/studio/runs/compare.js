// Compares runs: a column per run, a row per property. A single run has the same layout.
import { shortName } from "../shell/model_facts.js"
import { sameness } from "./verdict.js"
import { count, h, milliseconds, moment, nats, plural, times, timesRange } from "../base/dom.js"

const ALIKE_SHOWN = 2  // equal lines shown around differences
const MOST_ALIKE = 8

/** @type {Record<string, string>} */
const ENDED = { eos: "finished (stop token)", length: "cut at the maximum length", stop: "stopped at a stop text" }
/** @type {[keyof Api.ModelOfRun, string][]} */
const MODEL = [["name", "Model"], ["device", "Device"], ["dtype", "Number format"], ["weights", "Weights"], ["fingerprint", "Fingerprint"]]

/** One-line explanations of rows. @type {Record<string, string>} */
const ABOUT = {
  "First time": "Time to first token including the encoding of all modules",
  "From the cache": "Median time to first token, cached",
  "Without the cache": "Median time to first token, uncached",
  "Speed-up": "Uncached time over cached time, with its range",
  "First-token KL": "How much caching changed the probabilities of the first token; 0 means no change",
  "Mean KL per token": "How much caching changed the probabilities of the answer's tokens; 0 means no change",
  "Flipped tokens": "Answer tokens for which the cached side prefers another token",
  "KL by module": "Part of the KL per token that each module causes",
}

/**
 * @typedef {import("../base/dom.js").Child} Child
 * @typedef {[string, boolean][]} Pieces
 * @typedef {Api.RunBeside} Run
 * @typedef {{title: string, cells: Child[], values: unknown[], kind?: string}} Row `values` decide whether the runs differ, with the displayed precision
 */

export const when = (/** @type {string} */ iso) => moment(iso)

/** A run's display name. @param {Api.RunSummary} run */
export const called = run => run.name || `${run.schema || "Untitled"}, ${when(run.started)}`

/** The speedup in words. @param {Pick<Api.RunSummary, "speedup" | "clear">} run */
export const ratioWords = ({ speedup, clear }) => !speedup ? "–" : clear ? times(speedup).join(" ") : "no clear difference"

/** The speedup with its range, if there were several timings. @param {Run} run */
function rangeWords({ summary, told }) {
  const { least_speedup: least, most_speedup: most } = told.comparison
  return least == null || most == null ? ratioWords(summary) : `${ratioWords(summary)} (${timesRange(least, most)})`
}

/** @param {unknown} value */
function spelled(value) {
  if (typeof value === "boolean") return value ? "yes" : "no"
  if (Array.isArray(value)) return value.map(one => JSON.stringify(one)).join(", ") || "none"
  return value == null || value === "" ? "–" : String(value)
}

/** A document or an answer with marked differences. @param {string} label @param {Pieces} pieces */
function text(label, pieces, { folded = false, plain = false } = {}) {
  const parts = pieces.flatMap(([piece, differs], index) => differs ? [h("mark", {}, piece)]
    : folded ? fold(piece, index === 0, index === pieces.length - 1) : [piece])
  return h("div", { class: plain ? "beside-text" : "beside-text code", tabindex: "0", role: "region", "aria-label": label }, ...parts)
}

/** Equal lines: those next to differences, and a button for the rest. @param {string} piece @param {boolean} first @param {boolean} last @returns {Child[]} */
function fold(piece, first, last) {
  const lines = piece.split(/(?<=\n)/), before = first ? 0 : ALIKE_SHOWN, after = last ? 0 : ALIKE_SHOWN
  if (lines.length <= before + after + MOST_ALIKE) return [piece]
  const hidden = lines.slice(before, lines.length - after)
  const more = h("button", { type: "button", class: "alike", onclick: () => more.replaceWith(hidden.join("")) }, `${plural(hidden.length, "line")} alike`)
  return [lines.slice(0, before).join(""), more, lines.slice(lines.length - after).join("")]
}

/** A time as a bar on a common scale, in consecutive pieces. @param {number | null} value @param {number} longest @param {[string, number][]} pieces colour and time of each */
function bar(value, longest, pieces) {
  if (value == null) return "–"
  const bars = pieces.map(([colour, time]) => {
    const filled = h("i", { class: `beside-bar ${colour}`, title: pieces.length > 1 ? `${colour === "encode" ? "encoding" : "then"} ${milliseconds(time)}` : null })
    filled.style.width = `${100 * time / (longest || 1)}%`
    return filled
  })
  return h("div", { class: "beside-time" }, h("span", { class: "beside-track" }, ...bars), h("span", {}, milliseconds(value)))
}

/** The first time: encoding and the cached answer. @param {Run} run @param {number} longest */
function firstTime({ told, summary }, longest) {
  const first = told.payback?.first_ms ?? null, cached = Math.min(summary.cached_ms ?? 0, first ?? 0)
  return bar(first, longest, [["encode", (first ?? 0) - cached], ["cached", cached]])
}

const sideTime = (/** @type {Run} */ { summary }, /** @type {"cached" | "uncached"} */ name, /** @type {number} */ longest) => bar(summary[`${name}_ms`], longest, [[name, summary[`${name}_ms`] ?? 0]])

/** @param {Api.SideFrame} side */
function sideWords(side) {
  const { from_cache: cached, computed, encoded, generated } = side.tokens
  return [
    side.state !== "done" && side.state,
    generated != null && plural(generated, "token"),
    cached != null && `${count(cached - (encoded ?? 0))} from the cache`,
    computed != null && `${count(computed)} computed`,
    side.tokens_per_second && `${side.tokens_per_second.toFixed(1)} tokens/s`,
    ENDED[side.ended],
  ].filter(Boolean).join(" · ")
}

/** Makes rows of the table. @param {Run[]} runs @returns {(title: string, value: (run: Run) => unknown, cell?: (run: Run) => Child) => Row} */
const rowOf = runs => (title, value, cell = run => spelled(value(run))) => ({ title, values: runs.map(value), cells: runs.map(cell) })

/** The results of the runs. @param {Run[]} runs @returns {Row[]} */
function results(runs) {
  const every = runs.flatMap(({ told, summary }) => [told.payback?.first_ms ?? null, summary.cached_ms, summary.uncached_ms])
  const longest = Math.max(0, ...every.map(value => value ?? 0))
  const row = rowOf(runs)
  return [
    row("Schema", ({ told }) => told.schema),
    row("State", ({ told }) => told.state, ({ told }) => h("div", {}, told.state, ...[told.message, ...told.warnings].filter(Boolean).map(words => h("p", { class: "soft" }, words)))),
    row("Note", ({ summary }) => summary.note, ({ summary }) => h("div", { class: "beside-note" }, summary.note || "–")),
    row("Reuse", ({ summary }) => summary.reuse && `${summary.reuse}.`),
    row("First time", ({ told }) => milliseconds(told.payback?.first_ms), run => firstTime(run, longest)),
    row("From the cache", ({ summary }) => milliseconds(summary.cached_ms), run => sideTime(run, "cached", longest)),
    row("Without the cache", ({ summary }) => milliseconds(summary.uncached_ms), run => sideTime(run, "uncached", longest)),
    row("Speed-up", ({ summary }) => ratioWords(summary), rangeWords),
    row("Answers", ({ told }) => sameness(told).slice(0, 2).join(": ")),
    row("Encoded first", ({ told }) => told.encoding.ms, ({ told }) => told.encoding.ms == null ? "nothing" : `${plural(told.encoding.tokens, "token")} in ${milliseconds(told.encoding.ms)}`),
    row("First token", ({ told }) => told.comparison.first_token_agrees, ({ told }) => told.comparison.first_token_agrees == null ? "–" : told.comparison.first_token_agrees ? "the same on both sides" : "differs between the sides"),
    row("First-token KL", ({ told }) => told.comparison.kl_first_token == null ? "–" : `${nats(told.comparison.kl_first_token)} nats`),
  ]
}

/** The fidelity of cached answers; no rows if none was measured. @param {Run[]} runs @returns {Row[]} */
function fidelity(runs) {
  if (!runs.some(({ told }) => told.fidelity)) return []
  /** @param {string} title @param {(found: Api.Fidelity) => unknown} value @param {(found: Api.Fidelity) => Child} cell */
  const row = (title, value, cell) => rowOf(runs)(title, ({ told }) => told.fidelity && value(told.fidelity.found), ({ told }) => told.fidelity ? cell(told.fidelity.found) : "–")
  return [
    rowOf(runs)("Effect of caching measured", ({ told }) => told.fidelity?.measured, ({ told }) => told.fidelity ? when(told.fidelity.measured) : "–"),
    row("Mean KL per token", found => found.kl_mean, found => `${nats(found.kl_mean)} nats, ${nats(found.kl_worst)} nats at worst`),
    row("First token, measured", found => found.kl_first_token, found => `${found.first_token_agrees ? "the same" : "different"} (KL ${nats(found.kl_first_token)} nats)`),
    row("Flipped tokens", found => found.flips.length, found => `${count(found.flips.length)} of ${count(found.tokens_read)}`),
    row("KL by module", found => JSON.stringify(found.modules), found => pairs(found.modules.map(one => [one.path || "fixed text", `${nats(one.harm)} nats`]))),
    row("Fixes tried", found => JSON.stringify(found.remedies), found => found.remedies.length ? pairs(found.remedies.map(one => [one.what, `KL ${nats(one.kl_mean)} nats`])) : "nothing"),
    row("Advice", found => found.advice, found => h("div", { class: "beside-note" }, found.advice)),
  ]
}

/** @param {[string, string][]} named */
const pairs = named => h("ul", { class: "beside-pairs" }, ...named.map(([name, value]) => h("li", {}, name, h("span", { class: "soft" }, ` ${value}`))))

/** A setting; for scope and repair the values that `reuse` chose. @param {string} name @returns {(run: Run) => string} */
const setting = name => ({ told: { settings, reuse } }) => {
  if (settings.reuse !== "auto" || name !== "scope" && name !== "repair") return spelled(settings[name])
  return reuse ? `${reuse.scope ? reuse[name] : "none"} (chosen)` : "–"
}

/** The settings and models of the runs. @param {Run[]} runs @param {Map<string, string>} labels setting labels by name @returns {Row[]} */
function circumstances(runs, labels) {
  const row = rowOf(runs), settings = [...new Set(runs.flatMap(({ told }) => Object.keys(told.settings)))]
  return [
    ...MODEL.map(([name, title]) => row(title, ({ told }) => told.model[name], ({ told }) => spelled(name === "fingerprint" ? told.model[name]?.slice(0, 12) : told.model[name]))),
    ...settings.map(name => row(labels.get(name) ?? name, setting(name))),
  ]
}

/** A row of the table; `data-alike` if all runs have the same value. @param {string} title @param {unknown[]} values @param {Child[]} cells */
function line(title, values, cells) {
  const alike = values.length > 1 && values.every(value => value === values[0])
  return h("tr", { "data-alike": alike ? "yes" : null, class: values.length > 1 && !alike ? "differs" : null }, h("th", { scope: "row", title: ABOUT[title], tabindex: ABOUT[title] ? "0" : null }, title), ...cells)
}

/** @param {string} title @param {Run[]} runs @param {"cached" | "uncached"} side @param {(run: Run, side: "cached" | "uncached") => Child} rating */
function answers(title, runs, side, rating) {
  const words = runs.map(({ told }) => told.sides[side].text)
  return line(title, words, runs.map((run, index) => h("td", { class: "long" },
    h("p", { class: "soft" }, sideWords(run.told.sides[side])),
    words[index] ? text(`${title}, ${called(run.summary)}`, run[side], { plain: true }) : null,
    words[index] ? rating(run, side) : null)))
}

/** @param {string} title @param {Run[]} runs @param {"prompt" | "schema"} kind */
function documents(title, runs, kind) {
  const whole = runs.map(run => run[kind].map(([piece]) => piece).join("")), several = runs.length > 1
  if (!several || whole.some(one => one !== whole[0])) return line(title, whole, runs.map(run => h("td", { class: "long" }, text(`${title}, ${called(run.summary)}`, run[kind], { folded: several }))))
  return line(title, whole, [h("td", { class: "long", colspan: String(runs.length) }, h("p", { class: "soft" }, "The same in all runs."), text(title, [[whole[0], false]]))])
}

/**
 * A table of runs as columns, with actions for each.
 * @param {Run[]} runs compared with the first one
 * @param {Map<string, string>} labels setting labels by name
 * @param {(run: Run) => Child[]} actions
 * @param {(run: Run, side: "cached" | "uncached") => Child} rating
 */
export function besideTable(runs, labels, actions, rating) {
  const several = runs.length > 1, lines = (/** @type {Row[]} */ rows) => rows.map(({ title, cells, values }) => line(title, values, cells.map(cell => h("td", {}, cell))))
  const body = h("tbody", {}, ...lines([...results(runs), ...fidelity(runs)]),
    answers("Answer from the cache", runs, "cached", rating), answers("Answer without it", runs, "uncached", rating),
    documents("Prompt", runs, "prompt"), ...lines(circumstances(runs, labels)), documents("Schema text", runs, "schema"))
  const differ = [...body.rows].some(row => row.classList.contains("differs"))
  body.toggleAttribute("data-only", differ)
  const only = h("input", { type: "checkbox", checked: differ, onchange: () => body.toggleAttribute("data-only", only.checked) })
  const models = new Set(runs.map(({ summary }) => summary.model)).size
  const head = runs.map(run => h("th", { scope: "col" }, h("strong", {}, called(run.summary)), models > 1 ? h("p", {}, shortName(run.summary.model)) : null, run.summary.name ? h("span", { class: "soft" }, when(run.summary.started)) : null, h("div", { class: "beside-actions" }, ...actions(run))))
  const table = h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), ...head)), body)
  table.style.setProperty("--runs", String(runs.length))
  return h("div", { class: "beside-view" },
    several ? h("p", { class: "beside-lead" }, h("label", { class: "check" }, only, "Differences only"), h("span", { class: "soft" }, "Highlighted: words that differ from the first run.")) : null,
    h("div", { class: "beside-scroll", tabindex: "0", role: "region", "aria-label": "Runs side by side" }, table))
}
