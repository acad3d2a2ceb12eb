// The open documents in the header: their name, their files, and whether they are saved.
import { clock, h } from "../base/dom.js"

const list = new Intl.ListFormat("en", { type: "unit" })

export class FileState {
  #workspace
  #name = h("span", { class: "document" })
  #draft = h("span", { class: "draft" })
  #files = h("span", { class: "written" })
  element = h("div", { class: "workspace-name" }, this.#name, h("span", { class: "soft saved", role: "status" }, this.#draft, this.#files))

  /** @param {import("./workspace.js").Workspace} workspace */
  constructor(workspace) {
    this.#workspace = workspace
    workspace.on("opened", () => this.#say("Draft saved"))
    workspace.on("typing", () => this.#say("edited"))
    workspace.on("saving", () => this.#say("saving the draft…"))
    workspace.on("saved", at => this.#say(`Draft saved ${clock(at)}`))
    workspace.on("unsaved", () => this.#say("Draft not saved"))
    workspace.on("conflict", () => this.#say("Draft not saved"))
    workspace.on("written", () => this.#show())
  }

  /** @param {string} draft */
  #say(draft) {
    this.#draft.textContent = draft
    this.#show()
  }

  #show() {
    const workspace = this.#workspace, kinds = workspace.filed(), missing = workspace.unwritten()
    const there = kinds.filter(kind => !missing.includes(kind))
    const files = (/** @type {boolean} */ written) => there.filter(kind => workspace.wrote(kind) === written).map(kind => workspace.fileOf(kind))
    const same = files(false), written = files(true)
    this.#name.textContent = workspace.name || "Untitled"  // undo may restore another document
    this.#files.textContent = this.#files.title = [
      ...missing.map(kind => `${workspace.fileOf(kind)} not saved`),
      ...(same.length ? [`${list.format(same)} ${same.length > 1 ? "have" : "has"} the same text`] : []),
      ...(written.length ? [`saved to ${list.format(written)}`] : []),
    ].map(words => `· ${words}`).join(" ")
    this.#files.dataset.mood = missing.length ? "warn" : ""
  }
}
