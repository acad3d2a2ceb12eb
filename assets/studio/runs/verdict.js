// Whether caching changed the answer, and the one action that helps, with its cost before and after.
import { h, milliseconds, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { originOf } from "./staleness.js"

/** @typedef {{name: "scope" | "repair", value: string, words: string, about: string, once: boolean, ms: number | null}} Fix `ms`: its expected cost, `once` or per answer */

/** Milliseconds to compute a token of the prompt; null if the uncached side was not timed. @param {Api.RunFrame} run */
function perToken({ sides: { uncached: { ttft_ms: time, tokens } } }) {
  return time == null || !tokens.computed ? null : time / tokens.computed
}

/** The fix to offer for a run whose answers differ; null if only rounding is left. @param {Api.RunFrame} run @param {Api.Fidelity | null} found @returns {Fix | null} */
export function fixFor(run, found) {
  const scope = run.reuse ? run.reuse.scope : run.settings.scope, rate = perToken(run)
  if (scope === "scaffold" || scope === "") return null
  const best = found?.best, whole = run.sides.uncached.ttft_ms
  if (best?.repair) return { name: "repair", value: best.repair, words: "Repair", about: `Computes ${plural(best.computed, "more token")} for each answer (repair ${best.repair})`, once: false, ms: rate === null ? null : rate * best.computed }
  if (best?.scope) return { name: "scope", value: best.scope, words: "Encode modules after their neighbours", about: `Each module is encoded with the modules before it (scope ${best.scope}); other combinations are encoded again`, once: true, ms: whole }
  return { name: "scope", value: "scaffold", words: "Encode these modules together", about: "The modules are encoded in this order, as one text (scope scaffold). Both answers are then the same up to rounding. Another combination is encoded again", once: true, ms: whole }
}

/** @param {Fix} fix */
const costWords = ({ once, ms }) => ms == null ? "" : `${(ms / 1000).toFixed(1)} s ${once ? "once" : "more"}`

/** Whether both answers are the same, in words, and its mood. @param {Api.RunFrame} run @returns {[string, string, string]} */
export function sameness({ mode, difference, settings }) {
  const first = difference?.first
  if (mode !== "both") return ["Not compared", "Run both sides to compare the answers.", ""]
  if (!difference) return ["Not compared", "One side has no answer.", ""]
  if (settings.temperature > 0) return ["Sampled", `At temperature ${settings.temperature} answers differ by chance.`, ""]
  if (!first) return ["Same text", "Cached and uncached have the same words.", "good"]
  return [`Differs from word ${first.word}`, `${quoted(first.cached)} instead of ${quoted(first.uncached)}; ${plural(difference.differing, "word")} differ${difference.differing === 1 ? "s" : ""}.`, "warn"]
}

/**
 * "fix": the setting to change before the next run.
 * @extends {Emitter<{fix: Fix}>}
 */
export class Verdict extends Emitter {
  #head = h("strong", { class: "sameness" })
  #words = h("p", { class: "soft one-line" })
  #fix = h("button", { type: "button", hidden: true, onclick: () => this.#take() })
  #cost = h("span", { class: "soft" })
  node = h("div", { class: "outcome", tabindex: "0", role: "group", "aria-label": "Same answer" }, this.#head, this.#words, h("p", { class: "fix-line" }, this.#fix, this.#cost))
  #belonging
  /** @type {Api.RunFrame | null} */
  #run = null
  /** @type {Api.MeasuredFidelity | null} */
  #measured = null
  /** @type {Fix | null} */
  #offered = null
  /** The applied fix, and the cached time before it. @type {{fix: Fix, before: number} | null} */
  #applied = null

  /** @param {import("./staleness.js").Belonging} belonging @param {import("./fidelity.js").Explanation} explanation */
  constructor(belonging, explanation) {
    super()
    this.#belonging = belonging
    explanation.on("found", measured => { this.#measured = measured; this.show(this.#run) })
    belonging.on("changed", () => this.#offer())
  }

  /** @param {Api.RunFrame | null} run */
  show(run) {
    this.#run = run
    const [head, words, mood] = run && run.state !== "working" ? sameness(run) : ["", "", ""]
    this.#head.textContent = head
    this.#head.dataset.verdict = mood
    this.#words.textContent = this.#words.title = words
    this.#offer()
  }

  #take() {
    const fix = this.#offered, before = this.#run?.sides.cached.ttft_ms
    if (!fix) return
    this.#applied = { fix, before: before ?? 0 }
    this.emit("fix", fix)
  }

  #offer() {
    const run = this.#run, over = run !== null && run.state === "done", current = over && this.#belonging.differences(originOf(run)).length === 0
    const differs = current && run.mode === "both" && run.settings.temperature === 0 && run.difference?.first != null
    const found = this.#measured && this.#belonging.differences(originOf(this.#measured)).length === 0 ? this.#measured.found : null
    const fix = this.#offered = differs ? fixFor(run, found) : null, cost = fix ? costWords(fix) : ""
    this.#fix.hidden = fix === null
    this.#fix.textContent = fix ? fix.once ? fix.words : `${fix.words}${cost && `: ${cost}`}` : ""
    this.#fix.title = fix ? `${fix.about}.` : ""
    this.#cost.textContent = fix ? fix.once && cost ? cost : "" : current ? this.#spent(run) : differs ? "Only rounding is left." : ""
  }

  /** The measured cost of the applied fix. @param {Api.RunFrame} run */
  #spent(run) {
    if (!this.#applied || run.settings[this.#applied.fix.name] !== this.#applied.fix.value) return run.difference?.first && run.mode === "both" ? "Only rounding is left." : ""
    const { fix, before } = this.#applied, took = fix.once ? run.encoding.ms : (run.sides.cached.ttft_ms ?? before) - before
    const spent = took == null ? "nothing: it was encoded before" : fix.once ? `${milliseconds(took)} once` : `${milliseconds(Math.max(0, took))} more for each answer`
    return `${fix.words}: it took ${spent}${took != null && fix.ms != null ? ` (expected ${milliseconds(fix.ms)})` : ""}.`
  }
}

/** @param {string} word "" after the end of a text */
const quoted = word => word ? `“${word}”` : "the end"
