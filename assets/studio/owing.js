// What the answer owes to each module, and whether that was measured of what there is now.
import { originOf } from "./belonging.js"
import { Emitter } from "./events.js"

/** Settings that decide what the cached side reads. @param {string} name */
export const decidesReading = name => ["reuse", "max_kl", "scope", "placement", "repair"].includes(name)

/** @extends {Emitter<{changed: void}>} */
export class Owing extends Emitter {
  #belonging
  /** @type {import("./belonging.js").Origin | null} */
  #origin = null
  /** @type {Map<string, Api.ModuleFidelity>} */
  #found = new Map()

  /** @param {import("./belonging.js").Belonging} belonging @param {import("./fidelity.js").Explanation} explanation */
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

  /** What was measured of the open texts, settings and model, by path; fixed text has the path "". */
  get modules() { return this.#origin && !this.#belonging.differences(this.#origin).length ? this.#found : new Map() }
}
