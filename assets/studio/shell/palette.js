// The command palette: finds commands by a few letters.
import { h } from "../base/dom.js"
import { pressed } from "./shortcuts.js"

const MOST = 60

/** @typedef {import("./commands.js").Command} Command */

/**
 * Rates how well letters match a text in order: higher is better, -1 if they do not.
 * @param {string} letters @param {string} text both in lower case
 */
export function likeness(letters, text) {
  let score = 0, at = -1
  for (const letter of letters) {
    const next = text.indexOf(letter, at + 1)
    if (next < 0) return -1
    const begins = next === 0 || /[^\p{L}\p{N}]/u.test(text[next - 1])
    score += next === at + 1 ? 3 : begins ? 2 : 0
    at = next
  }
  return score - text.length / 1000
}

/** The commands that match, best first; all in order if there are no words. @param {Command[]} commands @param {string} words */
export function found(commands, words) {
  const letters = words.toLowerCase().replace(/\s+/g, "")
  if (!letters) return commands
  const rated = commands.map(command => {
    const named = likeness(letters, command.title.toLowerCase()), other = likeness(letters, `${command.group ?? ""} ${command.title} ${command.words ?? ""}`.toLowerCase())
    return { command, score: Math.max(named < 0 ? -1 : named + 1, other) }
  })
  return rated.filter(({ score }) => score >= 0).sort((a, b) => b.score - a.score).map(({ command }) => command)
}

export class Palette {
  #commands
  #field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", "aria-label": "Find a command", placeholder: "What do you want to do?", autocomplete: "off", spellcheck: "false" })
  #list = h("ul", { id: "palette-list", role: "listbox", "aria-label": "Commands" })
  #none = h("p", { class: "soft", role: "status" })
  #dialog = h("dialog", { class: "palette", "aria-label": "Commands" }, this.#field, this.#list, this.#none)
  /** @type {Command[]} */
  #shown = []
  #at = 0

  /** @param {HTMLElement} host @param {import("./commands.js").Commands} commands */
  constructor(host, commands) {
    this.#commands = commands
    host.append(this.#dialog)
    this.#field.addEventListener("input", () => this.#find())
    this.#dialog.addEventListener("keydown", event => this.#key(event))
    this.#dialog.addEventListener("click", event => { if (event.target === this.#dialog) this.#dialog.close() })
    addEventListener("keydown", event => {
      if (!pressed(event, "commands")) return
      event.preventDefault()
      event.stopPropagation()
      if (this.#dialog.open) this.#dialog.close()
      else this.open()
    }, { capture: true })
  }

  open() {
    if (document.querySelector("dialog[open]")) return
    this.#field.value = ""
    this.#dialog.showModal()
    this.#find()
  }

  #find() {
    const all = found(this.#commands.available(), this.#field.value.trim())
    this.#shown = all.slice(0, MOST)
    this.#list.replaceChildren(...this.#shown.map((command, index) => h("li", { role: "option", id: `palette-${index}`, onclick: () => this.#do(command), onpointermove: () => this.#point(index, false) },
      h("span", { class: "palette-group" }, command.group ?? ""), h("span", { class: "palette-title" }, command.title), command.keys ? h("kbd", {}, command.keys) : null)))
    this.#none.textContent = this.#shown.length ? "" : "No matching command."
    this.#point(0)
  }

  /** @param {number} index */
  #point(index, scroll = true) {
    this.#list.children[this.#at]?.removeAttribute("aria-selected")
    this.#at = Math.max(0, Math.min(index, this.#shown.length - 1))
    const option = this.#list.children[this.#at]
    option?.setAttribute("aria-selected", "true")
    if (scroll) option?.scrollIntoView({ block: "nearest" })
    this.#field.setAttribute("aria-activedescendant", option ? option.id : "")
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const last = this.#shown.length - 1
    const to = { ArrowDown: this.#at === last ? 0 : this.#at + 1, ArrowUp: this.#at === 0 ? last : this.#at - 1, PageDown: this.#at + 8, PageUp: this.#at - 8 }[event.key]
    if (to !== undefined) { event.preventDefault(); this.#point(to) }
    if (event.key === "Tab") event.preventDefault()
    if (event.key !== "Enter") return
    event.preventDefault()
    const command = this.#shown[this.#at]
    if (command) this.#do(command)
  }

  // The focus returns to its first place, so that a dialog of the command can restore it.
  /** @param {Command} command */
  #do(command) {
    this.#dialog.close()
    command.run()
  }
}
