// Long work on the server: started, asked about or followed until it is over, and stopped.
import { newKey, pause } from "./dom.js"
import { Emitter } from "./events.js"

const ASK_AGAIN_MS = 250
export const STOPPED = "Stopped."
export const AWAY = "The studio's server does not answer."

/**
 * @template Result
 * @typedef {import("./server.js").Reply<Api.JobState<Result>>} JobReply
 */

/**
 * One piece of long work. "state" tells how far it is.
 * @template Result what comes of it
 * @extends {Emitter<{state: Api.JobState<Result>}>}
 */
export class Job extends Emitter {
  #server

  /** @param {import("./server.js").Server} server @param {string} key */
  constructor(server, key = newKey()) {
    super()
    this.#server = server
    this.key = key
  }

  /** Asks about work until it is over; its last state. @param {Promise<JobReply<Result>>} begun @returns {Promise<JobReply<Result>>} */
  async asked(begun) {
    let state = await begun
    while (!state.away && state.error == null && !state.over) {
      this.key = state.key  // of the same work, where somebody else began it
      this.emit("state", state)
      await pause(ASK_AGAIN_MS)
      // The server keeps work of every kind under its key.
      state = /** @type {JobReply<Result>} */ (await this.#server.ask("job_state", { key: this.key }))
    }
    return state
  }

  /** Hears of every state of work, which stops when this page is closed; its last state. @param {Promise<JobReply<Result>>} begun @returns {Promise<JobReply<Result>>} */
  async followed(begun) {
    const first = await begun
    if (first.away || first.error != null) return first
    try {
      for await (const state of this.#server.states(this.key)) {
        this.emit("state", state)
        if (state.over) return state
      }
    } catch {
      // the connection broke: asking tells why
    }
    return this.asked(/** @type {Promise<JobReply<Result>>} */ (this.#server.ask("job_state", { key: this.key })))
  }

  stop() { return this.#server.ask("stop_job", { key: this.key }) }
}
