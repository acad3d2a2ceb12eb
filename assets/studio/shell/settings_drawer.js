// The drawer of run settings: a form with errors next to their fields.
import { h, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { changed, mended, ofDecisions, rule, takes } from "./settings.js"

const OPEN = "prompt-cache-studio.settings-open"
const CHOSEN = ["scope", "repair"]  // by `reuse` auto
const NEW_LINE = "\\n for a new line"

/**
 * @typedef {HTMLInputElement | HTMLSelectElement} Input
 * @typedef {{input: Input, show: (value: any) => void, value: () => any}} Control
 * @typedef {Control & {setting: Api.SettingForm, sentence: HTMLElement, hint: HTMLElement | null, fault: HTMLElement, row: HTMLElement, reset: HTMLButtonElement}} Field
 */

/** A number if the text is one, else the text, which validation rejects. @param {string} text */
const numberOf = text => text.trim() === "" || !Number.isFinite(Number(text)) ? text : Number(text)

/** @param {Api.SettingForm} setting @returns {Control} */
export function controlOf({ name, kind, least, most, choices, examples }) {
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
 * "changed": the user edited settings; "set back": saved settings were reset, with the reason; "" once resolved.
 * @extends {Emitter<{changed: void, "set back": string}>}
 */
export class Drawer extends Emitter {
  #workspace
  /** @type {Api.SettingForm[]} */
  #settings = []
  /** @type {Map<string, Field>} */
  #fields = new Map()
  /** @type {Set<string>} */
  #setBack = new Set()
  #fieldset = h("div", { class: "drawer-fields" })
  #resetAll = h("button", { type: "button", class: "quiet", onclick: () => this.#reset([...this.#fields.values()]) }, "Reset all")
  #count = h("span", { class: "changed-count" })
  form = h("div", { class: "drawer", id: "run-settings", role: "dialog", "aria-labelledby": "run-settings-title", hidden: true },
    h("header", {}, h("h2", { id: "run-settings-title" }, "Settings"), h("span", { class: "grow" }), this.#resetAll,
      h("button", { type: "button", class: "quiet", "aria-label": "Close", title: "Close (Esc)", onclick: () => this.#leave() }, "✕")),
    this.#fieldset)
  toggle = h("button", { type: "button", "aria-expanded": "false", "aria-controls": "run-settings", onclick: () => { if (this.form.hidden) this.enter(); else this.#leave() } }, "Settings", this.#count)
  /** The previously focused element. @type {HTMLElement | null} */
  #before = null

  /** @param {import("../documents/workspace.js").Workspace} workspace */
  constructor(workspace) {
    super()
    this.#workspace = workspace
    workspace.on("opened", () => this.#take())
    for (const node of [this.form, this.toggle]) node.addEventListener("keydown", event => this.#key(/** @type {KeyboardEvent} */ (event)))
    this.#open(sessionStorage.getItem(OPEN) === "yes")
  }

  /** Whether the drawer is open. */
  get isOpen() { return !this.form.hidden }

  /** Builds the form. @param {Api.SettingForm[]} settings the engine's declarations */
  offer(settings) {
    this.#settings = settings
    this.#fields = new Map(settings.filter(({ name }) => !ofDecisions(name)).map(setting => [setting.name, this.#field(setting)]))
    const lists = settings.filter(({ examples }) => examples).map(({ name, examples = [] }) =>
      h("datalist", { id: `${name}-examples` }, ...examples.map(value => h("option", { value }))))
    this.#fieldset.replaceChildren(...[...this.#fields.values()].map(field => this.#fill(field)), ...lists)
  }

  /** Opens and focuses the drawer. */
  enter() {
    const focused = document.activeElement
    this.#before = focused instanceof HTMLElement && focused !== document.body ? focused : this.toggle
    this.#open(true)
    this.#fields.values().next().value?.input.focus()
  }

  /** Sets a setting from elsewhere on the page. @param {string} name @param {unknown} value */
  set(name, value) {
    const field = this.#fields.get(name)
    if (!field) return
    field.show(value)
    this.#change(field)
    this.#judge(field)
  }

  /**
   * Sets settings for a fix.
   * @param {Record<string, unknown>} settings
   * @returns {{words: string, undo: () => void, stands: () => boolean}} the changes in words, what takes them back, and whether all still apply
   */
  take(settings) {
    const fields = [...this.#fields.values()], before = fields.map(field => field.value())
    for (const [name, value] of Object.entries(settings)) this.set(name, value)
    const changes = fields.map((field, at) => ({ field, old: before[at], now: field.value() })).filter(({ old, now }) => JSON.stringify(old) !== JSON.stringify(now))
    return {
      words: changes.map(({ field, old, now }) => `${field.setting.label}: ${old} → ${now}.`).join(" "),
      undo: () => { for (const { field, old } of changes) this.set(field.setting.name, old) },
      stands: () => changes.every(({ field, now }) => field.value() === now),
    }
  }

  /** @param {Field[]} fields */
  #reset(fields) {
    const there = fields.filter(field => changed(field.setting, field.value()))
    for (const { setting } of there) this.set(setting.name, setting.default)
    there[0]?.input.focus()
  }

  /** Returns the first error and focuses its field; "" if there is none. */
  refusal() {
    const wrong = [...this.#fields.values()].filter(field => !this.#judge(field))
    if (!wrong.length) return ""
    this.#open(true)
    wrong[0].input.focus()
    return wrong.map(({ setting }) => rule(setting)).join(" ")
  }

  /** Keeps the defaults of reset settings and removes the message. */
  accept() {
    if (!this.#setBack.size) return
    this.#setBack.clear()
    this.#workspace.change({})
    this.emit("set back", "")
  }

  // Tab cycles within the drawer; Escape closes it and restores the focus.
  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.defaultPrevented || this.form.hidden) return
    if (event.key === "Escape") {
      event.preventDefault()
      this.#leave()
    }
    if (event.key !== "Tab" || event.currentTarget !== this.form) return
    const stops = [...this.form.querySelectorAll("button, input, select")].filter(node => node instanceof HTMLElement && node.offsetParent !== null && !node.matches(":disabled"))
    const [from, to] = event.shiftKey ? [stops[0], stops.at(-1)] : [stops.at(-1), stops[0]]
    if (document.activeElement !== from || !(to instanceof HTMLElement)) return
    event.preventDefault()
    to.focus()
  }

  #leave() {
    this.#open(false)
    const back = this.#before?.isConnected && this.#before.checkVisibility() ? this.#before : this.toggle
    back.focus()
    this.#before = null
  }

  /** Closes without moving the focus, because the page below changes. */
  close() {
    this.#open(false)
    this.#before = null
  }

  /** @param {boolean} open */
  #open(open) {
    sessionStorage.setItem(OPEN, open ? "yes" : "no")
    this.form.hidden = !open
    this.toggle.setAttribute("aria-expanded", String(open))
  }

  // Saved settings may be of another version, or out of range.
  #take() {
    const found = mended(this.#settings, this.#workspace.settings)
    this.#workspace.settings = found.settings
    this.#setBack = new Set(found.names)
    for (const { setting, show } of this.#fields.values()) show(found.settings[setting.name] ?? setting.default)
    for (const field of this.#fields.values()) this.#judge(field)
    this.#tally()
    this.emit("set back", found.sentence)
  }

  /** @param {Api.SettingForm} setting @returns {Field} */
  #field(setting) {
    const { name, label, choices } = setting, control = controlOf(setting), { input } = control
    input.id = `setting-${name}`
    const sentence = h("p", { class: "sentence", id: `${input.id}-sentence` }, setting.sentence)
    const hint = choices || CHOSEN.includes(name) ? h("p", { class: "hint", id: `${input.id}-hint` }) : null
    const fault = h("p", { class: "fault", id: `${input.id}-fault`, hidden: true }, rule(setting))
    const reset = h("button", { type: "button", class: "reset", hidden: true, onclick: () => this.#reset([field]) }, "Reset", h("span", { class: "sr" }, ` ${label}`))
    /** @type {Field} */
    const field = { ...control, setting, sentence, hint, fault, reset, row: h("div", { class: "field" }) }
    input.addEventListener("input", () => {
      this.#change(field)
      if (!fault.hidden || takes(setting, control.value())) this.#judge(field)
    })
    input.addEventListener("change", () => this.#judge(field))
    return field
  }

  /** @param {Field} field */
  #fill({ setting: { label, kind }, row, input, sentence, hint, fault, reset }) {
    row.classList.toggle("check", kind === "flag")
    row.append(h("label", { for: input.id }, label), reset, input, sentence, ...[hint, fault].filter(node => node !== null))
    return row
  }

  // Counts settings with other values than their defaults.
  #tally() {
    let number = 0
    for (const { setting, value, row, reset } of this.#fields.values()) {
      const other = changed(setting, value())
      number += Number(other)
      row.toggleAttribute("data-changed", other)
      reset.hidden = !other
    }
    this.#resetAll.disabled = number === 0
    this.#count.textContent = number ? String(number) : ""
    this.toggle.title = number ? `${plural(number, "setting")} changed` : ""
  }

  // Values out of range are saved too, so that a reload reports them.
  /** @param {Field} field */
  #change(field) {
    const { setting: { name }, value } = field
    this.#workspace.change({ [name]: value() })
    this.#chooseReuse(field)
    this.#tally()
    if (this.#setBack.delete(name) && !this.#setBack.size) this.emit("set back", "")
    this.emit("changed")
  }

  // Either `reuse` chooses scope and repair, or the user does.
  /** @param {Field} field */
  #chooseReuse({ setting, value }) {
    const { name } = setting, reuse = this.#fields.get("reuse")
    if (name === "reuse" && value() === "auto") for (const own of CHOSEN) this.#setTo(own, this.#fields.get(own)?.setting.default)
    if (name === "reuse") for (const own of CHOSEN) this.#judge(/** @type {Field} */ (this.#fields.get(own)))
    if (CHOSEN.includes(name) && changed(setting, value()) && reuse?.value() === "auto") this.#setTo("reuse", "off")
  }

  /** @param {string} name @param {unknown} value */
  #setTo(name, value) {
    const field = this.#fields.get(name)
    if (field && field.value() !== value) this.set(name, value)
  }

  /** Shows or hides a field's error. @param {Field} field */
  #judge({ setting, input, sentence, hint, fault, row, value }) {
    const good = takes(setting, value())
    fault.hidden = good
    const automatic = CHOSEN.includes(setting.name) && this.#fields.get("reuse")?.value() === "auto"
    if (hint) hint.textContent = automatic ? "Chosen for each prompt. Setting it yourself turns Reuse off." : setting.choices?.[input.value] ?? ""
    row.toggleAttribute("data-automatic", automatic)
    if (good) input.removeAttribute("aria-invalid")
    else input.setAttribute("aria-invalid", "true")
    input.setAttribute("aria-describedby", [good ? null : fault.id, sentence.id, hint?.id].filter(Boolean).join(" "))
    return good
  }
}
