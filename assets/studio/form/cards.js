// The cards of the schema: turns, modules, choices and texts, in the document's order.
import { count, h } from "../base/dom.js"
import { TextBox } from "./text_box.js"

const ROLES = { system: "System turn", user: "User turn", assistant: "Assistant turn" }
const NEW = { text: "Text", module: "Module", union: "Choice", ...ROLES }

/**
 * @typedef {keyof typeof NEW} New
 * @typedef {{
 *   edit: (request: Partial<Api.EditForm> & Pick<Api.EditForm, "act">, card: Card) => Promise<string | void>, remove: (card: Card) => unknown,
 *   move: (card: Card, by: number) => unknown, pick: (path: string, on: boolean) => unknown, source: (at: number) => unknown, picked: () => Set<string>,
 * }} Desk what the cards do to the documents
 * @typedef {{drag: Card | null}} Dragging
 */

/** A title within a sentence. @param {string} title */
export const small = title => `${title[0].toLowerCase()}${title.slice(1)}`

/** What a tree of cards must share to be updated in place. @param {Api.FormCard[]} cards */
export const shapeOf = cards => cards.map(({ depth, kind, why }) => `${depth} ${kind} ${why}`).join("\n")

const isRefused = (/** @type {HTMLInputElement} */ input) => input.ariaInvalid === "true"

/** Marks what was typed as refused, with the reason below it; "" removes the mark. @param {HTMLInputElement} input @param {string} reason */
function refuse(input, reason) {
  const id = `${input.dataset.key} refusal`.replaceAll(" ", "-")
  document.getElementById(id)?.remove()
  input.ariaInvalid = reason ? "true" : null
  if (!reason) return input.removeAttribute("aria-describedby")
  input.setAttribute("aria-describedby", id)
  input.closest(".form-head, .form-param")?.after(h("p", { class: "form-refusal", role: "alert", id }, reason))
}

/** A field whose edits can be refused: typing removes the mark, and Escape also the text. @param {HTMLInputElement} input @param {() => string} known */
function refusable(input, known) {
  input.addEventListener("input", () => refuse(input, ""))
  input.addEventListener("keydown", event => {
    if (event.key !== "Escape" || !isRefused(input)) return
    event.preventDefault()
    refuse(input, "")
    input.value = known()
  })
}

export class Card {
  /** The text box that had the focus last. @type {HTMLElement | null} */
  static #written = null
  /** The cards inside it. @type {Card[]} */
  inside = []
  /** @type {TextBox | null} */
  box = null
  #desk
  #title = h("strong", {})
  #name = h("input", { type: "text", class: "form-name", autocomplete: "off", spellcheck: "false" })
  #pick = h("input", { type: "checkbox" })
  /** @type {HTMLInputElement | null} */
  #none = null
  #tokens = h("span", { class: "tokens" })
  #raw = h("pre", {})
  #digest = ""
  /** @type {{name: HTMLInputElement, length: HTMLInputElement, default: HTMLInputElement, known: Api.Parameter}[]} */
  #params = []
  #slots = h("div", { class: "form-list" })
  #list = h("div", { class: "form-list" })

  /** @param {Api.FormCard} card @param {number} index @param {Card | null} host @param {Desk} desk @param {Dragging} dragging */
  constructor(card, index, host, desk, dragging) {
    this.card = card
    this.index = index
    this.host = host
    this.#desk = desk
    host?.inside.push(this)
    this.node = this.#made(dragging)
    if (host) host.#list.append(this.node)
  }

  /** @param {Dragging} dragging */
  #made(dragging) {
    const { kind, why } = this.card
    if (kind === "text") return this.#text(dragging)
    if (kind === "locked") {
      return h("div", { class: "form-card locked", role: "group", "aria-label": "Part that only the source can edit" },
        h("p", {}, `${why} `, h("button", { type: "button", class: "link", "data-key": this.#key("source"), onclick: () => this.#desk.source(this.card.at) }, "Edit in the source")), this.#raw)
    }
    const node = kind === "union"
      ? h("fieldset", { class: "form-card union" }, h("legend", {}, "Choice: at most one of these"), this.#head(dragging))
      : h("div", { class: `form-card ${kind}`, role: "group" }, this.#head(dragging))
    node.append(this.#slots, this.#list, this.#adding())
    this.#movable(node, dragging)
    return node
  }

  /** @param {string} part */
  #key(part) { return `form ${this.index} ${part}` }

  /** A name for people, as "Module budget". @returns {string} */
  get title() {
    const { kind, name } = this.card
    if (kind === "module") return `Module ${name}`
    if (kind === "turn") return ROLES[/** @type {keyof typeof ROLES} */ (name)] ?? name
    if (kind === "union") return `Choice of ${this.inside.length}`
    if (kind === "text") return `Text of ${small(this.host?.title ?? "Schema")}`
    return kind === "schema" ? "Schema" : "Part"
  }

  /** @param {Dragging} dragging */
  #head(dragging) {
    const { kind } = this.card, head = h("div", { class: "form-head" })
    if (kind === "module") {
      const union = this.host?.card.kind === "union" ? this.host : null
      if (union) { this.#pick.type = "radio"; this.#pick.name = `form-union-${union.index}` }
      this.#pick.dataset.key = this.#key("pick")
      this.#pick.addEventListener("change", () => this.#desk.pick(this.card.path, this.#pick.checked))
      head.append(this.#pick)
    }
    if (kind === "union") {
      this.#none = h("input", { type: "radio", name: `form-union-${this.index}`, "data-key": this.#key("none"), onchange: () => {
        const taken = this.inside.find(member => this.#desk.picked().has(member.card.path))
        if (taken) this.#desk.pick(taken.card.path, false)
      } })
      head.append(h("label", { class: "form-none" }, this.#none, "none"))
    }
    if (kind === "turn") head.append(this.#title)
    if (kind === "module" || kind === "schema") {
      this.#name.dataset.key = this.#key("name")
      refusable(this.#name, () => this.card.name)
      this.#name.addEventListener("change", async () => {
        const text = this.#name.value.trim(), reason = text === this.card.name ? "" : await this.#desk.edit({ act: "rename", text }, this)
        if (this.#name.value.trim() !== text) return
        if (reason) refuse(this.#name, reason)
        else this.#name.value = this.card.name
      })
      head.append(this.#name)
    }
    head.append(h("span", { class: "grow" }), ...this.#tools(dragging))
    return head
  }

  /** @param {Dragging} dragging */
  #tools(dragging) {
    if (!this.host) return []
    const button = (/** @type {string} */ name, /** @type {string} */ sign, /** @type {() => unknown} */ action) =>
      h("button", { type: "button", class: `quiet tool ${name}`, "data-key": this.#key(name), "data-tool": name, onclick: action }, h("span", { "aria-hidden": "true" }, sign))
    const grip = h("span", { class: "grip", draggable: true, "aria-hidden": "true", title: "Drag to move", ondragstart: (/** @type {DragEvent} */ event) => {
      dragging.drag = this
      event.dataTransfer?.setData("text/plain", this.title)
      event.dataTransfer?.setDragImage(this.node, 0, 0)
    }, ondragend: () => { dragging.drag = null } }, "⠿")
    return [h("span", { class: "form-tools" }, grip, button("up", "↑", () => this.#desk.move(this, -1)), button("down", "↓", () => this.#desk.move(this, 1)),
      button("delete", "✕", () => this.#desk.remove(this)))]
  }

  /** @param {Dragging} dragging */
  #text(dragging) {
    this.box = new TextBox({ label: "", key: this.#key("text"), placeholder: this.host?.card.kind === "module" ? "Write the text here. {{name}} is a parameter." : "Write the text here." }, text => this.#desk.edit({ act: "text", text }, this))
    this.box.node.addEventListener("focus", () => { Card.#written = this.box?.node ?? null })
    const node = h("div", { class: "form-card text" }, this.box.node, this.#tools(dragging))
    this.#movable(node, dragging)
    return node
  }

  // Alt with an arrow key moves a card; dragging does the same.
  /** @param {HTMLElement} node @param {Dragging} dragging */
  #movable(node, dragging) {
    const above = (/** @type {DragEvent} */ event) => { const { top, height } = node.getBoundingClientRect(); return event.clientY < top + height / 2 }
    const mark = (/** @type {string} */ place) => { if (place) node.dataset.drop = place; else delete node.dataset.drop }
    node.addEventListener("keydown", event => {
      const by = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0
      if (!by || !event.altKey || !this.host || event.defaultPrevented) return
      event.preventDefault()
      this.#desk.move(this, by)
    })
    node.addEventListener("dragover", event => {
      const dragged = dragging.drag
      if (!dragged || dragged.host !== this.host || dragged === this || event.defaultPrevented) return
      event.preventDefault()
      mark(above(event) ? "before" : "after")
    })
    node.addEventListener("dragleave", () => mark(""))
    node.addEventListener("drop", event => {
      const dragged = dragging.drag
      mark("")
      if (!dragged || dragged.host !== this.host || !this.host || dragged === this || event.defaultPrevented) return
      event.preventDefault()
      const others = this.host.inside.filter(one => one !== dragged), place = others.indexOf(this) + (above(event) ? 0 : 1)
      this.#desk.move(dragged, place - this.host.inside.indexOf(dragged))
    })
  }

  /** @param {number} place */
  #param(place) {
    const field = (/** @type {string} */ part, /** @type {string} */ type) => h("input", { type, min: type === "number" ? "1" : null, autocomplete: "off", spellcheck: "false", "data-key": this.#key(`${part} ${place}`) })
    const fields = { name: field("parameter", "text"), length: field("length", "number"), default: field("default", "text"), known: this.card.params[place] }
    const send = async (/** @type {HTMLInputElement} */ input) => {
      const { known } = fields, [name, length, fallback] = /** @type {const} */ (["name", "length", "default"]).map(part => isRefused(fields[part]) ? String(known[part]) : fields[part].value)
      const changed = name !== known.name || Number(length) !== known.length || fallback !== known.default
      const reason = changed ? await this.#desk.edit({ act: "parameter", what: known.name, text: name.trim(), number: Math.max(0, Math.trunc(Number(length))), default: fallback || null }, this) : ""
      if (reason) refuse(input, reason)
      this.#showParam(place)
    }
    for (const part of /** @type {const} */ (["name", "length", "default"])) {
      refusable(fields[part], () => String(fields.known[part]))
      fields[part].addEventListener("change", () => send(fields[part]))
    }
    this.#params.push(fields)
    const label = (/** @type {string} */ words, /** @type {HTMLElement} */ input) => h("label", {}, h("span", {}, words), input)
    return h("div", { class: "form-param" }, label("Parameter", fields.name), label("Tokens", fields.length), label("Default", fields.default))
  }

  /** @param {number} place */
  #showParam(place) {
    const fields = this.#params[place], { name, length, default: fallback } = this.card.params[place]
    fields.known = this.card.params[place]
    for (const [input, value, words] of /** @type {[HTMLInputElement, string, string][]} */ ([[fields.name, name, "name"], [fields.length, String(length), "maximum tokens"], [fields.default, fallback, "default"]])) {
      if (input.value !== value && !isRefused(input)) input.value = value
      input.setAttribute("aria-label", `Parameter ${name} of ${this.card.name}: ${words}`)
    }
  }

  // Writes a new parameter at the caret of the module's text.
  async #addParameter() {
    const texts = this.inside.flatMap(({ box }) => box ?? []), box = texts.find(({ node }) => node === Card.#written) ?? texts.at(-1)
    const names = new Set(this.card.params.map(({ name }) => name))
    let name = "value"
    for (let number = 2; names.has(name); number++) name = `value-${number}`
    await box?.insert(`{{${name}}}`)
    const field = this.#params.find(({ known }) => known.name === name)?.name
    field?.focus()
    field?.select()
  }

  #adding() {
    const choices = h("span", { class: "form-choices" })
    const button = (/** @type {New} */ what, /** @type {string} */ words) => h("button", { type: "button", "data-key": this.#key(`add ${what}`), onclick: () => this.#desk.edit({ act: "add", what }, this) }, words)
    const add = this.card.kind === "union" ? button("module", "Add a module")
      : h("details", { ontoggle: () => choices.replaceChildren(...this.#additions().map(what => button(what, NEW[what])), ...this.#slot()) },
        h("summary", { "data-key": this.#key("add"), "data-tool": "add" }, "Add"), choices)
    return h("div", { class: "form-foot" }, add, this.#tokens)
  }

  /** The button for a parameter, if the card is a module with a text that can be edited. */
  #slot() {
    if (this.card.kind !== "module" || !this.inside.some(({ box }) => box)) return []
    return [h("button", { type: "button", "data-key": this.#key("add parameter"), onclick: () => this.#addParameter() }, "Parameter")]
  }

  /** What can be added at the end of the card. @returns {New[]} */
  #additions() {
    const { kind } = this.card, last = this.inside.at(-1)?.card.kind, roles = /** @type {New[]} */ (Object.keys(ROLES))
    if (kind === "schema") return [...roles, "module", "union"]
    if (kind === "module" && this.inside.some(({ card }) => card.kind === "turn")) return roles
    return last === "text" ? ["module", "union"] : ["text", "module", "union"]
  }

  /** Shows the card of another text of the document. @param {Api.FormCard} card @param {boolean} own whether this card was edited */
  update(card, own) {
    const digest = JSON.stringify([card.text, card.name, card.path, card.params])
    this.card = card
    if (digest === this.#digest && (this.box?.node.value ?? card.text) === card.text) return
    this.#digest = digest
    const { kind, name, text } = card, { title } = this
    this.#title.textContent = title
    if (kind === "locked") this.#raw.textContent = text
    else if (kind !== "text" && kind !== "union") this.node.setAttribute("aria-label", title)
    this.box?.show(text, own)
    this.box?.node.setAttribute("aria-label", title)
    if (document.activeElement !== this.#name && !isRefused(this.#name)) this.#name.value = name
    this.#name.setAttribute("aria-label", kind === "schema" ? "Name of the schema" : `Name of module ${name}`)
    this.#pick.setAttribute("aria-label", `${name} in the prompt`)
    this.#none?.setAttribute("aria-label", "No module of this choice in the prompt")
    if (this.#params.length !== card.params.length) {
      this.#params = []
      this.#slots.replaceChildren(...card.params.map((_, place) => this.#param(place)))
    }
    for (let place = 0; place < this.#params.length; place++) this.#showParam(place)
    const siblings = this.host?.inside ?? [], at = siblings.indexOf(this)
    for (const tool of this.node.querySelectorAll(":scope > :is(.form-head, .form-foot, .form-tools) [data-tool]")) {
      if (!(tool instanceof HTMLElement)) continue
      const { tool: what } = tool.dataset
      if (what === "add") tool.textContent = `Add to ${small(title)}`
      else tool.setAttribute("aria-label", what === "delete" ? `Delete ${small(title)}` : `Move ${small(title)} ${what}`)
      if (what === "up" || what === "down") {
        tool.title = `Move ${what} (Alt+${what === "up" ? "↑" : "↓"})`
        tool.setAttribute("aria-disabled", String(at === (what === "up" ? 0 : siblings.length - 1)))
      } else if (what === "delete") tool.title = "Delete"
    }
  }

  /** Shows whether the prompt imports it. */
  showPick() {
    const picked = this.#desk.picked()
    if (this.card.kind === "module") {
      this.#pick.checked = picked.has(this.card.path)
      this.node.classList.toggle("on", this.#pick.checked)
    }
    if (this.#none) this.#none.checked = !this.inside.some(member => picked.has(member.card.path))
  }

  /** @param {Api.ModuleSize | undefined} size */
  showSize(size) {
    this.#tokens.textContent = size ? `${count(size.tokens)} tokens` : ""
    this.#tokens.title = size ? `${count(size.tokens)} tokens of its own, ${count(size.total)} with its largest contents` : ""
  }

  /** Puts the focus on what is written first in it. */
  focus() {
    const target = this.card.kind === "module" ? this.#name : this.box ? this.box.node : this.inside[0]
    target?.focus()
    if (target === this.#name) this.#name.select()
    this.node.scrollIntoView({ block: "nearest" })
  }
}
