// The two answers side by side, and what caching changed.
import { originOf } from "./staleness.js"
import { count, h, milliseconds, nats, overlapping, plural, tally, times, timesRange } from "../base/dom.js"
import { Copier } from "../base/copy_button.js"
import { Emitter } from "../base/events.js"
import { Scale } from "./time_scale.js"
import { Verdict } from "./verdict.js"

export const WAITING = "Waits for a run in another tab."

/** @type {Record<Api.SideFrame["state"], string>} */
const STATES = {
  waiting: "waiting", working: "working", streaming: "answering", done: "done", stopped: "stopped", "not run": "not run", measured: "measured", failed: "failed",
}
const WAITS = "waits for another run"
const WAITED = "Time spent waiting for other work. No measurement counts it."

const WORTH_SAYING_MS = 100
const LEAST_SHARE = 0.02  // of the time to first token; shorter stages are counted

const GUESSES = "Speculative tokens guessed from the prompt and the answer, and how many the model accepted. Accepted tokens need no pass of their own."

const COLD = "These runs computed evicted segments again. The median and the ratio leave them out."

/** Why an answer ended. @param {Api.SideFrame} side @param {Record<string, any>} settings @param {string} message the run's message */
export function endingWords({ state, ended, tokens }, { max_new_tokens: most, stop = [] }, message = "") {
  if (state === "stopped") return message || "Stopped by you."
  if (state !== "done") return ""
  if (ended === "stop") return stop.length === 1 ? `Stopped at the stop text ${JSON.stringify(stop[0])}.` : "Stopped at a stop text."
  if (ended !== "length") return ended ? "Finished." : ""
  return tokens.generated < most ? `Cut at ${plural(tokens.generated ?? 0, "token")}: the window is full.` : `Cut at Max answer length, ${count(most)}.`
}

/** Whether an answer is as its format demands; null without a format. @param {string | null} fault @returns {HTMLElement | null} */
export function formatMark(fault) {
  if (fault == null) return null
  const cut = fault.startsWith("incomplete")
  return h("span", { class: "format-mark", "data-mood": cut ? "warn" : fault ? "bad" : "good" }, fault ? cut ? fault : `not valid: ${fault}` : "valid ✓")
}

/** The time of the whole answer from its first token and rate; null if there is none. @param {Api.SideFrame} side */
function wholeAnswer({ ttft_ms: first, tokens: { generated }, tokens_per_second: rate }) {
  return first == null || !generated ? null : first + (rate ? 1000 * (generated - 1) / rate : 0)
}

/** The times of the whole answers, if these have the same length. @param {Api.RunFrame | null} run */
export function wholeWords(run) {
  const { cached, uncached } = run?.sides ?? {}
  if (!run || cached?.state !== "done" || uncached?.state !== "done" || cached.tokens.generated !== uncached.tokens.generated) return ""
  const took = wholeAnswer(cached), without = wholeAnswer(uncached), ratio = run.comparison.ttft_speedup ?? 1
  if (!took || !without) return ""
  const [figure, way] = times(without / took), words = figure === "1.0×" ? "whole answer as fast" : `whole answer ${figure} ${way}`
  const [rate, rival] = [cached.tokens_per_second, uncached.tokens_per_second]
  if (figure === "1.0×" || without > took === ratio > 1 || overlapping(run.comparison) || !rate || !rival) return words
  return `${words}: each later token took ${milliseconds(1000 / rate)} instead of ${milliseconds(1000 / rival)} (timed once)`
}

class Pane {
  #ttft = h("strong", { class: "ttft" })
  #state = h("span", { class: "state" })
  #facts = h("dl", { class: "facts", tabindex: "0" })
  #bar = h("div", { class: "timeline", role: "img" })
  #parts = h("ul", { class: "parts", tabindex: "0", "aria-label": "Stages of the time to first token" })
  #answer = h("div", { class: "answer", tabindex: "0", role: "region" })
  #copier
  #text = ""
  #empty
  #stages

  /** @param {string} title @param {string} empty text before the first run @param {Record<string, string>} stages labels of a timeline */
  constructor(title, empty, stages) {
    this.#stages = stages
    this.#empty = empty
    this.#answer.setAttribute("aria-label", `${title} answer`)
    this.#copier = new Copier(`Copy the ${title.toLowerCase()} answer`, () => this.#text)
    this.node = h("section", { class: "pane", "aria-label": title },
      h("header", { class: "bar" }, h("h2", {}, title), this.#copier.node, h("span", { class: "sr" }, "first token after"), this.#ttft, this.#state),
      h("div", { class: "measures" }, this.#facts, this.#bar, this.#parts),
      this.#answer)
  }

  /**
   * @param {Api.SideFrame | undefined} side
   * @param {number} longest the time of a full-width bar
   * @param {[string, boolean][] | undefined} difference
   * @param {Api.RunFrame | null} run
   */
  show(side, longest, difference, run) {
    this.node.dataset.state = side?.state ?? "empty"
    const words = side ? (side.waits ? WAITS : (run && endingWords(side, run.settings, run.message)) || STATES[side.state]) : "", mark = formatMark(side?.format_fault ?? null)
    this.#state.replaceChildren(words, ...mark ? [" ", mark] : [])
    this.#state.title = this.#state.textContent
    this.#ttft.textContent = side?.ttft_ms == null ? "" : milliseconds(side.ttft_ms)
    this.#showFacts(side)
    this.#showTimeline(side, longest)
    this.#showAnswer(side, difference, run)
    this.#text = side?.text ?? ""
    this.#copier.button.disabled = !this.#text
  }

  /** @param {Api.SideFrame | undefined} side */
  #showFacts(side) {
    const tokens = side?.tokens ?? {}
    const rate = side?.tokens_per_second
    const facts = [
      ["from cache", tokens.from_cache == null ? "" : count(tokens.from_cache), "Prompt tokens that were read from the cache"],
      ["computed", tokens.computed == null ? "" : count(tokens.computed), "Prompt tokens that the model computed for this answer"],
      ["tokens/s", rate ? (rate < 10 ? rate.toFixed(1) : count(rate)) : "", "Answer tokens per second after the first one"],
    ].filter(([, value]) => value)
    const whole = side ? wholeAnswer(side) : null
    if (whole !== null) facts.push(["total time", milliseconds(whole), `Time of the whole answer, ${count(tokens.generated)} tokens`])
    if (tokens.drafted) facts.push(["guessed tokens accepted", `${count(tokens.accepted)} of ${count(tokens.drafted)}`, GUESSES])
    if (side && side.waited_ms > WORTH_SAYING_MS) facts.push(["waited for other runs", milliseconds(side.waited_ms), WAITED])
    if (side?.cold_ms.length) facts.push(["including encoding", side.cold_ms.map(milliseconds).join(", "), COLD])
    this.#facts.replaceChildren(...facts.map(([name, value, about]) => h("div", { title: about }, h("dt", {}, name), h("dd", {}, value))))
  }

  /** @param {Api.SideFrame | undefined} side @param {number} longest */
  #showTimeline(side, longest) {
    const timeline = side?.timeline_ms ?? {}
    const parts = Object.keys(this.#stages).filter(part => timeline[part] != null)
    this.#bar.replaceChildren(...parts.map(part => {
      const piece = h("i", { class: `part ${part}`, title: `${part}, ${this.#stages[part]}: ${milliseconds(timeline[part])}` })
      piece.style.width = `${100 * timeline[part] / (longest || 1)}%`
      return piece
    }))
    const words = parts.map(part => `${part} ${milliseconds(timeline[part])}`), all = parts.reduce((sum, part) => sum + timeline[part], 0)
    this.#bar.setAttribute("aria-label", words.length ? `Time to first token: ${words.join(", ")}` : "No times yet")
    const shown = parts.filter(part => timeline[part] >= LEAST_SHARE * all), rest = parts.length - shown.length
    this.#parts.replaceChildren(...shown.map(part => h("li", { title: this.#stages[part] }, h("i", { class: `swatch ${part}` }), `${part} ${milliseconds(timeline[part])}`)),
      ...(rest ? [h("li", { title: words.filter((_, index) => !shown.includes(parts[index])).join(", ") }, `+${rest}`)] : []))
  }

  /** @param {Api.SideFrame | undefined} side @param {[string, boolean][] | undefined} difference @param {Api.RunFrame | null} run */
  #showAnswer(side, difference, run) {
    const box = this.#answer
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 24
    if (!side) box.replaceChildren(h("p", { class: "empty" }, this.#empty))
    else if (!side.text) box.replaceChildren(this.#progress(side, run))
    else if (difference) box.replaceChildren(...difference.map(([text, differs]) => differs ? h("mark", {}, text) : text))
    else if (box.firstChild instanceof Text && box.childNodes.length === 1) box.firstChild.data = side.text
    else box.replaceChildren(side.text)
    if (atEnd && side?.state === "streaming") box.scrollTop = box.scrollHeight
  }

  /** Scrolls to the first line. */
  toTop() { this.#answer.scrollTop = 0 }

  /** Scrolls with another pane while `when` is true. @param {Pane} other @param {() => boolean} when */
  follow(other, when) {
    this.#answer.addEventListener("scroll", () => { if (when()) other.#answer.scrollTop = this.#answer.scrollTop })
  }

  /** @param {Api.SideFrame} side @param {Api.RunFrame | null} run */
  #progress(side, run) {
    const ahead = run?.encoding.state === "working", alone = run?.mode !== "both" ? "Not run: this run used the other side only." : "Not run."
    /** @type {Partial<Record<Api.SideFrame["state"], string>>} */
    const all = {
      waiting: run?.state !== "working" ? "" : ahead ? "Runs after missing modules are encoded." : run.mode === "both" ? "Runs after the other side, so that timings do not affect each other." : alone,
      working: side.waits ? WAITING : side.working ? `${side.working[0].toUpperCase()}${side.working.slice(1)}` : "Working…",
      streaming: "", done: "The model generated no text.", stopped: "Stopped before the first token.", "not run": alone,
    }
    const words = all[side.state] ?? ""
    const counted = side.state === "working" && !side.waits && side.total
    const meter = counted
      ? h("progress", { max: side.total, value: side.done, "aria-label": "Progress" }) : null
    const of = counted ? ` (${tally(side.working, side.done, side.total)})` : ""
    return h("p", { class: "empty" }, words + of, meter)
  }
}

/**
 * "again": time the first token of a run again, by its number.
 * @extends {Emitter<{again: number}>}
 */
export class Panes extends Emitter {
  #cached
  #uncached
  #ratio = h("strong", { class: "ratio", hidden: true })
  #ratioWords = h("span", { class: "soft" })
  #range = h("span", { class: "soft ratio-range" })
  #again = h("button", { type: "button", class: "link", hidden: true, onclick: () => this.emit("again", this.#run?.number ?? 0) }, "Time again")
  #whole = h("p", { class: "soft whole" })
  #payback = h("p", { class: "payback" })
  #scale = new Scale()
  #agrees = h("dd", {})
  #divergence = h("dd", {})
  #divergenceName = h("dt", {})
  /** @type {Api.MeasuredFidelity | null} */
  #measured = null
  #mark = h("input", { type: "checkbox", checked: true })
  #age = h("p", { class: "age", role: "status" })
  #panes
  /** @type {Api.RunFrame | null} */
  #run = null
  #then = ""
  #belonging
  /** The reuse settings of the cached answer, and the reason. */
  #reuse = h("p", { class: "soft reuse-taken", role: "status", hidden: true })
  /** @type {string[]} */
  #faulty = []

  /** @param {HTMLElement} host @param {Record<string, string>} stages labels of a timeline @param {import("./staleness.js").Belonging} belonging @param {import("./fidelity.js").Explanation} explanation */
  constructor(host, stages, belonging, explanation) {
    super()
    this.#belonging = belonging
    this.verdict = new Verdict(belonging, explanation)
    belonging.on("changed", () => this.#showAge())
    explanation.on("found", measured => { this.#measured = measured; this.#showDivergence() })
    this.#cached = new Pane("Cached", "Run the prompt: modules that are not stored yet are computed first, and this answer reads them instead of computing them again.", stages)
    this.#uncached = new Pane("Uncached", "The same tokens, all computed afresh, for comparison.", stages)
    const meaning = "How much caching changed the probabilities of the answer's tokens (Kullback-Leibler divergence, in nats); 0 means no change"
    const comparison = h("section", { class: "comparison", "aria-label": "Comparison" },
      h("div", { class: "headline" },
        h("div", { class: "outcome", tabindex: "0", role: "group", "aria-label": "Speed" }, this.#ratio, h("p", { class: "ratio-words" }, this.#ratioWords, this.#range), this.#whole, this.#payback),
        this.verdict.node),
      this.#scale.node, this.#reuse, this.#age,
      h("div", { class: "verdict" },
        h("dl", { class: "verdicts", tabindex: "0" },
          h("div", { title: "The most probable token after the prompt, cached and uncached" }, h("dt", {}, "First token"), this.#agrees),
          h("div", { title: meaning }, this.#divergenceName, this.#divergence)),
        this.#again, h("label", { class: "check" }, this.#mark, "Mark differences")))
    this.#panes = h("div", { class: "panes" }, comparison, this.#cached.node, this.#uncached.node)
    host.append(this.#panes)
    this.#mark.addEventListener("change", () => this.#paint())
    const over = () => this.#run?.state !== "working"
    this.#cached.follow(this.#uncached, over)
    this.#uncached.follow(this.#cached, over)
    this.#paint()
  }

  /** @param {Api.RunFrame} run @param {string} then names a stored run */
  show(run, then = "") {
    const over = run.state !== "working", begun = this.#run?.state === "working"
    this.#run = run
    this.#then = then
    this.#paint()
    if (over && begun) for (const pane of [this.#cached, this.#uncached]) pane.toTop()
  }

  /** Shows which documents have errors that prevent a run. @param {string[]} kinds */
  hindered(kinds) {
    this.#faulty = kinds
    this.#showAge()
  }

  #showAge() {
    const run = this.#run, differs = run ? this.#belonging.sentence(originOf(run)) : ""
    this.#panes.toggleAttribute("data-old", differs !== "")
    const which = this.#then ? "It" : run?.number ? `Run ${run.number}` : "This run", kept = this.#then
    const next = this.#faulty.length ? `Fix the errors in the ${this.#faulty.join(" and the ")}, then run again.` : "Run again."
    const words = [kept, differs && `${which} ran ${differs}. ${next}`].filter(Boolean).join(" ")
    if (this.#age.textContent !== words) this.#age.textContent = this.#age.title = words
  }

  #paint() {
    this.#showAge()
    const run = this.#run, drawn = (run?.settings.temperature ?? 0) > 0
    const difference = this.#mark.checked && !drawn ? run?.difference : null
    const longest = Math.max(0, ...Object.values(run?.sides ?? {}).map(side => side.ttft_ms ?? 0))
    this.#cached.show(run?.sides.cached, longest, difference?.cached, run)
    this.#uncached.show(run?.sides.uncached, longest, difference?.uncached, run)
    const { scope, repair, reuse: chosen } = run?.settings ?? {}, reuse = run?.reuse, own = !reuse && chosen !== "auto"
    const how = [own && scope, own && repair !== "none" && repair, run?.placement === "schema" && "positions of the schema"].filter(Boolean)
    const checks = reuse?.follows && reuse.kl == null
    this.#reuse.hidden = !reuse
    this.#reuse.textContent = this.#reuse.title = reuse ? `${reuse.why}${checks ? "; checking the answer" : ""}.` : ""
    if (checks) this.#reuse.append(h("progress", { "aria-label": "Checking the answer" }))
    this.#reuse.dataset.mood = reuse?.broken ? "warn" : ""
    this.#scale.show(run, run?.number ? [`Run ${run.number}`, ...how].join(" · ") : "")
    this.#showRatio(run)
    const agrees = run?.comparison.first_token_agrees
    this.#verdict(this.#agrees, agrees ?? null, agrees == null ? "" : agrees ? "the same" : "differs")
    this.#showDivergence()
    this.#mark.disabled = drawn
    this.verdict.show(run)
  }

  // The mean of the answer if it is measured, as on the Runs page, else of the first token.
  #showDivergence() {
    const run = this.#run, measured = run && this.#measured && JSON.stringify(originOf(this.#measured)) === JSON.stringify(originOf(run)) ? this.#measured.found : run?.fidelity?.found
    const mean = measured?.kl_mean ?? (run?.reuse?.checked ? run.reuse.kl : null), shown = mean ?? run?.comparison.kl_first_token
    this.#divergenceName.replaceChildren(...mean == null ? ["First token: KL"] : ["Mean KL", h("span", { class: "wide" }, " per token")])
    this.#divergence.replaceChildren(shown == null ? "" : nats(shown), mean == null && run?.reuse ? h("span", { class: "soft wide" }, " (the limit is for the whole answer)") : "")
  }

  /** @param {Api.RunFrame | null} run */
  #showRatio(run) {
    const { ttft_speedup: ratio, least_speedup: least, most_speedup: most } = /** @type {Api.ComparedSoFar} */ (run?.comparison ?? {})
    const alone = run && run.mode !== "both", unclear = overlapping(run?.comparison ?? {}), computed = run?.reuse?.scope === ""
    const [figure, way] = ratio == null ? ["", ""] : unclear || computed ? ["≈ 1×", ""] : times(ratio)
    this.#ratio.textContent = [figure, way].filter(Boolean).join(" ")
    this.#ratio.hidden = !figure
    this.#ratioWords.textContent = ratio == null ? alone ? `${run.mode} side only` : "not timed yet" : computed ? "first token: not read from the cache" : unclear ? "first token: no clear difference" : "to the first token"
    this.#ratio.dataset.verdict = ratio == null || unclear || computed ? "" : ratio >= 1 ? "good" : "warn"
    this.#range.textContent = ratio == null ? "" : least == null || most == null ? ", one timing each" : ` (${timesRange(least, most)})`
    this.#range.title = "The lowest and the highest ratio of the timings of both sides"
    this.#again.hidden = !run?.number || run.state !== "done" || ratio == null || this.#belonging.differences(originOf(run)).length > 0
    this.#again.title = `Times the first token twice more on each side, about ${milliseconds(2 * ((run?.sides.cached.ttft_ms ?? 0) + (run?.sides.uncached.ttft_ms ?? 0)))}`
    this.#whole.textContent = this.#whole.title = wholeWords(run)
    this.#payback.textContent = this.#payback.title = run?.payback?.words ?? ""
  }

  /** @param {HTMLElement} node @param {boolean | null} good @param {string} words */
  #verdict(node, good, words) {
    node.textContent = words
    node.dataset.verdict = good == null ? "" : good ? "good" : "warn"
  }
}
