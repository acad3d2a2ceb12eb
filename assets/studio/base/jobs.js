// Background jobs on the server: starts, follows and stops them.
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
 * A background job. "state": its progress.
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

  /** Polls a job until it ends; returns its last state. @param {Promise<JobReply<Result>>} begun @returns {Promise<JobReply<Result>>} */
  async asked(begun) {
    let state = await begun
    while (!state.away && state.error == null && !state.over) {
      this.key = state.key  // another tab may have started the same work
      this.emit("state", state)
      await pause(ASK_AGAIN_MS)
      // The server stores jobs of every kind by key.
      state = /** @type {JobReply<Result>} */ (await this.#server.ask("job_state", { key: this.key }))
    }
    return state
  }

  /** Follows a job, which stops when this page closes; returns its last state. @param {Promise<JobReply<Result>>} begun @returns {Promise<JobReply<Result>>} */
  async followed(begun) {
    const first = await begun
    if (first.away || first.error != null) return first
    try {
      for await (const state of this.#server.states(this.key)) {
        this.emit("state", state)
        if (state.over) return state
      }
    } catch {
      // polling reports why the connection broke
    }
    return this.asked(/** @type {Promise<JobReply<Result>>} */ (this.#server.ask("job_state", { key: this.key })))
  }

  stop() { return this.#server.ask("stop_job", { key: this.key }) }
}
