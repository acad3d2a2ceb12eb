// How decisions read their probabilities: a folded group of settings, stored with the workspace.
import { h } from "../base/dom.js"
import { changed, ofDecisions, rule, takes } from "../shell/settings.js"
import { controlOf } from "../shell/settings_drawer.js"

/** @typedef {import("../shell/settings_drawer.js").Control & {setting: Api.SettingForm, fault: HTMLElement}} Field */

export class ReadoutForm {
  #workspace
  #name
  /** @type {Field[]} */
  #fields = []
  #list = h("div", { class: "readout-fields" })
  #count = h("span", { class: "soft" })
  node = h("details", { class: "readout" }, h("summary", {}, "Readout ", this.#count), this.#list)

  /** @param {import("../documents/workspace.js").Workspace} workspace @param {string} name of the form */
  constructor(workspace, name) {
    this.#workspace = workspace
    this.#name = name
    workspace.on("opened", () => this.#show())
    workspace.on("settings", () => this.#show())
  }

  /** Builds the group. @param {Api.SettingForm[]} settings the declarations of all settings */
  offer(settings) {
    this.#fields = settings.filter(({ name }) => ofDecisions(name)).map(setting => this.#field(setting))
    this.#show()
  }

  /** Returns the first error and focuses its field; "" if there is none. */
  refusal() {
    const wrong = this.#fields.find(field => !this.#judge(field))
    if (!wrong) return ""
    this.node.open = true
    wrong.input.focus()
    return rule(wrong.setting)
  }

  /** @param {Api.SettingForm} setting */
  #field(setting) {
    const control = controlOf(setting), { input } = control, id = `${this.#name}-${setting.name}`
    const fault = h("p", { id: `${id}-fault`, class: "decide-error", "data-mood": "bad", hidden: true }, rule(setting))
    const field = { ...control, setting, fault }
    input.id = id
    input.setAttribute("aria-describedby", `${id}-sentence ${id}-fault`)
    input.addEventListener("input", () => this.#workspace.change({ [setting.name]: control.value() }))
    this.#list.append(h("div", { class: "readout-field" }, h("label", { for: id }, setting.label), input, h("p", { id: `${id}-sentence`, class: "soft" }, setting.sentence), fault))
    return field
  }

  #show() {
    const { settings } = this.#workspace
    let others = 0
    for (const field of this.#fields) {
      const { setting, value, show } = field, now = settings[setting.name] ?? setting.default
      if (value() !== now) show(now)
      others += Number(changed(setting, now))
      this.#judge(field)
    }
    this.#count.textContent = others ? `(${others} changed)` : ""
  }

  /** Shows or hides a field's error. @param {Field} field */
  #judge({ setting, input, fault, value }) {
    const good = takes(setting, value())
    fault.hidden = good
    if (good) input.removeAttribute("aria-invalid")
    else input.setAttribute("aria-invalid", "true")
    return good
  }
}
