// The prompt and settings that all rows start from, where to change them, and the cost of their scope.
import { count, h, plural, refill } from "../base/dom.js"
import { Emitter } from "../base/events.js"

const ADDED = "A row adds its picks to the modules of the Author prompt. Its pick from a union replaces the ticked one. Its text replaces the question."

/** Modules and settings as chips. @param {Pick<Api.RowWhole, "modules" | "settings">} held */
export const chipsOf = ({ modules, settings }) => [
  ...modules.map(path => h("span", { class: "chip", "data-kind": "module", title: path }, path.split("/").at(-1))),
  ...settings.map(({ label, value, changed }) => h("span", { class: "chip", "data-changed": changed, title: changed ? "Not the default" : null }, `${label} ${value}`)),
]

/** The prompt and settings of a batch that ran. @param {Api.Held} held @param {boolean} alone */
export function heldBy(held, alone) {
  const { modules, question, settings } = held
  return [
    h("p", {}, h("span", { class: "soft" }, alone ? "Prompt: each row is its own. " : modules.length ? "Prompt: from Author, with " : "Prompt: from Author, without modules. "), ...chipsOf({ modules, settings: [] }),
      alone ? null : h("span", { class: "soft" }, question ? ` “${question}” ${ADDED}` : ` ${ADDED}`)),
    h("p", {}, h("span", { class: "soft" }, "Settings: "), ...chipsOf({ modules: [], settings })),
  ]
}

/**
 * "author": edit the prompt; "settings": edit the settings; "scope": use another scope.
 * @extends {Emitter<{author: void, settings: void, scope: string}>}
 */
export class Held extends Emitter {
  #prompt = h("div", { class: "held-line" })
  #settings = h("div", { class: "held-line" })
  #rule = h("p", { class: "hint soft" })
  #cost = h("p", { class: "held-cost", role: "status" })
  node

  /** @param {HTMLElement} alone whether rows ignore the open prompt */
  constructor(alone) {
    super()
    this.node = h("section", { class: "batch-part held", "aria-label": "Prompt and settings of every row" },
      h("header", {}, h("h3", {}, "Prompt and settings of every row"), h("span", { class: "grow" }), alone), this.#prompt, this.#settings, this.#rule, this.#cost)
  }

  /** @param {Api.Held} held @param {boolean} alone */
  show({ modules, question, settings }, alone) {
    const none = alone ? "None: each row is a prompt of its own." : "The open prompt has no modules."
    refill(this.#prompt, h("span", { class: "soft" }, alone ? "Prompt" : "Prompt, from Author"), modules.length ? null : none, ...chipsOf({ modules, settings: [] }),
      question ? h("span", { class: "held-question" }, `“${question}”`) : null,
      alone ? null : h("button", { type: "button", "data-key": "author", onclick: () => this.emit("author") }, "Change on Author"))
    refill(this.#settings, h("span", { class: "soft" }, "Settings, of all pages"), ...chipsOf({ modules: [], settings }),
      h("button", { type: "button", "data-key": "settings", onclick: () => this.emit("settings") }, "Change settings"))
    this.#rule.textContent = `${alone ? "" : `${ADDED} `}Columns named “set …” change a setting for their row.`
  }

  /** Shows what the rows encode; null if unknown. @param {{encoded: Api.Encoded, valid: number} | null} found @param {string} scope of the settings */
  cost(found, scope) {
    const { rows = 0, tokens = 0, anchored = 0, scope: named = "" } = found?.encoded ?? {}
    const which = found && rows < found.valid ? `The first ${plural(rows, "row")}` : plural(rows, "row")
    const much = tokens > 1.2 * anchored && named
    this.#cost.dataset.mood = much ? "warn" : ""
    refill(this.#cost,
      !rows ? null : much ? `Scope ${named} encodes the modules again for each row: ${count(tokens)} tokens for ${which.toLowerCase()}, instead of ${count(anchored)} with scope anchored. ` : tokens ? `${which} encode${rows === 1 ? "s" : ""} ${plural(tokens, "token")} not cached yet.` : `${which}: everything is cached.`,
      much && named === scope ? h("button", { type: "button", "data-key": "anchored", onclick: () => this.emit("scope", "anchored") }, "Use scope anchored") : null)
  }
}
