// Long work on the server: started, asked about or followed until it is over, and stopped.
import { newKey, pause } from "./dom.js"
import { Emitter } from "./events.js"

const ASK_AGAIN_MS = 250
const LATE_MS = 2000
const LOST_MS = 5000
const WATCH_MS = 1000
export const STOPPED = "Stopped."
export const AWAY = "The studio's server does not answer."

/**
 * @template Result
 * @typedef {import("./server.js").Reply<Api.JobState<Result>>} JobReply
 */

/**
 * One piece of long work. "state" tells how far it is; "late" that nothing is heard of work that was begun elsewhere.
 * @template Result what comes of it
 * @extends {Emitter<{state: Api.JobState<Result>, late: void}>}
 */
export class Job extends Emitter {
  #server
  /** @type {(end: JobReply<Result>) => void} */
  #end = () => {}
  #heard = 0
  #over = false

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

  /** Follows work whose states are brought by `take`, and that `begin` begins; its last state. @param {() => void} begin @returns {Promise<JobReply<Result>>} */
  followed(begin) {
    const end = new Promise(resolve => { this.#end = resolve })
    begin()
    this.#watch()
    return end
  }

  /** @param {Api.JobState<Result>} state */
  take(state) {
    this.#heard = Date.now()
    this.emit("state", state)
    if (!state.over) return
    this.#over = true
    this.#end(state)
  }

  stop() { return this.#server.ask("stop_job", { key: this.key }) }

  // Work that waits for other work is first heard of when that ends; a server that went away never answers.
  #watch() {
    const begun = Date.now()
    const timer = setInterval(async () => {
      if (this.#over) return clearInterval(timer)
      const now = Date.now()
      if (!this.#heard && now - begun > LATE_MS) this.emit("late")
      const silent = now - (this.#heard || begun) > LOST_MS
      if (!this.#server.away && !(silent && (await this.#server.ask("count_tokens", { text: "" })).away)) return
      this.#over = true
      this.#end({ away: true })
    }, WATCH_MS)
  }
}
