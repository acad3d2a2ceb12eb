// Requests to the server, and a light one each second while visible, to tell slow from gone.
import { pause } from "./dom.js"
import { Emitter } from "./events.js"

const PATIENCE_MS = 20_000
const BEAT_MS = 750
const AGAIN_MS = 150  // browsers drop requests when a network changes: only two failures in a row count
const LATE_MS = 5000
const FAILED = "The studio's server failed; its terminal shows the reason. Your text is not lost. Change the document, or try again."
const LATE = `The studio's server took longer than ${PATIENCE_MS / 1000} seconds and is still working. Your text is not lost. Try again later.`

/**
 * An answer, an error message, or nothing without a server.
 * @template Answer
 * @typedef {(Answer & {error?: undefined, away?: undefined})
 *   | ({[Field in keyof Answer]?: undefined} & {error: string, away?: undefined})
 *   | ({[Field in keyof Answer]?: undefined} & {away: true, error?: undefined})} Reply
 */

/** @typedef {Api.Questions} Questions */
/** @typedef {{start: string, assets: string}} Here an id of the studio's start, and the path of the page's files */

/**
 * "away": the server does not answer; "back": it answers again, maybe after a restart; "late": an answer is overdue; "prompt": it arrived; "renewed": the page's files changed.
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
    // A failed request has no reason; liveness tells an error from a missing server.
    if (!answered && !late) this.#heard(await Promise.race([this.#alive(), pause(PATIENCE_MS)]))
    const found = !answered && this.#away ? { away: true } : answered ? answer : { error: late ? LATE : FAILED }
    return /** @type {Reply<Questions[Name][1]>} */ (found)
  }

  /** Yields a job's states as they arrive; incomplete if the server goes away. @param {string} key */
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

  /** The running server's identity; null if there is none. It may take any time. @returns {Promise<Here | null>} */
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

  /** @param {Here | null | void} here nothing if unknown */
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
