// Whether caching changed the answer, and the one action that helps, with its cost before and after.
import { h, milliseconds, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { originOf } from "./staleness.js"

/** @typedef {{name: "scope" | "repair", value: string, words: string, about: string, once: boolean, ms: number | null, settings: Record<string, string>}} Fix `ms`: its expected cost, `once` or per answer */

/** The settings of a measured answer with one of them changed. @param {Api.Fidelity | null} found @param {"scope" | "repair"} name @param {string} value @returns {Record<string, string>} */
export const settingsWith = (found, name, value) => ({ ...(found?.scope ? { scope: found.scope, repair: found.repair } : {}), [name]: value })

/** Milliseconds to compute a token of the prompt; null if the uncached side was not timed. @param {Api.RunFrame} run */
function perToken({ sides: { uncached: { ttft_ms: time, tokens } } }) {
  return time == null || !tokens.computed ? null : time / tokens.computed
}

/** The fix to offer for a run whose answers differ; null if only rounding is left. @param {Api.RunFrame} run @param {Api.Fidelity | null} found @returns {Fix | null} */
export function fixFor(run, found) {
  const scope = run.reuse ? run.reuse.scope : run.settings.scope, rate = perToken(run)
  if (scope === "scaffold" || scope === "") return null
  const best = found?.best, whole = run.sides.uncached.ttft_ms
  if (best?.repair) return { name: "repair", value: best.repair, settings: settingsWith(found, "repair", best.repair), words: "Recompute some tokens", about: `Computes ${plural(best.computed, "more token")} for each answer (repair ${best.repair})`, once: false, ms: rate === null ? null : rate * best.computed }
  if (best?.scope) return { name: "scope", value: best.scope, settings: settingsWith(found, "scope", best.scope), words: "Encode with earlier modules", about: `Each module is encoded with the modules before it (scope ${best.scope}); other combinations are encoded again`, once: true, ms: whole }
  return { name: "scope", value: "scaffold", settings: { scope: "scaffold" }, words: "Encode these modules together", about: "The modules are encoded in this order, as one text (scope scaffold). Both answers are then the same up to rounding. Another combination is encoded again", once: true, ms: whole }
}

/** Whether a setting can change the fix of a run. @param {string} name */
const decides = name => name !== "max_new_tokens"

/** @param {Fix} fix */
const costWords = ({ once, ms }) => ms == null ? "" : ms === 0 && once ? "encoded already" : `${(ms / 1000).toFixed(1)} s ${once ? "once" : "more"}`

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
  /** Returns how many tokens the open prompt has yet to encode with other settings; null if unknown. @type {(settings: Record<string, string>) => Promise<number | null>} */
  missing = async () => null

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
    const run = this.#run, over = run !== null && run.state === "done", current = over && this.#belonging.differences(originOf(run), decides).length === 0
    const differs = current && run.mode === "both" && run.settings.temperature === 0 && run.difference?.first != null
    const found = this.#measured && this.#belonging.differences(originOf(this.#measured), decides).length === 0 ? this.#measured.found : null
    const fix = this.#offered = differs ? fixFor(run, found) : null, cost = fix ? costWords(fix) : ""
    this.#fix.hidden = fix === null
    this.#fix.textContent = fix ? fix.once ? fix.words : `${fix.words}${cost && `: ${cost}`}` : ""
    this.#fix.title = fix ? `${fix.about}.` : ""
    this.#cost.textContent = fix ? fix.once && cost ? cost : "" : current ? this.#spent(run) : differs ? "Only rounding differences are left." : ""
    if (fix?.once) this.#expect(fix, perToken(/** @type {Api.RunFrame} */ (run)))
  }

  /** Shows the cost of the segments that a fix still has to encode. @param {Fix} fix @param {number | null} rate */
  async #expect(fix, rate) {
    const tokens = await this.missing(fix.settings)
    if (tokens === null || this.#offered !== fix) return
    fix.ms = tokens && rate === null ? null : tokens * (rate ?? 0)
    this.#cost.textContent = costWords(fix)
  }

  /** The measured cost of the applied fix. @param {Api.RunFrame} run */
  #spent(run) {
    if (!this.#applied || run.settings[this.#applied.fix.name] !== this.#applied.fix.value) return run.difference?.first && run.mode === "both" ? "Only rounding differences are left." : ""
    const { fix, before } = this.#applied
    if (fix.once && !run.encoding.segments) return `${fix.words}: they were encoded already.`
    const took = fix.once ? run.encoding.ms : (run.sides.cached.ttft_ms ?? before) - before
    const spent = took == null ? "" : `: it took ${fix.once ? `${milliseconds(took)} once` : `${milliseconds(Math.max(0, took))} more for each answer`}`
    return `${fix.words}${spent}${spent && fix.ms ? ` (expected ${milliseconds(fix.ms)})` : ""}.`
  }
}

/** @param {string} word "" after the end of a text */
const quoted = word => word ? `“${word}”` : "the end"
