// Versions: earlier workspaces and saved files, compared with the current texts.
import { h, moment, refill } from "../base/dom.js"
import { differenceTable } from "./difference.js"

export class Shelf {
  #workspace
  #server
  #shell
  #list = h("ol", { class: "versions", "aria-label": "Versions, latest first" })
  #shown = h("div", { class: "version", role: "region", "aria-label": "The chosen version", "aria-live": "polite" })
  #dialog = h("dialog", { class: "shelf", "aria-labelledby": "versions-title" },
    h("h2", { id: "versions-title" }, "Versions"),
    h("p", { class: "soft" }, "Opening another workspace, replacing a schema or saving a file adds a version. The last 50 are available."),
    h("div", { class: "shelf-sides" }, this.#list, this.#shown),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => this.#dialog.close() }, "Close")))
  #chosen = ""

  /**
   * @param {HTMLElement} host
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/shell.js").Shell} shell shows notices and opens workspaces
   */
  constructor(host, workspace, server, shell) {
    this.#workspace = workspace
    this.#server = server
    this.#shell = shell
    host.append(this.#dialog)
  }

  async open() {
    const { shelf, error } = await this.#server.ask("shelf", {})
    if (!shelf) return error ? this.#shell.notice(error) : undefined
    this.#chosen = ""
    const rows = shelf.map(kept => h("li", {}, h("button", { type: "button", "data-key": kept.key, onclick: () => this.#choose(kept) },
      h("strong", {}, kept.name || "Untitled"), h("time", { class: "soft", datetime: kept.saved }, moment(kept.saved)))))
    this.#list.replaceChildren(...rows)
    this.#shown.replaceChildren(h("p", { class: "soft" }, rows.length
      ? "Choose one to compare it with the open documents."
      : "No versions yet. When you open another document, the previous one is saved here."))
    this.#dialog.showModal()
  }

  /** @param {Api.KeptWorkspace} kept */
  async #choose(kept) {
    this.#chosen = kept.key
    for (const button of this.#list.querySelectorAll("button")) button.setAttribute("aria-current", String(button.dataset.key === kept.key))
    const restore = h("button", { type: "button", class: "primary", "data-key": "restore", onclick: () => { this.#dialog.close(); this.#shell.open("open_shelved", { key: kept.key }) } }, "Restore")
    const head = () => h("div", { class: "version-head" }, h("h3", {}, kept.name || "Untitled"), restore, h("span", { class: "soft" }, "Your current documents are saved as a version."))
    this.#shown.replaceChildren(head(), h("p", { class: "soft" }, "Comparing…"))
    const answer = await this.#server.ask("compare_version", { key: kept.key, page: this.#workspace.page() })
    if (this.#chosen !== kept.key) return
    const words = { left: "This version", right: "Now" }
    refill(this.#shown, head(), ...(answer.schema && answer.prompt
      ? [differenceTable(answer.prompt, { title: "Prompt", ...words }), differenceTable(answer.schema, { title: "Schema", ...words })]
      : [h("p", {}, answer.error ?? "The studio's server does not answer.")]))
  }
}
