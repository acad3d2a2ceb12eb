// The time saved per cached token, measured by runs of the open texts, or else of the same model.
import { originOf } from "./staleness.js"
import { milliseconds } from "../base/dom.js"
import { decidesReading } from "./influence.js"

export class Savings {
  #belonging
  /** @type {Api.RunFrame[]} */
  #runs = []

  /** @param {import("./staleness.js").Belonging} belonging */
  constructor(belonging) { this.#belonging = belonging }

  /** @param {Api.RunFrame} run */
  note(run) {
    if (!run.number || perToken(run) === null) return
    this.#runs = [...this.#runs.filter(({ number }) => number !== run.number), run].sort((a, b) => a.number - b.number)
  }

  /** The time that cached tokens save, in words. @param {number} tokens */
  words(tokens) {
    const model = this.#belonging.modelDigest, runs = this.#runs.filter(run => run.of.model === model)
    const own = runs.findLast(run => this.#belonging.differences(originOf(run), decidesReading).length === 0), run = own ?? runs.at(-1)
    const rate = run ? perToken(run) : null
    if (!run || rate === null) return "run to see what it saves"
    const saved = milliseconds(Math.abs(tokens * rate)), verb = rate < 0 ? "costs" : "saves"
    return own ? `${verb} ${saved}, measured by run ${run.number}` : `${verb} about ${saved}, estimated from run ${run.number} of other texts`
  }
}

/** Milliseconds saved per cached token; null if a side was not timed. @param {Api.RunFrame} run */
function perToken({ sides: { cached, uncached } }) {
  const kept = cached.tokens.from_cache
  return cached.ttft_ms == null || uncached.ttft_ms == null || !kept ? null : (uncached.ttft_ms - cached.ttft_ms) / kept
}
