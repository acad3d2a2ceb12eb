// The message box of a chat. What is typed survives a reload, an error, and the edit of an earlier question.
import { h } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { forgotten, remembered } from "../base/layout_settings.js"

const KEPT = "chat-draft"

/** The message that was not sent. @returns {{text?: string, editing?: string, aside?: string}} */
function draft() {
  try { return JSON.parse(remembered(KEPT) ?? "{}") } catch { return {} }
}

/**
 * "sent": Enter was pressed; "typed": the text changed; "editing": another question is edited, or none.
 * @extends {Emitter<{sent: void, typed: void, editing: void}>}
 */
export class Message extends Emitter {
  #box = h("textarea", { id: "chat-message", rows: 3, "aria-describedby": "chat-keys", oninput: () => this.#typed(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event) })
  #mode = h("p", { class: "soft chat-mode", hidden: true }, "Editing the marked question. The new answer starts a branch without the later turns. ‹ and › at the question switch branches. ", h("button", { type: "button", class: "link", onclick: () => this.leave() }, "Cancel"))
  /** The message that waits while another one is edited. */
  #aside
  /** The question of the prompt that the box offers. */
  #offered = ""
  /** The exchange whose question is edited; "" for none. */
  editing
  nodes = [this.#mode, h("label", { for: "chat-message", class: "sr" }, "Message"), this.#box]

  constructor() {
    super()
    const { text = "", editing = "", aside = "" } = draft()
    this.#box.value = text
    this.#aside = aside
    this.editing = editing
  }

  get text() { return this.#box.value.trim() }

  focus() { this.#box.focus() }

  /** Shows a question to send, unless the user wrote something. @param {string} question */
  offer(question) {
    if (this.#box.value === this.#offered) this.#box.value = question
    this.#offered = question
  }

  /** Edits an earlier question; the message waits. @param {string} id the exchange @param {string} question */
  edit(id, question) {
    if (!this.editing) this.#aside = this.#box.value === this.#offered ? "" : this.#box.value
    this.#show(id, question)
    this.focus()
  }

  /** Ends the edit; the message that waited is back. */
  leave() {
    if (!this.editing) return
    this.#back()
    this.focus()
  }

  /** Ends the edit of a question that is not one of these. @param {Api.Exchange[]} exchanges */
  within(exchanges) {
    if (!exchanges.some(({ id }) => id === this.editing)) this.editing = ""
    this.#mode.hidden = !this.editing
    this.emit("editing")
  }

  /** Empties the box, if it still has the text that was sent. @param {string} sent */
  clear(sent) {
    if (this.text !== sent) return
    this.#offered = ""
    this.#back()
  }

  #back() {
    const text = this.#aside
    this.#aside = ""
    this.#show("", text)
  }

  /** @param {string} editing @param {string} text */
  #show(editing, text) {
    this.editing = editing
    this.#mode.hidden = !editing
    this.emit("editing")
    this.#box.value = text
    this.#typed()
  }

  #typed() {
    const text = this.#box.value === this.#offered ? "" : this.#box.value
    if (text || this.editing) remembered(KEPT, JSON.stringify({ text, editing: this.editing, aside: this.#aside }))
    else forgotten(KEPT)
    this.emit("typed")
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
    event.preventDefault()
    this.emit("sent")
  }
}
