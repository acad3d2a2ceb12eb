// The two answers side by side, and between them what caching changed.
import { count, h, milliseconds, nats, plural, times } from "./dom.js"

export const WAITING = "Waits for a run in another tab."

/** @type {Record<Api.SideFrame["state"], string>} */
const STATES = {
  waiting: "waits its turn", working: "working", streaming: "answering", done: "done", stopped: "stopped", "not run": "not run", failed: "failed",
}
const WAITS = "waits for another run"
const WAITED = "Its steps waited so long for those of runs in other tabs or of other work, or for what another program was encoding. None of the times has that in it."

const WORTH_SAYING_MS = 100

const GUESSES = "Tokens that were guessed from the words of prompt and answer, and how many of them the model chose: those took no pass of their own."

class Pane {
  #ttft = h("strong", { class: "ttft" }, "–")
  #state = h("span", { class: "state" })
  #facts = h("dl", { class: "facts" })
  #bar = h("div", { class: "timeline", role: "img" })
  #parts = h("ul", { class: "parts" })
  #answer = h("div", { class: "answer", tabindex: "0", role: "region" })
  #empty
  #stages

  /** @param {string} title @param {string} empty what to say before the first run @param {Record<string, string>} stages of a timeline, in words */
  constructor(title, empty, stages) {
    this.#stages = stages
    this.#empty = empty
    this.#answer.setAttribute("aria-label", `${title} answer`)
    this.node = h("section", { class: "pane", "aria-label": title },
      h("header", { class: "bar" }, h("h2", {}, title), this.#state, h("span", { class: "grow" }),
        h("span", { class: "soft" }, "first token after"), this.#ttft),
      h("div", { class: "measures" }, this.#facts, this.#bar, this.#parts),
      this.#answer)
  }

  /**
   * @param {Api.SideFrame | undefined} side
   * @param {number} longest time that a bar of full width stands for
   * @param {[string, boolean][] | undefined} difference
   * @param {string | undefined} stage of the whole run
   */
  show(side, longest, difference, stage) {
    this.node.dataset.state = side?.state ?? "empty"
    this.#state.textContent = side ? (side.waits ? WAITS : STATES[side.state]) : ""
    this.#ttft.textContent = milliseconds(side?.ttft_ms)
    this.#showFacts(side)
    this.#showTimeline(side, longest)
    this.#showAnswer(side, difference, stage)
  }

  /** @param {Api.SideFrame | undefined} side */
  #showFacts(side) {
    const tokens = side?.tokens ?? {}
    const rate = side?.tokens_per_second
    const samples = side?.samples_ms ?? []
    const facts = [
      ["from cache", tokens.from_cache == null ? "–" : count(tokens.from_cache - (tokens.encoded ?? 0))],
      ["computed", tokens.computed == null ? "–" : count(tokens.computed)],
      ["tokens/s", rate ? (rate < 10 ? rate.toFixed(1) : count(rate)) : "–"],
    ]
    if (tokens.drafted) facts.push(["guesses held", `${count(tokens.accepted)} of ${count(tokens.drafted)}`, GUESSES])
    if (side?.ttft_ms != null && tokens.generated) {
      const after = rate ? 1000 * (tokens.generated - 1) / rate : 0
      const waited = side.waited_ms > WORTH_SAYING_MS ? `+${milliseconds(side.waited_ms)} waiting for other runs` : ""
      facts.push(["whole answer", milliseconds(side.ttft_ms + after), `${count(tokens.generated)} tokens, the first one included. ${waited && WAITED}`, waited])
    }
    if (tokens.encoded) facts.splice(1, 0, ["encoded now", count(tokens.encoded)])
    if (samples.length > 1) facts.push([`median of ${samples.length}`, `${milliseconds(Math.min(...samples))} to ${milliseconds(Math.max(...samples))}`])
    this.#facts.replaceChildren(...facts.map(([name, value, about, more]) =>
      h("div", { title: about ?? "" }, h("dt", {}, name), h("dd", {}, value), more && h("dd", { class: "soft" }, more))))
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
    const words = parts.map(part => `${part} ${milliseconds(timeline[part])}`)
    this.#bar.setAttribute("aria-label", words.length ? `Time to first token: ${words.join(", ")}` : "No times yet")
    this.#parts.replaceChildren(...parts.map((part, index) => h("li", {}, h("i", { class: `swatch ${part}` }), words[index])))
  }

  /** @param {Api.SideFrame | undefined} side @param {[string, boolean][] | undefined} difference @param {string | undefined} stage */
  #showAnswer(side, difference, stage) {
    const box = this.#answer
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 24
    if (!side) box.replaceChildren(h("p", { class: "empty" }, this.#empty))
    else if (!side.text) box.replaceChildren(this.#progress(side, stage))
    else if (difference) box.replaceChildren(...difference.map(([text, differs]) => differs ? h("mark", {}, text) : text))
    else if (box.firstChild instanceof Text && box.childNodes.length === 1) box.firstChild.data = side.text
    else box.replaceChildren(side.text)
    if (atEnd && side?.state === "streaming") box.scrollTop = box.scrollHeight
  }

  /** @param {Api.SideFrame} side @param {string | undefined} stage */
  #progress(side, stage) {
    /** @type {Partial<Record<Api.SideFrame["state"], string>>} */
    const all = {
      waiting: stage === "working" ? "Runs after the other side, so that neither spoils the other's clock." : "",
      working: side.waits ? WAITING : side.working ? `${side.working[0].toUpperCase()}${side.working.slice(1)}` : "Working…",
      streaming: "", done: "The model ended without a word.", stopped: "Stopped before the first word.", "not run": "Not run.",
    }
    const words = all[side.state] ?? ""
    const counted = side.state === "working" && !side.waits && side.total
    const meter = counted
      ? h("progress", { max: side.total, value: side.done, "aria-label": "Progress" }) : null
    const of = counted ? ` (${side.done} of ${side.total})` : ""
    return h("p", { class: "empty" }, words + of, meter)
  }
}

export class Panes {
  #cached
  #uncached
  #ratio = h("strong", { class: "ratio" }, "–")
  #ratioWords = h("span", { class: "soft" })
  #agrees = h("dd", {}, "–")
  #divergence = h("dd", {}, "–")
  #texts = h("dd", {}, "–")
  #mark = h("input", { type: "checkbox", checked: true })
  #title = h("p", { class: "soft run-title" })
  #age = h("p", { class: "age", role: "status" })
  #panes
  /** @type {Api.RunFrame | null} */
  #run = null
  #beside = ""
  /** @type {string[]} */
  #faulty = []

  /** @param {HTMLElement} host @param {Record<string, string>} stages of a timeline, in words */
  constructor(host, stages) {
    this.#cached = new Pane("Cached", "Run the prompt: modules that are not stored yet are computed first, and this answer reads them instead of computing them again.", stages)
    this.#uncached = new Pane("Uncached", "The same tokens, all computed afresh, for comparison.", stages)
    const meaning = "How far caching moved the probabilities of the first token (Kullback-Leibler divergence); 0 is not at all"
    const comparison = h("section", { class: "comparison", "aria-label": "Comparison" },
      this.#title,
      h("p", { class: "headline" }, this.#ratio, this.#ratioWords),
      h("dl", { class: "verdicts" },
        h("div", {}, h("dt", {}, "First token"), this.#agrees),
        h("div", { title: meaning }, h("dt", {}, "KL, first token"), this.#divergence),
        h("div", {}, h("dt", {}, "Texts"), this.#texts)),
      h("label", { class: "check" }, this.#mark, "Mark differences"))
    this.#panes = h("div", { class: "panes" }, this.#cached.node, comparison, this.#uncached.node)
    host.append(this.#age, this.#panes)
    this.#mark.addEventListener("change", () => this.#paint())
    this.#paint()
  }

  /** @param {Api.RunFrame} run */
  show(run) {
    this.#run = run
    this.#paint()
  }

  /** Says which texts are in the editors now. @param {string} texts their digest */
  beside(texts) {
    this.#beside = texts
    this.#showAge()
  }

  /** Says which documents have errors that keep them from being run. @param {string[]} kinds */
  hindered(kinds) {
    this.#faulty = kinds
    this.#showAge()
  }

  #showAge() {
    const run = this.#run, old = run !== null && this.#beside !== "" && run.texts !== this.#beside
    this.#panes.toggleAttribute("data-old", old)
    const which = run?.number ? `Run ${run.number}` : "This run"
    const next = this.#faulty.length ? `To see these answered, mend the errors of the ${this.#faulty.join(" and the ")}, then run.` : "Run to see these answered."
    const words = old ? `${which} answers other texts than are in the editors now (its schema: ${run.schema}). ${next}` : ""
    if (this.#age.textContent !== words) this.#age.textContent = words
  }

  #paint() {
    this.#showAge()
    const run = this.#run, difference = this.#mark.checked ? run?.difference : null
    const longest = Math.max(0, ...Object.values(run?.sides ?? {}).map(side => side.ttft_ms ?? 0))
    this.#cached.show(run?.sides.cached, longest, difference?.cached, run?.state)
    this.#uncached.show(run?.sides.uncached, longest, difference?.uncached, run?.state)
    /** @type {Api.ComparedSoFar} */
    const { ttft_speedup: ratio, first_token_agrees: agrees, kl_first_token: divergence } = run?.comparison ?? {}
    const how = [run?.scope, run?.repair !== "none" && run?.repair, run?.placement === "schema" && "schema placement"].filter(Boolean)
    this.#title.textContent = run?.number ? [`Run ${run.number}`, ...how].join(" · ") : ""
    const [figure, way] = ratio == null ? ["–", ""] : times(ratio)
    this.#ratio.textContent = figure
    this.#ratioWords.textContent = way ? `${way} to the first token` : "not timed yet"
    this.#ratio.dataset.verdict = ratio == null ? "" : ratio >= 1 ? "good" : "warn"
    this.#verdict(this.#agrees, agrees == null ? null : agrees, agrees ? "the same" : "differs")
    this.#divergence.textContent = divergence == null ? "–" : nats(divergence)
    const differing = run?.difference?.differing
    this.#verdict(this.#texts, differing == null ? null : differing === 0, differing === 0 ? "the same" : `${plural(differing ?? 0, "word")} differ`)
  }

  /** @param {HTMLElement} node @param {boolean | null} good @param {string} words */
  #verdict(node, good, words) {
    node.textContent = good == null ? "–" : words
    node.dataset.verdict = good == null ? "" : good ? "good" : "warn"
  }
}
