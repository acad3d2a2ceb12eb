// The choice of what Run answers: both sides or one of them. “Encode all” is an action, not a choice.
import { h } from "../base/dom.js"
import { Emitter } from "../base/events.js"

const KEPT = "prompt-cache-studio.run"

/** @typedef {"both" | "cached" | "uncached"} Choice */
/** @typedef {{title: string, about: string}} Words */

/** @type {Record<Choice, Words & {button: string}>} */
export const CHOICES = {
  both: { title: "Both sides", button: "Run", about: "Cached and uncached, timed in turns" },
  cached: { title: "Cached only", button: "Run cached", about: "The cached answer; missing modules are encoded first" },
  uncached: { title: "Uncached only", button: "Run uncached", about: "The answer with every token computed" },
}
export const ENCODE = { title: "Encode all", about: "Computes and stores every module of the schema; no answer" }

/**
 * "chosen": a choice to run at once; "encode": encode all modules.
 * @extends {Emitter<{chosen: Choice, encode: void}>}
 */
export class RunMenu extends Emitter {
  #menu = h("div", { class: "menu run-menu", role: "menu", id: "run-menu", hidden: true, "aria-label": "What Run does" })
  #button = h("button", { type: "button", class: "primary run-more", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": "run-menu", "aria-label": "What Run does", title: "What Run does" }, "▾")
  node = h("div", { class: "menu-anchor" }, this.#button, this.#menu)
  #disabled = false
  /** @type {Choice} */
  choice = "both"

  constructor() {
    super()
    const kept = localStorage.getItem(KEPT)
    if (kept && Object.hasOwn(CHOICES, kept)) this.choice = /** @type {Choice} */ (kept)
    this.#button.addEventListener("click", () => this.#open(this.#menu.hidden === true))
    this.#button.addEventListener("keydown", event => { if (event.key === "ArrowDown") { event.preventDefault(); this.#open(true) } })
    this.#menu.addEventListener("focusout", event => { if (!(event.relatedTarget instanceof Node && this.node.contains(event.relatedTarget))) this.#open(false) })
    this.#menu.addEventListener("keydown", event => {
      const items = [...this.#menu.querySelectorAll("button")], at = items.findIndex(item => item === document.activeElement)
      const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0
      if (step) { event.preventDefault(); items.at((at + step) % items.length)?.focus() }
      if (event.key === "Escape") { event.preventDefault(); this.#open(false); this.#button.focus() }
    })
  }

  /** @param {boolean} disabled during a run */
  set disabled(disabled) {
    this.#disabled = disabled
    this.#button.setAttribute("aria-disabled", String(disabled))
    if (disabled) this.#open(false)
  }

  /** @param {Choice} choice */
  choose(choice) {
    this.choice = choice
    localStorage.setItem(KEPT, choice)
    this.emit("chosen", choice)
  }

  /** @param {boolean} open */
  #open(open) {
    if (open && this.#disabled) return
    const item = (/** @type {Words} */ { title, about }, /** @type {Record<string, string>} */ role, /** @type {() => void} */ act) =>
      h("button", { type: "button", ...role, onclick: () => { this.#open(false); this.#button.focus(); act() } },
        h("span", { class: "run-choice" }, h("strong", {}, title), h("span", { class: "soft" }, about)))
    if (open) this.#menu.replaceChildren(...Object.entries(CHOICES).map(([name, words]) => {
      const choice = /** @type {Choice} */ (name)
      return item(words, { role: "menuitemradio", "aria-checked": String(choice === this.choice) }, () => this.choose(choice))
    }), h("hr", { role: "separator" }), item(ENCODE, { role: "menuitem" }, () => this.emit("encode")))
    this.#menu.hidden = !open
    this.#button.setAttribute("aria-expanded", String(open))
    if (open) (/** @type {HTMLElement | null} */ (this.#menu.querySelector("[aria-checked=true]")))?.focus()
  }
}
