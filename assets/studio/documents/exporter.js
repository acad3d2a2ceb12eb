// The export dialog: the schema or the prompt in another form, to read, copy and download.
import { h } from "../base/dom.js"
import { download } from "../base/download.js"

const FORMS = [
  ["pml", "PML: the schema in one file"],
  ["python", "Python: the schema as a program"],
  ["openai", "OpenAI: messages of the prompt"],
  ["decisions", "OpenAI Decisions: the prompt and its questions"],
  ["anthropic", "Anthropic: messages with cache breakpoints"],
  ["jinja", "Jinja: the schema as a template"],
  ["text", "Plain text of the prompt"],
]

export class Exporter {
  #workspace
  #server
  /** @type {Api.Exported | null} */
  #answer = null
  #form = h("select", { id: "export-form" }, ...FORMS.map(([value, words]) => h("option", { value }, words)))
  #text = h("pre", { tabindex: "0", "aria-label": "Exported text" })
  #said = h("p", { class: "soft", role: "status" })
  #notes = h("ul", { class: "soft", "aria-label": "Notes" })
  #copy = h("button", { type: "button", onclick: () => this.#copyText() }, "Copy")
  #download = h("button", { type: "button", class: "primary", onclick: () => this.#save() }, "Download")
  #dialog

  /**
   * @param {HTMLElement} host
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   */
  constructor(host, workspace, server) {
    this.#workspace = workspace
    this.#server = server
    const close = h("button", { type: "button", onclick: () => this.#dialog.close() }, "Close")
    this.#dialog = h("dialog", { class: "export", "aria-labelledby": "export-title" },
      h("h2", { id: "export-title" }, "Export"),
      h("label", { for: "export-form" }, "Format"), this.#form, this.#notes, this.#text, this.#said,
      h("div", { class: "buttons" }, this.#download, this.#copy, close))
    this.#form.addEventListener("change", () => this.#show())
    host.append(this.#dialog)
  }

  open() {
    this.#dialog.showModal()
    return this.#show()
  }

  async #show() {
    const form = this.#form.value
    this.#fill(null, "working…")
    const answer = await this.#server.ask("export_as", { form, origin: this.#workspace.origin, ...this.#workspace.texts() })
    if (form !== this.#form.value) return
    if (answer.away) return this.#fill(null, "The studio's server does not answer. Try again when it is back.")
    if (answer.error != null) this.#fill(null, answer.error)
    else this.#fill(answer, "")
  }

  /** @param {Api.Exported | null} answer @param {string} sentence */
  #fill(answer, sentence) {
    this.#answer = answer
    this.#text.textContent = answer?.text ?? ""
    this.#text.hidden = !answer
    this.#notes.replaceChildren(...(answer?.notes ?? []).map(note => h("li", {}, note)))
    this.#said.textContent = sentence
    this.#copy.disabled = this.#download.disabled = !answer
  }

  async #copyText() {
    try {
      await navigator.clipboard.writeText(this.#text.textContent)
      this.#said.textContent = "Copied."
    } catch {
      getSelection()?.selectAllChildren(this.#text)
      this.#said.textContent = "This browser blocks copying. The text is selected: press Ctrl C."
    }
  }

  #save() {
    if (!this.#answer) return
    download(this.#answer.filename, this.#answer.text, this.#answer.media_type)
    this.#said.textContent = `Downloaded as ${this.#answer.filename}.`
  }
}
