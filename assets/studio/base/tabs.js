// Tabs: one panel, or two side by side if there is room. The choice is saved.
import { h } from "./dom.js"
import { Emitter } from "./events.js"
import { remembered } from "./layout_settings.js"
import { separator } from "./splits.js"

/** @typedef {{title: string, tab: HTMLButtonElement, mark: HTMLElement, panel: HTMLElement}} Tab */

/**
 * "shown": a panel.
 * @extends {Emitter<{shown: string}>}
 */
export class Tabs extends Emitter {
  /** @type {Map<string, Tab>} */
  #tabs = new Map()
  #list
  #stage = h("div", { class: "tab-stage" })
  #name
  #pair
  #chosen
  #besides
  #room = false
  #toggle = h("button", { type: "button", class: "quiet beside", hidden: true, onclick: () => this.#turn() }, "Side by side")

  /**
   * @param {string} name key of the saved choice
   * @param {string} label of all panels
   * @param {{pair?: [string, string], room?: number, beside?: HTMLElement}} options `pair`: two panels to show side by side from `room` pixels on; `beside`: right of the tabs
   */
  constructor(name, label, { pair, room = Infinity, beside } = {}) {
    super()
    this.#name = name
    this.#pair = pair
    this.#chosen = remembered(`${name}-tab`) ?? ""
    this.#besides = remembered(`${name}-beside`) !== "no"
    this.#list = h("div", { class: "tab-list", role: "tablist", "aria-label": label })
    this.#list.addEventListener("keydown", event => this.#key(event))
    this.node = h("div", { class: "tabs" }, h("div", { class: "tab-bar" }, this.#list, beside ?? h("span", { class: "grow" }), this.#toggle), this.#stage)
    if (pair) this.#stage.append(separator(this.#stage, { name: `${name}-pair`, label: "Width of the left panel", least: 25, most: 75, usual: 50 }))
    if (pair) new ResizeObserver(([{ contentRect }]) => this.#fit(contentRect.width >= room)).observe(this.node)
  }

  /** @param {string} name @param {string} title @param {HTMLElement} content @param {string} [short] short title */
  add(name, title, content, short) {
    const mark = h("span", { class: "tab-mark" }), id = `${this.#name}-${name}`
    const tab = h("button", { type: "button", role: "tab", id: `${id}-tab`, "aria-controls": `${id}-panel`, onclick: () => this.show(name) }, ...(short ? [h("span", { class: "tab-long" }, title), h("span", { class: "tab-short", "aria-hidden": "true" }, short)] : [title]), mark)
    const panel = h("div", { class: "tab-panel", role: "tabpanel", id: `${id}-panel`, "aria-labelledby": `${id}-tab` }, content)
    this.#tabs.set(name, { title, tab, mark, panel })
    this.#list.append(tab)
    this.#stage.append(panel)
    this.#paint()
  }

  /** The current panel's name. */
  get shown() { return this.#tabs.has(this.#chosen) ? this.#chosen : [...this.#tabs.keys()][0] }

  /** @param {string} name */
  show(name) {
    if (!this.#tabs.has(name)) return
    const changed = name !== this.shown
    this.#chosen = name
    remembered(`${this.#name}-tab`, name)
    this.#paint()
    if (changed) this.emit("shown", name)
  }

  /** Adds a few words to a tab, such as its number of errors. @param {string} name @param {string} words @param {string} [mood] */
  mark(name, words, mood = "") {
    const tab = this.#tabs.get(name)
    if (!tab) return
    tab.mark.textContent = words
    tab.mark.dataset.mood = mood
  }

  /** @param {boolean} room */
  #fit(room) {
    if (room === this.#room) return
    this.#room = room
    this.#paint()
  }

  #turn() {
    this.#besides = !this.#besides
    remembered(`${this.#name}-beside`, this.#besides ? "yes" : "no")
    this.#paint()
  }

  #paint() {
    const shown = this.shown, both = this.#room && this.#besides && this.#pair?.includes(shown)
    this.#toggle.hidden = !this.#room || !this.#pair?.includes(shown)
    this.#toggle.setAttribute("aria-pressed", String(this.#besides))
    this.#stage.toggleAttribute("data-beside", both)
    for (const [name, { tab, panel }] of this.#tabs) {
      const chosen = name === shown
      tab.setAttribute("aria-selected", String(chosen))
      tab.tabIndex = chosen ? 0 : -1
      panel.toggleAttribute("data-shown", chosen || (both && this.#pair?.includes(name)))
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const names = [...this.#tabs.keys()], at = names.indexOf(this.shown)
    const next = { ArrowRight: (at + 1) % names.length, ArrowLeft: (at - 1 + names.length) % names.length, Home: 0, End: names.length - 1 }[event.key]
    if (next === undefined) return
    event.preventDefault()
    this.show(names[next])
    this.#tabs.get(names[next])?.tab.focus()
  }
}
