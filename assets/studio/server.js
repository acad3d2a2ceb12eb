// Questions to the server, and whether it is there: a light question each second, while somebody looks, tells slow from gone.
import { pause } from "./dom.js"
import { Emitter } from "./events.js"

const PATIENCE_MS = 20_000
const BEAT_MS = 750
const AGAIN_MS = 150  // a browser drops what it has asked when a network changes: only who is refused twice is gone
const LATE_MS = 5000
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
/** @typedef {{start: string, assets: string}} Here which start of the studio it is, and the path of its page's files */

/**
 * "away": nobody listens any more; "back": somebody does again, whether the same or one that was started since; "late": an answer is overdue; "prompt": it came; "renewed": it has other files for the page.
 * @extends {Emitter<{away: void, back: void, late: void, prompt: void, renewed: void}>}
 */
export class Server extends Emitter {
  /** @type {Record<string, (request: unknown) => Promise<unknown>>} */
  #functions = {}
  #away = false
  /** @type {Here | null} */
  #here = null

  /** @param {Record<string, (request: unknown) => Promise<unknown>>} functions */
  connect(functions) {
    this.#functions = functions
    this.#beat()
  }

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
    // A call that failed says nothing of why; whether anybody is there tells a fault from an absence.
    if (!answered && !late) this.#heard(await Promise.race([this.#alive(), pause(PATIENCE_MS)]))
    const found = !answered && this.#away ? { away: true } : answered ? answer : { error: late ? LATE : FAILED }
    return /** @type {Reply<Questions[Name][1]>} */ (found)
  }

  /** The states of a piece of work as they come; fewer than all where the server goes away. @param {string} key */
  async *states(key) {
    const answer = await fetch(new URL(`/work?${new URLSearchParams({ key })}`, import.meta.url), { cache: "no-store" })
    if (!answer.ok || !answer.body) return
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
    for (let rest = ""; ;) {
      const { value, done } = await reader.read()
      if (done) return
      const lines = (rest + value).split("\n")
      rest = lines.pop() ?? ""
      for (const line of lines) yield JSON.parse(line)
    }
  }

  async #beat() {
    for (;;) {
      if (document.hidden) await new Promise(resolve => { document.addEventListener("visibilitychange", resolve, { once: true }) })
      let overdue = false
      const timer = setTimeout(() => { overdue = true; this.emit("late") }, LATE_MS)
      this.#heard(await this.#alive())
      clearTimeout(timer)
      if (overdue) this.emit("prompt")
      await pause(BEAT_MS)
    }
  }

  /** Who is there; null where nobody is. An answer may take as long as it likes. @returns {Promise<Here | null>} */
  async #alive() {
    for (let again = false; ; again = true) {
      try {
        const answer = await fetch(new URL("/alive", import.meta.url), { cache: "no-store" })
        return answer.ok ? await answer.json() : null
      } catch {
        if (again) return null
        await pause(AGAIN_MS)
      }
    }
  }

  /** @param {Here | null | void} here nothing where that is not known */
  #heard(here) {
    if (here === undefined) return
    const other = here !== null && this.#here !== null && here.start !== this.#here.start
    if (!this.#away && (here === null || other)) {
      this.#away = true
      this.emit("away")
    }
    if (here === null) return
    this.#here = here
    if (!this.#away) return
    this.#away = false
    this.emit("back")
    if (!new URL(import.meta.url).pathname.startsWith(`${here.assets}/`)) this.emit("renewed")
  }
}
