// Elapsed and remaining time of long work. The remaining time of a part never counts upwards.
import { h } from "./dom.js"

const SHOWN_FROM_MS = 2000
const TICK_MS = 500

/** @param {number} ms */
export function seconds(ms) {
  const whole = Math.max(1, Math.round(ms / 1000))
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`
}

export class Pace {
  node = h("span", { class: "soft pace" })
  #timer = 0
  #begun = 0
  #part = ""
  #from = { at: 0, done: 0 }
  #until = Infinity
  #of
  #about = "about"

  /** @param {string} of names what has the remaining time, if not all of the work */
  constructor(of = "") { this.#of = of }

  start() {
    this.stop()
    this.#begun = performance.now()
    this.#part = ""
    this.#until = Infinity
    this.#timer = setInterval(() => this.#show(), TICK_MS)
  }

  stop() {
    clearInterval(this.#timer)
    this.node.textContent = ""
  }

  /** Notes the progress of a part of the work. @param {string} part @param {number} done @param {number} total @param {string} about "at most" if it may end earlier */
  note(part, done, total, about = "about") {
    this.#about = about
    const now = performance.now()
    if (part !== this.#part) {
      this.#part = part
      this.#from = { at: now, done }
      this.#until = Infinity
    } else if (done > this.#from.done && now - this.#from.at > SHOWN_FROM_MS) {
      this.#until = Math.min(this.#until, now + (now - this.#from.at) / (done - this.#from.done) * (total - done))
    }
  }

  #show() {
    const now = performance.now(), took = now - this.#begun
    if (took < SHOWN_FROM_MS) return
    const left = this.#until === Infinity ? "" : this.#until > now ? `, ${this.#about} ${seconds(this.#until - now)} left${this.#of}` : ", longer than expected"
    this.node.textContent = `${seconds(took)}${left}`
  }
}
