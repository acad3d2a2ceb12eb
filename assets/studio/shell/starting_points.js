// The dialog of new workspaces: starting points, or the user's own text.
import { h } from "../base/dom.js"

export class Starts {
  #workspace
  #server
  #opener
  #list = h("ul", { class: "starts" })
  #text = h("textarea", { id: "start-text", rows: "4", placeholder: "Paste a text that several prompts share.", "aria-label": "Your text", oninput: () => this.#allow() })
  #begins = h("button", { type: "submit", disabled: true }, "Start from this text")
  #about = h("p", { class: "soft" })
  #said = h("p", { class: "bad", role: "alert" })
  #dialog = h("dialog", { class: "names", "aria-labelledby": "starts-title" },
    h("h2", { id: "starts-title" }, "New workspace"), this.#about, this.#list,
    h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.#begin({ text: this.#text.value }) } },
      h("label", { for: "start-text" }, "From my text"), this.#text, this.#said,
      h("div", { class: "buttons" }, this.#begins, h("button", { type: "button", onclick: () => this.#dialog.close() }, "Cancel"))))

  /**
   * @param {HTMLElement} host
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("../documents/opener.js").Opener} opener
   */
  constructor(host, workspace, server, opener) {
    this.#workspace = workspace
    this.#server = server
    this.#opener = opener
    host.append(this.#dialog)
  }

  async open() {
    this.#about.textContent = `The open workspace, ${this.#workspace.name || "Untitled"}, is stored under File, Versions.`
    this.#said.textContent = ""
    this.#allow()
    this.#dialog.showModal()
    const { starts, error } = await this.#server.ask("starting_points", {})
    if (!starts) this.#said.textContent = error ?? "The studio's server does not answer. Try again when it is back."
    this.#list.replaceChildren(...(starts ?? []).map(({ name, title, about }) =>
      h("li", {}, h("button", { type: "button", onclick: () => this.#begin({ start: name }) }, h("strong", {}, title), h("span", { class: "soft" }, about)))))
    this.#list.querySelector("button")?.focus()
  }

  #allow() { this.#begins.disabled = !this.#text.value.trim() }

  /** @param {{start?: string, text?: string}} chosen */
  async #begin(chosen) {
    this.#dialog.close()
    await this.#opener.open("new_workspace", chosen)
    this.#text.value = ""
    const { view } = this.#workspace.editors.schema
    view.dispatch({ selection: { anchor: 0 } })
    view.focus()  // if its tab is open
  }
}
