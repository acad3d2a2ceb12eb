// The influence of each module on the answer, and whether its measurement is up to date.
import { originOf } from "./staleness.js"
import { Emitter } from "../base/events.js"

/** Settings that change what the cached side reads. @param {string} name */
export const decidesReading = name => ["reuse", "max_kl", "scope", "placement", "repair"].includes(name)

/** @extends {Emitter<{changed: void}>} */
export class Owing extends Emitter {
  #belonging
  /** @type {import("./staleness.js").Origin | null} */
  #origin = null
  /** @type {Map<string, Api.ModuleFidelity>} */
  #found = new Map()

  /** @param {import("./staleness.js").Belonging} belonging @param {import("./fidelity.js").Explanation} explanation */
  constructor(belonging, explanation) {
    super()
    this.#belonging = belonging
    explanation.on("found", measured => {
      this.#origin = originOf(measured)
      this.#found = new Map(measured.found.modules.map(one => [one.path, one]))
      this.emit("changed")
    })
    belonging.on("changed", () => { if (this.#origin) this.emit("changed") })
  }

  /** The influence by path for the open texts, settings and model; fixed text has the path "". */
  get modules() { return this.#origin && !this.#belonging.differences(this.#origin).length ? this.#found : new Map() }
}
