// The first steps: four hints next to their targets, each shown once. They never take the focus or cover their targets.
import { h } from "../base/dom.js"
import { forgotten, remembered } from "../base/layout_settings.js"

const KEY = "first-steps", GAP = 12, EDGE = 8, STEP = 8
const FREE = ".tab-bar, .page-line p, .ratio, .ratio-words span, .run-bar"  // must stay uncovered

/** `after`: the number of runs before the step. @type {{at: string, after: number, title: string, words: string}[]} */
const STEPS = [
  { at: ".picker", after: 0, title: "Pick", words: "These are the modules of the schema. Tick the modules to include. Your choice is written into the prompt." },
  { at: "#run", after: 0, title: "Run", words: "Run answers the prompt twice: once from cached modules, once without. Missing modules are computed first, once." },
  { at: ".picker", after: 1, title: "Run again", words: "Everything is stored now. Pick another module here, or none, and run again: only new text is computed." },
  { at: ".comparison", after: 2, title: "Read the difference", words: "How much faster the first token was, and whether caching changed the answer: first token, probabilities, words." },
]

export class Coach {
  #step
  #runs = 0  // finished runs on this page
  #card = h("aside", { class: "coach", role: "note", "aria-label": "First steps", hidden: true })
  #follow = () => this.#place()

  /** @param {HTMLElement} host @param {import("./shell.js").Shell} shell */
  constructor(host, shell) {
    this.#step = Number(remembered(KEY) ?? 0)
    host.append(this.#card)
    shell.on("shown", () => this.#show())
    addEventListener("resize", this.#follow)
    addEventListener("scroll", this.#follow, { capture: true, passive: true })
    this.#card.addEventListener("keydown", event => {
      if (event.key !== "Escape" || event.defaultPrevented) return
      event.preventDefault()
      this.#go(STEPS.length)
    })
  }

  /** Shows the first unseen step. */
  begin() { this.#show() }

  /** Hides hints during a run. */
  running() {
    this.#card.hidden = true
    this.#frame(null)
  }

  /** Shows hints after a run. */
  ran() {
    this.#runs++
    const next = STEPS.findIndex(({ after }) => after === this.#runs)
    if (this.#step < next) this.#go(next)
    else this.#show()
  }

  /** Restarts the steps. */
  again() {
    forgotten(KEY)
    this.#step = this.#runs = 0
    location.hash = "#/author"
    this.#show()
    this.#card.querySelector("button")?.focus()
  }

  /** @param {number} step */
  #go(step) {
    const inside = this.#card.contains(document.activeElement)
    this.#step = step
    remembered(KEY, String(step))
    this.#show()
    if (!inside) return
    const next = this.#card.hidden ? document.querySelector("#run") : this.#card.querySelector("button")
    if (next instanceof HTMLElement) next.focus()
  }

  // Steps about runs wait for a run.
  #due() {
    const step = STEPS[this.#step]
    if (!step || document.documentElement.dataset.page !== "author") return null
    return this.#runs >= step.after ? step : null
  }

  #show() {
    const step = this.#due()
    this.#card.hidden = !step
    this.#frame(step && document.querySelector(step.at))
    if (!step) return
    const last = this.#step === STEPS.length - 1
    this.#card.replaceChildren(
      h("p", { class: "coach-title" }, h("strong", {}, step.title), h("span", { class: "soft" }, `${this.#step + 1} of ${STEPS.length}`)),
      h("p", {}, step.words),
      h("p", { class: "coach-buttons" },
        h("button", { type: "button", onclick: () => this.#go(this.#step + 1) }, last ? "Done" : "Got it"),
        last ? null : h("button", { type: "button", class: "quiet", onclick: () => this.#go(STEPS.length) }, "Skip all")))
    this.#place()
  }

  /** Frames a hint's target. @param {Element | null} target */
  #frame(target) {
    document.querySelector("[data-coached]")?.removeAttribute("data-coached")
    target?.setAttribute("data-coached", "")
  }

  // Next to the target, on the first side with room, or the side with the most. Along that side the hint avoids elements that must stay uncovered.
  #place() {
    const step = this.#due(), target = step && document.querySelector(step.at)
    if (!target || this.#card.hidden) return
    const { left, right, top, bottom, width } = target.getBoundingClientRect(), { offsetWidth: wide, offsetHeight: high } = this.#card
    const within = (/** @type {number} */ value, /** @type {number} */ size, /** @type {number} */ whole) => Math.max(EDGE, Math.min(value, whole - size - EDGE))
    const x = within(left + width / 2 - wide / 2, wide, innerWidth), y = within(top, high, innerHeight)
    const aside = { room: innerWidth - right - wide, x: right + GAP, y }, below = { room: innerHeight - bottom - high, x, y: bottom + GAP }
    const places = [
      ...(target.matches("button") ? [below, aside] : [aside, below]),  // there are other buttons to its sides
      { room: left - wide, x: left - wide - GAP, y }, { room: top - high, x, y: top - high - GAP },
    ]
    const best = places.find(({ room }) => room >= GAP + EDGE) ?? places.reduce((most, next) => next.room > most.room ? next : most)
    const kept = [...document.querySelectorAll(FREE)].map(node => node.getBoundingClientRect())
    const upright = best.x >= right || best.x + wide <= left
    const steps = [...Array(Math.ceil(innerWidth / STEP)).keys()].flatMap(at => [at * STEP, -at * STEP])
    const ways = [steps.map(by => ({ x: within(best.x + by, wide, innerWidth), y: best.y })), steps.map(by => ({ x: best.x, y: within(best.y + Math.max(0, by), high, innerHeight) }))]
    const moved = (upright ? ways.reverse() : ways).flat()
    const shared = (/** @type {number[]} */ [from, size], /** @type {number} */ least, /** @type {number} */ most) => Math.max(0, Math.min(from + size, most) - Math.max(from, least))
    const covered = (/** @type {{x: number, y: number}} */ to) => kept.reduce((sum, box) => sum + shared([to.x, wide], box.left, box.right) * shared([to.y, high], box.top, box.bottom), 0)
    const free = moved.reduce((least, next) => covered(next) < covered(least) ? next : least)
    this.#card.style.translate = `${Math.round(free.x)}px ${Math.round(free.y)}px`
  }
}
