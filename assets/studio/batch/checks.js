// The checks of every answer: a list, and whether all or any must pass.
import { h, refill } from "../base/dom.js"
import { Emitter } from "../base/events.js"

/** @type {Record<string, string>} */
const PLACEHOLDERS = {
  regex: "\\b\\d+ days\\b", "not regex": "(?i)as an ai", json: '{"type": "object"}', "min words": "20", "max words": "80", "min characters": "100", "max characters": "600",
}

/**
 * "changed": the user edited the checks.
 * @extends {Emitter<{changed: void}>}
 */
export class Checks extends Emitter {
  /** @type {Api.CheckKind[]} */
  #kinds = []
  /** @type {Required<Api.WantedCheck>[]} */
  #checks = []
  #missing = false  // whether checks without text are marked
  #list = h("ul", { class: "check-list" })
  #empty = h("p", { class: "soft" }, "None yet. Rows can have their own checks, in columns such as “expect contains”.")
  #combine = h("select", { "aria-label": "How checks count", onchange: () => this.emit("changed") },
    h("option", { value: "all" }, "all checks pass"), h("option", { value: "any" }, "any check passes"))
  #rule = h("label", { class: "check-rule" }, "An answer passes if ", this.#combine)
  #add = h("button", { type: "button", "data-key": "add-check", disabled: true, onclick: () => this.#append() }, "Add a check")
  node = h("section", { class: "batch-part", "aria-label": "Checks" }, h("header", {}, h("h3", {}, "Checks of every answer"), h("span", { class: "grow" }), this.#rule, this.#add), this.#empty, this.#list)

  get combine() { return /** @type {"all" | "any"} */ (this.#combine.value) }

  /** Checks with a text. */
  get checks() { return this.#checks.filter(({ value }) => value.trim() !== "") }

  /** Marks checks without text, focuses the first, and returns an error; "" if there is none. */
  refusal() {
    const empty = this.#checks.flatMap(({ value }, index) => value.trim() ? [] : [index])
    if (!empty.length) return ""
    this.#missing = true
    this.#show()
    this.#field(empty[0])?.focus()
    return empty.length === 1 ? `Check ${empty[0] + 1} has no text.` : `Checks ${empty.map(index => index + 1).join(", ")} have no text.`
  }

  /** @param {Api.CheckKind[]} kinds @param {{checks?: Required<Api.WantedCheck>[], combine?: string}} kept */
  fill(kinds, { checks, combine }) {
    this.#kinds = kinds
    this.#add.disabled = false
    this.#checks = (Array.isArray(checks) ? checks : []).filter(one => kinds.some(({ name }) => name === one?.kind) && typeof one.value === "string")
    this.#combine.value = combine === "any" ? "any" : "all"
    this.#show()
  }

  #append() {
    this.#checks.push({ kind: this.#kinds[0].name, value: "" })
    this.#missing = false
    this.#show()
    this.#field(this.#checks.length - 1)?.focus()
  }

  /** @param {number} index @returns {HTMLInputElement | null} */
  #field(index) { return this.#list.querySelector(`[data-key="value ${index}"]`) }

  #show() {
    this.#empty.hidden = this.#checks.length > 0
    this.#rule.hidden = this.#checks.length < 2
    refill(this.#list, ...this.#checks.map((check, index) => this.#row(check, index)))
  }

  /** @param {Required<Api.WantedCheck>} check @param {number} index */
  #row(check, index) {
    const meaning = h("span", { class: "hint", id: `check-hint-${index}` })
    const value = h("input", { type: "text", value: check.value, spellcheck: false, "data-key": `value ${index}`, "aria-label": `Text of check ${index + 1}`, "aria-describedby": meaning.id })
    const kind = h("select", { "data-key": `kind ${index}`, "aria-label": `Kind of check ${index + 1}` },
      ...this.#kinds.map(({ name }) => h("option", { value: name, selected: name === check.kind }, name)))
    const explain = () => {
      const missing = this.#missing && !check.value.trim()
      meaning.textContent = missing ? `Check ${index + 1} has no text. Enter a text, or remove the check.` : this.#kinds.find(({ name }) => name === kind.value)?.meaning ?? ""
      meaning.dataset.mood = missing ? "bad" : ""
      if (missing) value.setAttribute("aria-invalid", "true")
      else value.removeAttribute("aria-invalid")
      value.placeholder = PLACEHOLDERS[kind.value] ?? "text"
    }
    kind.addEventListener("change", () => { check.kind = kind.value; explain(); this.emit("changed") })
    value.addEventListener("input", () => { check.value = value.value; explain(); this.emit("changed") })
    explain()
    return h("li", {}, kind, value, h("button", { type: "button", class: "quiet", "aria-label": `Remove check ${index + 1}`, onclick: () => this.#remove(index) }, "✕"), meaning)
  }

  /** @param {number} index */
  #remove(index) {
    this.#checks.splice(index, 1)
    this.#show()
    this.#add.focus()
    this.emit("changed")
  }
}
