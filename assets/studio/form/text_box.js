// A text box of the form: it grows with its text, and sends it soon after typing ends.
import { debounce, h } from "../base/dom.js"

const SEND_MS = 300
const GROWS = CSS.supports("field-sizing", "content")
const SLOT = /\{\{[^\s{}]+\}\}/g

export class TextBox {
  #send
  #known = ""
  #pending = false
  #soon

  /**
   * @param {{label: string, key: string, placeholder?: string}} words
   * @param {(text: string) => Promise<unknown>} send
   */
  constructor({ label, key, placeholder = "" }, send) {
    this.#send = send
    this.#soon = debounce(SEND_MS, () => { if (this.#complete()) this.flush() })
    this.node = h("textarea", {
      class: "form-text", "aria-label": label, "data-key": key, placeholder, spellcheck: "true", rows: 1,
      oninput: () => { this.#pending = true; this.#grow(); this.#soon() },
      onblur: async () => { await this.flush(); if (!this.#pending) this.#put(this.#known) },
    })
  }

  /** Whether the text can be sent now: it is not empty, and no parameter of it is half written. */
  #complete() {
    const rest = this.node.value.replace(SLOT, "")
    return this.node.value.trim() !== "" && !(this.#known.match(SLOT) && /\{\{|\}\}/.test(rest))
  }

  /** Writes words at the caret, apart from other words, and sends the text. @param {string} words */
  insert(words) {
    const { selectionStart, selectionEnd, value } = this.node
    const before = /[^\s"'([{]$/.test(value.slice(0, selectionStart)) ? " " : "", after = /^[\p{L}\p{N}{]/u.test(value.slice(selectionEnd)) ? " " : ""
    this.node.setRangeText(before + words + after, selectionStart, selectionEnd, "end")
    this.#pending = true
    return this.flush()
  }

  /** Sends the text now if it has changed. */
  async flush() {
    this.#soon.cancel()
    if (!this.#pending) return
    this.#pending = false
    if (this.node.value !== this.#known) await this.#send(this.node.value)
  }

  /** Shows the text of the document. A box with the focus keeps what is typed in it. @param {string} text @param {boolean} own whether the box has sent it */
  show(text, own) {
    const other = text !== this.#known
    this.#known = text
    if (this.#pending || (own && document.activeElement === this.node)) return
    if (other || document.activeElement !== this.node) this.#put(text)
  }

  /** @param {string} text */
  #put(text) {
    if (this.node.value !== text) {
      const caret = this.node.selectionStart
      this.node.value = text
      if (document.activeElement === this.node) this.node.setSelectionRange(caret, caret)
    }
    this.#grow()
  }

  #grow() {
    if (GROWS) return
    this.node.style.height = "auto"
    this.node.style.height = `${this.node.scrollHeight + 2}px`
  }
}
