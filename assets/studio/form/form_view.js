// The form view: both documents as cards. The source stays the truth: each edit changes it, and the form shows it again.
import { confirmed } from "../base/confirm.js"
import { h, keepFocus, refill } from "../base/dom.js"
import { ArgumentField } from "../prompt/argument_field.js"
import { Card, shapeOf, small } from "./cards.js"
import { TextBox } from "./text_box.js"

/**
 * @typedef {import("../documents/workspace.js").Kind} Kind
 * @typedef {import("../documents/workspace.js").Workspace} Workspace
 * @typedef {Record<Kind, string>} TextsOfBoth
 */

/** @type {[Kind, Kind]} */
const KINDS = ["schema", "prompt"]
const alike = (/** @type {TextsOfBoth} */ one, /** @type {TextsOfBoth} */ other) => KINDS.every(kind => one[kind] === other[kind])

export class FormView {
  #workspace
  #server
  #shown = false
  /** The documents that the form shows. @type {TextsOfBoth | null} */
  #texts = null
  /** @type {Api.FormOfBoth | null} */
  #form = null
  /** @type {Set<string>} */
  #picked = new Set()
  /** @type {Api.Picks["arguments"]} */
  #arguments = {}
  /** @type {Map<string, Api.TreeRow>} */
  #modules = new Map()
  /** @type {Record<string, Api.ModuleSize>} */
  #sizes = {}
  /** @type {Card[]} */
  #cards = []
  #shape = ""
  /** @type {Map<string, ArgumentField>} */
  #fields = new Map()
  /** Texts of the prompt besides the question, by card. @type {Map<number, TextBox>} */
  #others = new Map()
  /** @type {{dragging: import("./cards.js").Dragging}} */
  #state = { dragging: { drag: null } }
  /** Edits of the form with the texts before and after, so that one undo step takes back both documents. @type {{kinds: Kind[], before: TextsOfBoth, after: TextsOfBoth}[]} */
  #edits = []
  /** @type {Promise<unknown>} */
  #queue = Promise.resolve()
  #note = h("p", { class: "form-note", role: "status", hidden: true })
  #picks = h("ul", { class: "form-picks", "aria-label": "Modules in the prompt" })
  #given = h("div", { class: "form-arguments" })
  #further = h("div", { class: "form-list" })
  #question
  #asked
  /** @type {Record<Kind, (Api.Mark & {counted?: boolean})[]>} */
  #marks = { schema: [], prompt: [] }
  #faults = { schema: h("div", { class: "form-error" }), prompt: h("div", { class: "form-error" }) }
  #prompt
  #schema = h("section", { class: "form-schema", "aria-label": "Schema as a form" })

  /** @param {Workspace} workspace @param {import("../base/server.js").Server} server */
  constructor(workspace, server) {
    this.#workspace = workspace
    this.#server = server
    this.#question = new TextBox({ label: "Question", key: "form question", placeholder: "Ask something about the modules in the prompt." }, text => this.#ask(text))
    this.#asked = h("label", { class: "form-question" }, h("span", {}, "Question"), this.#question.node)
    this.#prompt = h("section", { class: "form-prompt", "aria-label": "Prompt as a form" })
    this.#prompt.append(h("h3", {}, "Prompt"), this.#faults.prompt, this.#picks, this.#given, this.#further, this.#asked)
    this.node = h("section", { class: "panel form-view", "aria-label": "Form", tabindex: "-1" },
      h("div", { class: "form-body" }, this.#note, this.#prompt, h("h3", {}, "Schema"), this.#faults.schema, this.#schema))
    this.node.addEventListener("keydown", event => this.#key(event))
    workspace.on("checked", answer => this.#checked(answer))
    workspace.on("measured", ({ sizes }) => { this.#sizes = sizes; this.#showSizes() })
    workspace.on("problems", ({ kind, list }) => { this.#marks[kind] = list; if (this.#shown && this.#form) this.#showFault(kind) })
    workspace.on("opened", () => { this.#edits = []; this.#say("") })
  }

  /** Sets whether it is visible; a hidden form asks nothing. @param {boolean} shown */
  show(shown) {
    this.#shown = shown
    if (shown) this.#read()
  }

  /** @param {Api.CheckedTexts} answer */
  #checked({ basis, picks }) {
    if (basis.tree) this.#modules = new Map(basis.tree.map(row => [row.path ?? "", row]))
    this.#picked = new Set(picks.paths)
    this.#arguments = picks.arguments
    if (!this.#shown) return
    this.#showPicks()
    this.#read()
  }

  async #read() {
    const texts = this.#workspace.texts()
    if (this.#texts && alike(texts, this.#texts)) return
    const answer = await this.#server.ask("read_form", { ...texts, origin: this.#workspace.origin })
    if (answer.error) this.#say(answer.error)
    if (answer.schema && alike(texts, this.#workspace.texts())) this.#take(answer, texts, null)
  }

  /** @param {Api.FormOfBoth} form @param {TextsOfBoth} texts @param {Card | TextBox | null} own the part that was edited */
  #take(form, texts, own) {
    this.#form = form
    this.#texts = texts
    for (const kind of KINDS) this.#showFault(kind)
    const { cards } = form.schema, shape = shapeOf(cards)
    keepFocus(this.node, () => {
      if (shape !== this.#shape) this.#build(cards)
      this.#shape = shape
      for (const [index, card] of this.#cards.entries()) card.update(cards[index], card === own)
      this.#showTexts(own)
      this.#showPicks()
    })
    this.#showSizes()
  }

  /** @param {Kind} kind */
  #showFault(kind) {
    const { error = "", at = 0 } = this.#form?.[kind] ?? {}, host = this.#faults[kind], errors = this.#marks[kind].filter(({ severity }) => severity === "error")
    const mark = error ? errors.find(({ from }) => from === at) : errors.find(({ counted }) => counted)
    const message = error || (mark ? `Line ${mark.line}: ${mark.message}` : ""), fix = mark?.fixes[0]
    host.hidden = !message
    refill(host, h("p", {}, `${error ? `The ${kind} has an error, so the form cannot edit it. ` : ""}${message[0]?.toUpperCase() ?? ""}${message.slice(1)}`),
      h("div", { class: "form-choices" },
        mark && fix ? h("button", { type: "button", "data-key": `form fix ${kind}`, onclick: () => { this.node.focus(); return this.#workspace.fix(kind, mark, fix) } }, fix) : null,
        h("button", { type: "button", "data-key": `form error ${kind}`, onclick: () => this.#workspace.editors[kind].reveal(mark?.from ?? at) }, "Go to the error in the source")))
    if (kind === "prompt") for (const part of [this.#picks, this.#given, this.#further, this.#asked]) part.hidden = Boolean(error)
  }

  /** @param {Api.FormCard[]} cards */
  #build(cards) {
    /** @type {Card[]} */
    const hosts = []
    this.#cards = cards.map((card, index) => {
      hosts.length = card.depth
      const made = new Card(card, index, hosts.at(-1) ?? null, {
        edit: (request, edited) => this.#edit(() => this.#cards[edited.index] === edited ? { ...request, card: edited.index } : null, edited),
        remove: removed => this.#remove(removed),
        move: (moved, by) => this.#move(moved, by),
        pick: (path, on) => this.#change({ path, on }),
        source: at => this.#workspace.editors.schema.reveal(at),
        picked: () => this.#picked,
      }, this.#state.dragging)
      hosts.push(made)
      return made
    })
    this.#schema.replaceChildren(...this.#cards.slice(0, 1).map(({ node }) => node))
  }

  // The prompt's texts: the question, and those before it.
  /** @param {Card | TextBox | null} own */
  #showTexts(own) {
    if (!this.#form) return
    const { prompt: { cards }, question } = this.#form, last = cards[question], locked = last?.kind === "locked"
    this.#asked.hidden = locked || Boolean(this.#form.prompt.error)
    this.#question.show(locked ? "" : last?.text ?? "", own === this.#question)
    const shown = [...cards.entries()].filter(([index, { kind }]) => (kind === "text" || kind === "locked") && (index !== question || locked))
    if ([...this.#others.keys()].join() !== shown.map(([index]) => index).join() || shown.some(([, { kind }]) => kind === "locked")) {
      this.#others.clear()
      this.#further.replaceChildren(...shown.map(([index, card]) => this.#furtherText(index, card)))
    }
    for (const [index, card] of shown) { const box = this.#others.get(index); box?.show(card.text, own === box) }
  }

  /** @param {number} index @param {Api.FormCard} card */
  #furtherText(index, card) {
    if (card.kind === "locked") return h("div", { class: "form-card locked" }, h("p", {}, `${card.why} `, h("button", { type: "button", class: "link", onclick: () => this.#workspace.editors.prompt.reveal(card.at) }, "Edit in the source")), h("pre", {}, card.text))
    const box = new TextBox({ label: "More text of the prompt", key: `form prompt ${index}` }, text => this.#edit(() => ({ act: "write", card: index, text }), box))
    this.#others.set(index, box)
    return h("div", { class: "form-card text" }, box.node)
  }

  /** @param {string} text */
  #ask(text) {
    return this.#edit(() => {
      const card = this.#form?.question ?? -1
      return card < 0 ? text.trim() ? { act: "ask", text } : null : { act: "write", card, text }
    }, this.#question)
  }

  #showPicks() {
    const leaves = [...this.#picked]
    keepFocus(this.node, () => {
      this.#picks.replaceChildren(...leaves.length
        ? leaves.map(path => this.#chip(path))
        : [h("li", { class: "soft" }, "No modules yet. Tick modules below.")])
      const lines = leaves.flatMap(path => (this.#modules.get(path)?.params ?? []).map(parameter => this.#field(path, parameter)))
      if (lines.length !== this.#given.children.length || lines.some((line, at) => line !== this.#given.children[at])) this.#given.replaceChildren(...lines)
    })
    for (const card of this.#cards) card.showPick()
  }

  /** @param {string} path */
  #chip(path) {
    const host = path.slice(0, -(path.split("/").at(-1) ?? "").length), inside = [...this.#picked].filter(other => other.startsWith(host) && !other.slice(host.length).includes("/"))
    const moves = inside.length > 1 ? [false, true].map(later => {
      const where = later ? "right" : "left", sign = later ? "→" : "←"
      return h("button", { type: "button", class: "quiet tool", "data-key": `form ${where} ${path}`, "aria-label": `Move ${path} ${where}`, title: `Move ${where} (Alt+${sign})`,
        "aria-disabled": String(inside.at(later ? -1 : 0) === path), onclick: () => this.#change({ path, later }) }, sign)
    }) : []
    return h("li", { onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (!event.altKey || (event.key !== "ArrowLeft" && event.key !== "ArrowRight")) return
      event.preventDefault()
      this.#change({ path, later: event.key === "ArrowRight" })
    } }, h("span", { class: "name" }, path), ...moves,
    h("button", { type: "button", class: "quiet tool", "data-key": `form unpick ${path}`, "aria-label": `Take ${path} out of the prompt`, title: "Take out", onclick: () => this.#change({ path, on: false }) }, "✕"))
  }

  /** @param {string} path @param {Api.Parameter} parameter */
  #field(path, parameter) {
    const key = JSON.stringify([path, parameter]), module = path.split("/").at(-1) ?? path
    const field = this.#fields.get(key) ?? new ArgumentField(this.#workspace, this.#server, { path, module, parameter, place: "form-argument" })
    this.#fields.set(key, field)
    field.show(this.#arguments[path]?.[parameter.name] ?? "")
    return field.line
  }

  #showSizes() {
    for (const card of this.#cards) if (card.card.kind === "module") card.showSize(this.#sizes[card.card.path])
  }

  /** @param {Api.EditPrompt["edit"]} edit */
  async #change(edit) {
    const before = this.#workspace.texts()
    await this.#workspace.edit(edit)
    this.#log(["prompt"], before)
  }

  /** @param {Card} card @param {number} by */
  #move(card, by) {
    const siblings = card.host?.inside ?? [], at = siblings.indexOf(card) + by
    if (at < 0 || at >= siblings.length || !by) return
    const focused = document.activeElement, key = focused instanceof HTMLElement && card.node.contains(focused) ? focused.dataset.key?.split(" ").slice(2).join(" ") : ""
    return this.#edit(() => ({ act: "move", card: card.index, number: at }), null, moved => {
      const target = [...moved.node.querySelectorAll("[data-key]")].find(one => one instanceof HTMLElement && one.dataset.key === `form ${moved.index} ${key}`)
      if (target instanceof HTMLElement) target.focus()
      else moved.focus()
      this.#say(`Moved ${by < 0 ? "up" : "down"}.`, "info")
    })
  }

  /** @param {Card} card */
  async #remove(card) {
    const { title } = card, imported = [...this.#picked].filter(path => this.#paths(card).has(path))
    const sentence = `The prompt imports ${imported.map(path => `“${path}”`).join(", ")}. Delete it from the schema and from the prompt?`
    if (imported.length && !await confirmed(this.node, sentence, `Delete ${small(title)}`)) return
    await this.#edit(() => ({ act: "remove", card: card.index }), null)
  }

  /** The paths of a card's modules. @param {Card} card @returns {Set<string>} */
  #paths(card) {
    const paths = new Set(card.card.kind === "module" ? [card.card.path] : []), pending = [...card.inside]
    for (let next = pending.pop(); next; next = pending.pop()) {
      if (next.card.kind === "module") paths.add(next.card.path)
      pending.push(...next.inside)
    }
    return paths
  }

  /**
   * Makes an edit after those before it. `make` returns the request, or null for nothing to do.
   * @param {() => (Partial<Api.EditForm> & Pick<Api.EditForm, "act">) | null} make
   * @param {Card | TextBox | null} own the part that is edited
   * @param {(card: Card) => unknown} [done] with the new or moved card
   * @returns {Promise<string | void>} why it was refused
   */
  #edit(make, own, done = card => card.focus()) {
    const sent = this.#queue.then(() => this.#send(make, own, done))
    this.#queue = sent
    return sent
  }

  /**
   * @param {() => (Partial<Api.EditForm> & Pick<Api.EditForm, "act">) | null} make
   * @param {Card | TextBox | null} own
   * @param {(card: Card) => unknown} done
   */
  async #send(make, own, done) {
    const { editors } = this.#workspace, shape = this.#shape
    await this.#read()
    if (shape !== this.#shape) return this.#say("The documents have changed meanwhile. Make the edit again.")
    const request = make()
    if (!request) return
    const before = this.#workspace.texts(), marks = { schema: editors.schema.mark(), prompt: editors.prompt.mark() }
    const answer = await this.#server.ask("edit_form", { ...request, ...before, origin: this.#workspace.origin })
    for (const kind of KINDS) editors[kind].apply(marks[kind], answer[kind])
    this.#say(request.act === "rename" || request.act === "parameter" ? "" : answer.error ?? "")  // the field shows the others
    if (answer.form && alike(this.#workspace.texts(), { schema: answer.schema, prompt: answer.prompt })) {
      this.#log(KINDS.filter(kind => before[kind] !== answer[kind]), before)
      this.#take(answer.form, this.#workspace.texts(), own)
      const card = answer.card >= 0 ? this.#cards[answer.card] : null
      if (card) done(card)
    } else if (this.#form && this.#texts) this.#take(this.#form, this.#texts, null)
    return answer.error
  }

  /** @param {Kind[]} kinds @param {TextsOfBoth} before */
  #log(kinds, before) {
    if (kinds.length) this.#edits.push({ kinds, before, after: this.#workspace.texts() })
  }

  // Undo and redo are those of the editors: the form has no history of its own.
  /** @param {KeyboardEvent} event */
  async #key(event) {
    const key = event.key.toLowerCase()
    if (!(event.ctrlKey || event.metaKey) || event.altKey || (key !== "z" && key !== "y")) return
    event.preventDefault()
    const again = key === "y" || event.shiftKey, inPrompt = event.target instanceof Node && this.#prompt.contains(event.target)
    for (const box of [this.#question, ...this.#others.values(), ...this.#cards.map(card => card.box)]) await box?.flush()
    await this.#queue
    const now = this.#workspace.texts(), edit = this.#edits.findLast(one => alike(again ? one.before : one.after, now))
    for (const kind of edit?.kinds ?? [inPrompt ? "prompt" : "schema"]) this.#workspace.editors[/** @type {Kind} */ (kind)][again ? "redo" : "undo"]()
    this.#read()
  }

  /** @param {string} sentence @param {string} [mood] */
  #say(sentence, mood = "bad") {
    this.#note.hidden = !sentence
    this.#note.textContent = sentence
    this.#note.dataset.mood = mood
  }
}
