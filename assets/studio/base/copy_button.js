// A button that copies a text and confirms it.
import { h } from "./dom.js"

const SAID_MS = 2000

export class Copier {
  #said = 0
  /** @type {HTMLButtonElement} */
  button
  /** The button and its status; screen readers ignore live text within buttons. */
  node

  /** @param {string} label what it copies, for screen readers @param {() => string} text */
  constructor(label, text) {
    const words = h("span", { "aria-hidden": "true" }, "Copy"), told = h("span", { class: "sr", role: "status" })
    this.button = h("button", { type: "button", class: "quiet copy", "aria-label": label, onclick: async () => {
      const done = await copied(text())
      words.textContent = done ? "Copied ✓" : "Not copied"
      told.textContent = done ? "Copied" : "The browser blocked copying: select the text and copy it."
      clearTimeout(this.#said)
      this.#said = setTimeout(() => { words.textContent = "Copy"; told.textContent = "" }, SAID_MS)
    } }, words)
    this.node = h("span", { class: "copier" }, this.button, told)
  }
}

/** Copies a text; returns whether the browser allowed it. @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return false
  }
}
