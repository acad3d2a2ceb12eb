// Questions to the server. A call that gets no answer means that the server is away: say so, and keep trying.
import { pause } from "./dom.js"
import { Emitter } from "./events.js"

const PATIENCE_MS = 20_000
const RETRY_MS = 1500
const FAILED = "The studio's server failed at this: its terminal shows why. Your text is kept. Change the document, or try again."
const LATE = `The studio's server took longer than ${PATIENCE_MS / 1000} seconds for this and goes on with it. Your text is kept. Try again later.`

/**
 * An answer, or a sentence of refusal, or nothing where no server is.
 * @template Answer
 * @typedef {(Answer & {error?: undefined, away?: undefined})
 *   | ({[Field in keyof Answer]?: undefined} & {error: string, away?: undefined})
 *   | ({[Field in keyof Answer]?: undefined} & {away: true, error?: undefined})} Reply
 */

/** @typedef {Api.Questions} Questions */

/** @extends {Emitter<{away: void, back: void}>} */
export class Server extends Emitter {
  /** @type {Record<string, (request: unknown) => Promise<unknown>>} */
  #functions = {}
  #away = false

  /** @param {Record<string, (request: unknown) => Promise<unknown>>} functions */
  connect(functions) { this.#functions = functions }

  get away() { return this.#away }

  /**
   * @template {keyof Questions} Name
   * @param {Name} name
   * @param {Questions[Name][0]} request
   * @returns {Promise<Reply<Questions[Name][1]>>}
   */
  async ask(name, request) {
    let answer, late = false
    try {
      const patience = pause(PATIENCE_MS).then(() => { late = true })
      answer = await Promise.race([this.#functions[name](request), patience])
    } catch {
      answer = undefined
    }
    const answered = typeof answer === "object" && answer !== null
    const away = !answered && !await this.#lives()
    if (away !== this.#away) {
      this.#away = away
      this.emit(away ? "away" : "back")
      if (away) this.#knock()
    }
    const found = away ? { away: true } : answered ? answer : { error: late ? LATE : FAILED }
    return /** @type {Reply<Questions[Name][1]>} */ (found)
  }

  // A call that failed says nothing of why; whether a file of the page still comes tells a fault from an absence.
  async #lives() {
    const patience = pause(PATIENCE_MS).then(() => false)
    const asked = fetch(new URL("icon.svg", import.meta.url), { method: "HEAD", cache: "no-store" }).then(({ ok }) => ok, () => false)
    return Promise.race([asked, patience])
  }

  #knock() {
    setTimeout(async () => {
      if (this.#away && (await this.ask("count_tokens", { text: "" })).away) this.#knock()
    }, RETRY_MS)
  }
}
