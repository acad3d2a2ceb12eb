// The rating of an answer: good or bad, and a note.
import { h } from "../base/dom.js"
import { icon } from "../base/icons.js"
import { AWAY } from "../base/jobs.js"

/** @typedef {"cached" | "uncached"} Side */

/** @type {Side[]} */
const SIDES = ["cached", "uncached"]
const THUMBS = { up: "Good", down: "Bad" }

/** The ratings of a run in words; "" without any. @param {Api.Ratings} ratings */
export function ratingWords(ratings) {
  return SIDES.flatMap(side => ratings[side].thumb || ratings[side].note ? [`${side}: ${[ratings[side].thumb && THUMBS[ratings[side].thumb].toLowerCase(), ratings[side].note].filter(Boolean).join(", ")}`] : []).join("; ")
}

/** The thumbs of a run, for a table. @param {Api.Ratings} ratings */
export function thumbs(ratings) {
  const given = [ratings.cached.thumb, ratings.uncached.thumb].flatMap(thumb => thumb ? [h("span", { "data-thumb": thumb }, icon("thumb"))] : [])
  const words = ratingWords(ratings)
  return given.length ? h("span", { class: "thumbs", title: words }, ...given, h("span", { class: "sr" }, words)) : words ? h("span", { title: words }, "note") : "–"
}

/** Buttons and a note for one answer. */
export class Rating {
  #server
  #side
  #id = ""
  /** @type {Api.Rating} */
  #rating = { thumb: "", note: "" }
  #said = h("span", { class: "soft", role: "status" })
  #buttons
  #note

  /**
   * @param {import("../base/server.js").Server} server
   * @param {Side} side
   * @param {string} label the answer, for screen readers
   * @param {(run: Api.RunSummary) => void} [changed]
   */
  constructor(server, side, label, changed) {
    this.#server = server
    this.#side = side
    this.changed = changed
    this.#buttons = /** @type {("up" | "down")[]} */ (["up", "down"]).map(thumb => h("button", {
      type: "button", class: "quiet thumb", "data-thumb": thumb, "aria-pressed": "false", title: `${THUMBS[thumb]} answer`, "aria-label": `${THUMBS[thumb]}: ${label}`,
      onclick: () => this.#rate({ thumb: this.#rating.thumb === thumb ? "" : thumb }),
    }, icon("thumb")))
    const note = this.#note = h("input", {
      type: "text", class: "in-place", maxlength: 4000, autocomplete: "off", placeholder: "Add a note on this answer", "aria-label": `Note: ${label}`,
      onchange: () => { if (note.value !== this.#rating.note) this.#rate({ note: note.value }) },
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter") note.dispatchEvent(new Event("change"))
        if (event.key === "Escape") { note.value = this.#rating.note; event.stopPropagation() }
      },
    })
    this.node = h("div", { class: "rating", role: "group", "aria-label": `Rating: ${label}` }, ...this.#buttons, this.#note, this.#said)
  }

  /** Shows the rating of a run's answer. @param {string} id @param {Api.Rating} rating */
  show(id, rating) {
    if (id !== this.#id) this.#said.textContent = ""
    this.#id = id
    this.#rating = rating
    for (const button of this.#buttons) button.setAttribute("aria-pressed", String(button.dataset.thumb === rating.thumb))
    if (document.activeElement !== this.#note) this.#note.value = rating.note
    this.#note.title = rating.note
  }

  /** @param {Partial<Api.Rating>} rating */
  async #rate(rating) {
    const id = this.#id, { run, error } = await this.#server.ask("rate_answer", { id, side: this.#side, ...rating })
    if (id !== this.#id) return
    this.#said.textContent = run ? "Saved" : `Not saved. ${error ?? AWAY}`
    if (!run) return
    this.show(id, run.ratings[this.#side])
    this.changed?.(run)
  }
}

/** The ratings below both answers of the Author page, and the comparison with another model, once their run is stored. */
export class Ratings {
  #server
  #compare = h("button", { type: "button", onclick: () => this.compare(this.id) }, "Compare with another model…")
  #more = h("div", { class: "after-run" }, this.#compare)
  /** The stored run; "" if there is none. */
  id = ""
  /** @type {Record<Side, Rating>} */
  #sides

  /** @param {HTMLElement} answers @param {import("../base/server.js").Server} server @param {(id: string) => unknown} compare */
  constructor(answers, server, compare) {
    this.#server = server
    this.compare = compare
    answers.after(this.#more)
    this.#sides = { cached: new Rating(server, "cached", "cached answer"), uncached: new Rating(server, "uncached", "uncached answer") }
    const panes = answers.querySelectorAll(".pane")
    Object.values(this.#sides).forEach(({ node }, index) => { panes[index]?.append(node) })
    this.#offer("", [])
  }

  /** @param {Api.RunFrame} frame */
  async show({ kept, sides }) {
    const known = kept === this.id
    this.id = kept
    this.#offer(kept, SIDES.filter(side => sides[side].text))
    if (!kept || known) return
    const { run } = await this.#server.ask("rate_answer", { id: kept, side: "cached" })
    if (run && kept === this.id) for (const side of SIDES) this.#sides[side].show(kept, run.ratings[side])
  }

  // Before a run they are invisible, so that nothing moves when it ends.
  /** @param {string} kept @param {Side[]} answered */
  #offer(kept, answered) {
    this.#more.toggleAttribute("data-off", !kept)
    for (const side of SIDES) this.#sides[side].node.toggleAttribute("data-off", !kept || !answered.includes(side))
  }
}
