// A dialog to choose between two versions of a document, with their differences.
import { h } from "../base/dom.js"
import { differenceTable } from "./difference.js"

/**
 * @typedef {{title: string, difference?: Api.TextDifference, message?: string}} Compared one document; `message`: why it cannot be compared
 * @typedef {{
 *   title: string, sentence: string, left: string, right: string, compare: () => Promise<Compared[] | string>,
 *   ways: {words: string, about: string, action: () => unknown}[],
 * }} Question `compare` gives a sentence where it fails
 */

export class Choice {
  #dialog = h("dialog", { class: "choice", "aria-labelledby": "choice-title" })
  /** @type {Question | null} */
  #asked = null

  /** @param {HTMLElement} host */
  constructor(host) { host.append(this.#dialog) }

  /** Opens the dialog; Escape cancels. @param {Question} question */
  async ask(question) {
    this.#asked = question
    const { title, sentence, left, right, ways } = question
    const shown = h("div", { class: "compared", "aria-live": "polite" }, h("p", { class: "soft" }, "Comparing…"))
    this.#dialog.replaceChildren(
      h("h2", { id: "choice-title" }, title), h("p", {}, sentence), shown,
      h("ul", { class: "ways" }, ...ways.map(({ words, about, action }) => h("li", {},
        h("button", { type: "button", onclick: () => { this.#dialog.close(); action() } }, words), h("span", { class: "soft" }, about))),
      h("li", {}, h("button", { type: "button", autofocus: true, onclick: () => this.#dialog.close() }, "Decide later"), h("span", { class: "soft" }, "Nothing changes."))))
    if (!this.#dialog.open) this.#dialog.showModal()
    const found = await question.compare()
    if (this.#asked !== question) return
    shown.replaceChildren(...(typeof found === "string" ? [h("p", {}, found)] : found.map(one => one.difference
      ? differenceTable(one.difference, { title: one.title, left, right })
      : h("section", { class: "difference" }, h("h3", {}, one.title), h("p", {}, one.message ?? "")))))
  }
}
