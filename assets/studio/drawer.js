// The settings of a run, as a form of their declarations. What is out of its range is said at its field.
import { h } from "./dom.js"
import { Emitter } from "./events.js"
import { mended, rule, takes } from "./settings.js"

const OPEN = "prompt-cache-studio.settings-open"
const NEW_LINE = "\\n for a new line"

/**
 * @typedef {HTMLInputElement | HTMLSelectElement} Input
 * @typedef {{input: Input, show: (value: any) => void, value: () => any}} Control
 * @typedef {Control & {setting: Api.SettingForm, hint: HTMLElement | null, fault: HTMLElement}} Field
 */

/** What was typed: a number where it is one, else the text, which no number takes. @param {string} text */
const numberOf = text => text.trim() === "" || !Number.isFinite(Number(text)) ? text : Number(text)

/** @param {Api.SettingForm} setting @returns {Control} */
function controlOf({ name, kind, least, most, choices, examples }) {
  if (choices) {
    const input = h("select", {}, ...Object.entries(choices).map(([value, words]) => h("option", { value, title: words }, value)))
    return { input, show: value => { input.value = value }, value: () => input.value }
  }
  if (kind === "flag") {
    const input = h("input", { type: "checkbox" })
    return { input, show: value => { input.checked = value }, value: () => input.checked }
  }
  if (kind === "integer" || kind === "number") {
    const bounds = { min: least == null ? null : String(least), max: most == null ? null : String(most) }
    const input = h("input", { type: "number", step: kind === "integer" ? "1" : "any", ...bounds })
    return { input, show: value => { input.value = value }, value: () => numberOf(input.value) }
  }
  if (kind === "texts") {
    const input = h("input", { type: "text", placeholder: NEW_LINE })
    const show = (/** @type {string[]} */ texts) => { input.value = (texts[0] ?? "").replaceAll("\n", "\\n") }
    return { input, show, value: () => input.value ? [input.value.replaceAll("\\n", "\n")] : [] }
  }
  const input = h("input", { type: "text", list: examples ? `${name}-examples` : null })
  return { input, show: value => { input.value = value }, value: () => input.value }
}

/**
 * "changed": somebody did; "set back": in a sentence which kept settings have their defaults again and why, "" once that is over.
 * @extends {Emitter<{changed: void, "set back": string}>}
 */
export class Drawer extends Emitter {
  #workspace
  /** @type {Map<string, Field>} */
  #fields = new Map()
  /** @type {Set<string>} */
  #setBack = new Set()
  form = h("form", { class: "drawer", id: "run-settings", hidden: true, novalidate: true, onsubmit: (/** @type {Event} */ event) => event.preventDefault() })
  toggle = h("button", { type: "button", "aria-expanded": "false", "aria-controls": "run-settings", onclick: () => this.#open(this.form.hidden === true) }, "Settings")

  /** @param {import("./workspace.js").Workspace} workspace */
  constructor(workspace) {
    super()
    this.#workspace = workspace
    workspace.on("opened", () => this.#take())
    for (const node of [this.form, this.toggle]) node.addEventListener("keydown", event => this.#close(/** @type {KeyboardEvent} */ (event)))
    this.#open(sessionStorage.getItem(OPEN) === "yes")
  }

  /** Makes the form. @param {Api.SettingForm[]} settings as the engine declares them */
  offer(settings) {
    this.#fields = new Map(settings.map(setting => [setting.name, this.#field(setting)]))
    const lists = settings.filter(({ examples }) => examples).map(({ name, examples = [] }) =>
      h("datalist", { id: `${name}-examples` }, ...examples.map(value => h("option", { value }))))
    this.form.replaceChildren(...[...this.#fields.values()].map(field => this.#row(field)), ...lists)
  }

  /** Sets one setting from elsewhere on the page. @param {string} name @param {unknown} value */
  set(name, value) {
    const field = this.#fields.get(name)
    if (!field) return
    field.show(value)
    this.#change(field)
    this.#judge(field)
  }

  /** Why nothing can be done with these settings, in a sentence, and the focus where it has to be mended; "" where something can. */
  refusal() {
    const wrong = [...this.#fields.values()].filter(field => !this.#judge(field))
    if (!wrong.length) return ""
    this.#open(true)
    wrong[0].input.focus()
    return wrong.map(({ setting }) => rule(setting)).join(" ")
  }

  /** What was set back stays so: the defaults are kept, and it is said no more. */
  accept() {
    if (!this.#setBack.size) return
    this.#setBack.clear()
    this.#workspace.change({})
    this.emit("set back", "")
  }

  /** @param {KeyboardEvent} event */
  #close(event) {
    if (event.key !== "Escape" || event.defaultPrevented || this.form.hidden) return
    event.preventDefault()
    this.#open(false)
    this.toggle.focus()
  }

  /** @param {boolean} open */
  #open(open) {
    sessionStorage.setItem(OPEN, open ? "yes" : "no")
    this.form.hidden = !open
    this.toggle.setAttribute("aria-expanded", String(open))
  }

  // What was kept may be of another version, or was out of its range when its page was closed.
  #take() {
    const settings = [...this.#fields.values()].map(({ setting }) => setting)
    const found = mended(settings, this.#workspace.settings)
    this.#workspace.settings = found.settings
    this.#setBack = new Set(found.names)
    for (const field of this.#fields.values()) {
      field.show(found.settings[field.setting.name] ?? field.setting.default)
      this.#judge(field)
    }
    this.emit("set back", found.sentence)
  }

  /** @param {Api.SettingForm} setting @returns {Field} */
  #field(setting) {
    const { name, choices } = setting, control = controlOf(setting), { input } = control
    input.id = `setting-${name}`
    const hint = choices ? h("p", { class: "hint", id: `${input.id}-hint` }) : null
    const fault = h("p", { class: "fault", id: `${input.id}-fault`, hidden: true }, rule(setting))
    const field = { ...control, setting, hint, fault }
    input.addEventListener("input", () => {
      this.#change(field)
      if (!fault.hidden || takes(setting, control.value())) this.#judge(field)
    })
    input.addEventListener("change", () => this.#judge(field))
    return field
  }

  /** @param {Field} field */
  #row({ setting: { label, sentence, kind, choices }, input, hint, fault }) {
    const kinds = `field ${choices ? "wide" : ""} ${kind === "flag" ? "check" : ""}`
    return h("div", { class: kinds, title: sentence }, h("label", { for: input.id }, label), input, hint, fault)
  }

  // What is out of its range is kept too: a page that is loaded again says what became of it.
  /** @param {Field} field */
  #change({ setting: { name }, value }) {
    this.#workspace.change({ [name]: value() })
    if (this.#setBack.delete(name) && !this.#setBack.size) this.emit("set back", "")
    this.emit("changed")
  }

  /** Says at a field whether its value is in the range. @param {Field} field */
  #judge({ setting, input, hint, fault, value }) {
    const good = takes(setting, value())
    fault.hidden = good
    if (hint) hint.textContent = setting.choices?.[input.value] ?? ""
    if (good) input.removeAttribute("aria-invalid")
    else input.setAttribute("aria-invalid", "true")
    const described = [hint?.id, good ? null : fault.id].filter(Boolean).join(" ")
    if (described) input.setAttribute("aria-describedby", described)
    else input.removeAttribute("aria-describedby")
    return good
  }
}
