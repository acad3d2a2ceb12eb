// The questions to decide: those of the prompt, or those that the user writes in a form, which survive a reload.
import { h, refill } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { remembered } from "../base/layout_settings.js"

/** @type {Record<Api.PageQuestion["kind"], string>} */
export const KINDS = { predicate: "Yes or no", choice: "Choice", score: "Score" }
const LABELS = { predicate: "", choice: "Options, one a line", score: "Levels from the lowest, one a line" }

/** A question as the user wrote it, with descriptions by label. @typedef {{kind: Api.PageQuestion["kind"], question: string, options: string, about?: Record<string, string>}} Written */

/** @param {Written} written */
const labels = ({ options }) => options.split("\n").map(line => line.trim()).filter(Boolean)
/** @param {Written} written @param {string} label */
const aboutOf = ({ about = {} }, label) => Object.hasOwn(about, label) ? String(about[label]) : ""

/** @returns {Written} */
const blank = () => ({ kind: "predicate", question: "", options: "" })

/** The stored questions; a blank one without any. @param {string} name @returns {Written[]} */
function draft(name) {
  let stored
  try { stored = JSON.parse(remembered(name) ?? "[]") } catch { stored = [] }
  const valid = (Array.isArray(stored) ? stored : []).filter(one => Object.hasOwn(KINDS, one?.kind) && typeof one.question === "string" && typeof one.options === "string" && typeof (one.about ?? {}) === "object")
  return valid.length ? valid : [blank()]
}

/**
 * "changed": the user edited the questions.
 * @extends {Emitter<{changed: void}>}
 */
export class QuestionForm extends Emitter {
  #name
  #written
  /** @type {Api.PageQuestion[]} */
  #own = []
  /** @type {Api.QuestionFault[]} */
  #faults = []
  #list = h("div", { class: "decide-questions" })
  #add = h("button", { type: "button", onclick: () => this.#append() }, "Add a question")
  #fixed = h("div", { class: "decide-own" })
  node = h("div", { class: "decide-asked" }, this.#fixed, this.#list, this.#add)

  /** @param {string} name of the form */
  constructor(name) {
    super()
    this.#name = name
    this.#written = draft(`${name}-questions`)
    this.#show()
  }

  /** The questions to send. @returns {Api.PageQuestion[]} */
  get questions() {
    if (this.#own.length) return this.#own
    return this.#written.map(one => ({ kind: one.kind, question: one.question, options: one.kind === "predicate" ? [] : labels(one).map(label => ({ label, description: aboutOf(one, label) })) }))
  }

  /** Shows the questions of the prompt in place of the form, if there are any. @param {Api.PageQuestion[]} own */
  take(own) {
    if (JSON.stringify(own) === JSON.stringify(this.#own)) return
    this.#own = own
    this.#faults = []
    this.#show()
  }

  /** Shows errors next to their fields, and focuses the first. @param {Api.QuestionFault[]} faults */
  refuse(faults) {
    if (!faults.length && !this.#faults.length) return
    this.#faults = faults
    this.#show()
    const first = faults[0]
    if (first) this.#focus(`${first.field} ${first.number}`)
  }

  focus() { this.#focus("question 0") }

  /** @param {string} key */
  #focus(key) {
    const field = this.#list.querySelector(`[data-key="${key}"]`)
    if (field instanceof HTMLElement) field.focus()
  }

  #append() {
    this.#written.push(blank())
    this.#changed()
    this.#show()
    this.#focus(`question ${this.#written.length - 1}`)
  }

  /** @param {number} number */
  #remove(number) {
    this.#written.splice(number, 1)
    this.#faults = []
    this.#changed()
    this.#show()
    this.#add.focus()
  }

  #changed() {
    remembered(`${this.#name}-questions`, JSON.stringify(this.#written))
    this.emit("changed", undefined)
  }

  #show() {
    const own = this.#own.length > 0
    this.#list.hidden = this.#add.hidden = own
    this.#fixed.hidden = !own
    if (own) {
      refill(this.#fixed, h("p", { class: "soft" }, "These questions are in the prompt. Edit its <decide> elements to change them."),
        h("ol", {}, ...this.#own.map(({ kind, question, options }) => h("li", {}, question, " ", h("span", { class: "soft" }, `${KINDS[kind]}${options.length ? `: ${options.map(({ label, description }) => description ? `${label} (${description})` : label).join(", ")}` : ""}`)))))
    } else refill(this.#list, ...this.#written.map((one, number) => this.#row(one, number)))
  }

  /** @param {Written} one @param {number} number */
  #row(one, number) {
    const { kind } = one, only = this.#written.length === 1
    const choose = h("select", { "data-key": `kind ${number}`, "aria-label": `Kind of question ${number + 1}`, onchange: () => { one.kind = /** @type {Written["kind"]} */ (choose.value); this.#edited(number); this.#show() } },
      ...Object.entries(KINDS).map(([name, title]) => h("option", { value: name, selected: name === kind }, title)))
    const question = h("input", { type: "text", value: one.question, placeholder: "Is it urgent?", autocomplete: "off", "data-key": `question ${number}`, oninput: () => { one.question = question.value; this.#edited(number) } })
    const options = h("textarea", { rows: 3, "data-key": `options ${number}`, oninput: () => { one.options = options.value; this.#edited(number); describe() } })
    options.value = one.options
    const described = h("div", { class: "decide-about-options" })
    const describe = () => refill(described, ...[...new Set(labels(one))].map(label => this.#description(one, number, label)))
    describe()
    return h("fieldset", { "data-number": String(number) }, h("legend", { class: "sr" }, `Question ${number + 1}`),
      h("div", { class: "decide-line" }, choose, only ? null : h("button", { type: "button", class: "quiet", "aria-label": `Remove question ${number + 1}`, onclick: () => this.#remove(number) }, "✕")),
      this.#field("question", number, "Question", question), ...(kind === "predicate" ? [] : [this.#field("options", number, LABELS[kind], options), h("details", { open: Object.values(one.about ?? {}).some(Boolean) }, h("summary", {}, "Descriptions, which the model reads"), described)]))
  }

  /** @param {Written} one @param {number} number @param {string} label */
  #description(one, number, label) {
    const input = h("input", { type: "text", value: aboutOf(one, label), autocomplete: "off", "data-key": `about ${number} ${label}`, oninput: () => { one.about = { ...one.about, [label]: input.value }; this.#edited(number) } })
    return h("label", { class: "decide-described" }, h("span", {}, label), input)
  }

  /** A field with its label and its error. @param {Api.QuestionFault["field"]} field @param {number} number @param {string} label @param {HTMLElement} input */
  #field(field, number, label, input) {
    const fault = this.#faults.find(one => one.number === number && one.field === field)?.message ?? "", id = `${this.#name}-${field}-${number}`
    input.id = id
    if (fault) { input.setAttribute("aria-invalid", "true"); input.setAttribute("aria-describedby", `${id}-error`) }
    return h("div", { class: "decide-field" }, h("label", { for: id }, label), input, h("p", { id: `${id}-error`, class: "decide-error", "data-mood": "bad", hidden: !fault }, fault))
  }

  /** Stores the questions, and removes the errors of a changed one. @param {number} number */
  #edited(number) {
    this.#changed()
    if (!this.#faults.some(one => one.number === number)) return
    this.#faults = this.#faults.filter(one => one.number !== number)
    for (const node of this.#list.querySelectorAll(`[data-number="${number}"] .decide-error`)) if (node instanceof HTMLElement) node.hidden = true
    for (const node of this.#list.querySelectorAll(`[data-number="${number}"] [aria-invalid]`)) node.removeAttribute("aria-invalid")
  }
}
