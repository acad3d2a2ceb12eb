// A run's times on one scale: the first time with encoding, cached, and uncached.
import { count, h, milliseconds, plural, refill, tally } from "../base/dom.js"

const NICE = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]
const MOST_NAMES = 2

/** @type {Row[]} */
const EMPTY = ["First time", "From the cache", "Without the cache"].map(name => ({ name, words: "", ms: null, pieces: [], range: null }))

/** Rounds a time up to a round number. @param {number} time */
function roundUp(time) {
  const power = 10 ** Math.floor(Math.log10(time))
  return power * (NICE.find(step => step * power >= time * 0.999) ?? 10)
}

/** A share of the scale as a CSS width. @param {number} part @param {number} whole */
const share = (part, whole) => `${whole ? Math.min(100, 100 * part / whole) : 0}%`

/** @param {string[]} modules paths; "" for text outside modules */
function named(modules) {
  const names = modules.map(path => path ? path.split("/").at(-1) : "fixed text"), more = names.length - MOST_NAMES
  return more > 0 ? `${names.slice(0, MOST_NAMES).join(", ")} and ${count(more)} more` : names.join(", ")
}

/**
 * Describes the encoding before the cached side.
 * @param {Api.EncodingFrame} encoding
 * @param {boolean} computed whether the promise required computing the whole prompt
 */
export function encodingWords({ state, modules, segments, tokens, ms, others, others_ms }, computed = false) {
  if (state === "stopped") return "Stopped while encoding: computed segments are stored."
  if (state !== "done") return ""
  if (computed && !segments) return "Nothing was read from the cache."
  const earlier = others_ms == null ? "" : `, in ${milliseconds(others_ms)}`
  if (!segments) return others ? `All modules were encoded earlier${earlier}.` : "Nothing of this prompt is cached."
  const rest = others ? ` The rest earlier${earlier}.` : ""
  return `Encoded now in ${milliseconds(ms)}: ${plural(tokens, "token")}, ${named(modules)}.${rest}`
}

/**
 * @typedef {{name: string, words: string, ms: number | null, pieces: [string, number, string][], range: [number, number] | null, note?: string}} Row
 *   `pieces`: colour, time and words of each part of the bar; `note`: text instead of a bar
 */

export class Scale {
  #rows = h("div", { class: "scale-rows", role: "list" })
  #axis = h("div", { class: "scale-axis", "aria-hidden": "true" })
  #key = h("span", { class: "scale-key" })
  #words = h("p", { class: "soft scale-words" })
  node = h("div", { class: "scale", role: "group", tabindex: "0", "aria-label": "Time to the first token" }, this.#rows, h("div", { class: "scale-base" }, this.#key, this.#axis), this.#words)

  /** @param {Api.RunFrame | null} run @param {string} title the run */
  show(run, title) {
    const rows = run ? this.#of(run) : EMPTY, longest = Math.max(0, ...rows.map(({ ms, range }) => Math.max(ms ?? 0, range?.[1] ?? 0)))
    const end = longest > 0 ? roundUp(longest) : 0
    refill(this.#rows, ...rows.map(row => this.#draw(row, end)))
    this.#axis.replaceChildren(...(end ? [0, end / 2, end] : []).map(at => h("span", {}, at ? milliseconds(at).replace(/(\.\d*?)0+(?= )/, "$1").replace(". ", " ") : "0")))
    this.#explain(new Set(rows.flatMap(({ pieces }) => pieces.map(([colour]) => colour))))
    const words = [run && encodingWords(run.encoding, run.reuse?.scope === ""), title].filter(Boolean).join(" · ")
    this.#words.textContent = this.#words.title = words
  }

  /** @param {Set<string>} colours of the bars */
  #explain(colours) {
    const earlier = colours.has("earlier"), now = colours.has("encode")
    /** @param {string} colour @param {string} words @param {string} title */
    const part = (colour, words, title) => h("span", { title }, h("i", { class: `scale-bar ${colour}` }), words)
    refill(this.#key, ...(now ? [part("encode", earlier ? "now" : "encoding", "Encoded by this run")] : []), ...(earlier ? [part("earlier", now ? "earlier" : "encoded earlier", "Encoded and timed by earlier runs")] : []))
  }

  /** @param {Api.RunFrame} run @returns {Row[]} */
  #of(run) {
    const { encoding, payback, sides, order } = run
    /** @type {Row[]} */
    const rows = []
    if (order.includes("cached")) rows.push(this.#first(encoding, payback, sides.cached), this.#side("From the cache", "cached", sides.cached))
    if (order.includes("uncached")) rows.push(this.#side("Without the cache", "uncached", sides.uncached))
    return rows
  }

  /** @param {Api.EncodingFrame} encoding @param {Api.Payback | null} payback @param {Api.SideFrame} cached @returns {Row} */
  #first(encoding, payback, cached) {
    const row = { name: "First time", words: "encoding of missing modules, then the cached answer", range: null, pieces: [], ms: null }
    if (encoding.state === "working") return { ...row, note: encoding.waits ? "waits for another run" : encoding.working === "encoded" ? "writing…" : encoding.working ? `${encoding.working} · ${tally(encoding.working, encoding.done, encoding.total)}` : "looking for stored segments…" }
    if (encoding.state === "stopped") return { ...row, note: "stopped" }
    if (cached.ttft_ms != null && cached.cold_ms.length && !cached.samples_ms.length) return { ...row, note: "nothing is stored, so each run is the first" }
    if (payback?.first_ms == null || cached.ttft_ms == null) return { ...row, note: cached.ttft_ms == null ? "" : "was encoded earlier; that time was not recorded" }
    const all = payback.first_ms - cached.ttft_ms, now = Math.min(all, encoding.ms ?? 0)
    /** @type {[string, number, string][]} */
    const pieces = [["earlier", all - now, `encoded by earlier runs in ${milliseconds(all - now)}`], ["encode", now, `encoded now in ${milliseconds(now)}`], ["cached", cached.ttft_ms, `then ${milliseconds(cached.ttft_ms)} from the cache`]]
    const shown = pieces.filter(([, time]) => time > 0)
    return { ...row, ms: payback.first_ms, pieces: shown, words: shown.map(([, , words]) => words).join(", ") }
  }

  /** @param {string} name @param {"cached" | "uncached"} colour @param {Api.SideFrame} side @returns {Row} */
  #side(name, colour, { ttft_ms, samples_ms, cold_ms, state }) {
    const samples = samples_ms.length ? samples_ms : cold_ms, words = samples.length > 1 ? `the median of ${samples.length}; ${milliseconds(Math.min(...samples))} to ${milliseconds(Math.max(...samples))}` : ""
    if (ttft_ms == null) return { name, words: "", ms: null, pieces: [], range: null, note: state === "waiting" ? "" : state === "working" ? "timing…" : "" }
    return { name, words, ms: ttft_ms, pieces: [[colour, ttft_ms, milliseconds(ttft_ms)]], range: samples.length > 1 ? [Math.min(...samples), Math.max(...samples)] : null }
  }

  /** @param {Row} row @param {number} end */
  #draw({ name, words, ms, pieces, range, note }, end) {
    const bars = pieces.map(([colour, time, said]) => {
      const bar = h("i", { class: `scale-bar ${colour}`, title: said })
      bar.style.width = share(time, end)
      return bar
    })
    const spread = range ? h("i", { class: "scale-range" }) : null
    if (spread && range) Object.assign(spread.style, { left: share(range[0], end), width: share(range[1] - range[0], end) })
    return h("div", { class: "scale-row", role: "listitem", title: words || null },
      h("span", { class: "scale-name" }, name),
      note ? h("span", { class: "soft scale-note", title: note }, note) : h("span", { class: "scale-track" }, ...bars, spread),
      h("span", { class: "scale-value" }, ms == null ? "" : milliseconds(ms)),
      h("span", { class: "sr" }, words))
  }
}
