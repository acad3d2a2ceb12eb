// The field of an argument: its value, and its tokens of those allowed.
import { debounce, h } from "../base/dom.js"

const SEND_MS = 180

export class ArgumentField {
  #server
  #length
  #input
  #counter
  /** @type {string | null} */
  #counted = null
  #typed = 0
  #sent = 0

  /**
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {{path: string, module: string, parameter: Api.Parameter, place: string}} of `place`: where the field is, for a unique id
   */
  constructor(workspace, server, { path, module, parameter: { name, length, default: fallback }, place }) {
    this.#server = server
    this.#length = length
    const id = `${place}/${path}/${name}`
    this.#input = h("input", {
      type: "text", id, placeholder: fallback || "empty", autocomplete: "off", spellcheck: "false",
      "data-key": `${path} ${name}`, "aria-label": `${module}: ${name}, at most ${length} tokens`,
    })
    this.#counter = h("span", { class: "counter" }, `… / ${length} tokens`)
    this.line = h("div", { class: "argument" }, h("label", { for: id }, name), this.#input, this.#counter)
    const send = debounce(SEND_MS, async () => {
      const typed = this.#typed
      await workspace.edit({ path, argument: name, value: this.#input.value })
      this.#sent = typed
    })
    this.#input.addEventListener("input", () => {
      this.#typed++
      this.#count(this.#input.value)
      send()
    })
  }

  /** Shows the argument of the prompt, unless another one is being typed. @param {string} value */
  show(value) {
    if (this.#typed === this.#sent && this.#input.value !== value) this.#input.value = value
    this.#count(this.#input.value)
  }

  /** @param {string} text */
  async #count(text) {
    if (this.#counted === text) return
    this.#counted = text
    const { tokens } = await this.#server.ask("count_tokens", { text })
    if (this.#counted !== text || tokens == null) { if (tokens == null) this.#counted = null; return }
    this.#counter.textContent = `${tokens} / ${this.#length} tokens`
    this.line.classList.toggle("over", tokens > this.#length)
    this.#input.setAttribute("aria-invalid", String(tokens > this.#length))
  }
}
