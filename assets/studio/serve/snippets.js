// Code that requests the open prompt: for four clients, in three ways.
import { Copier } from "../base/copy_button.js"
import { debounce, h, plural } from "../base/dom.js"
import { AWAY } from "../base/jobs.js"
import { remembered } from "../base/layout_settings.js"
import { address } from "./address.js"

const ASK_AFTER_MS = 60

/** @type {[Api.WriteSnippet["client"], string][]} */
const CLIENTS = [["openai-python", "Python, openai"], ["anthropic-python", "Python, anthropic"], ["curl", "curl"], ["openai-javascript", "JavaScript, openai"]]

/** @type {[NonNullable<Api.WriteSnippet["way"]>, string, string][]} a name, a title, and what it does */
const WAYS = [
  ["inline", "Schema and picks", "The request contains the schema and the picks: each module is read from the cache at any position."],
  ["kept", "Schema uploaded once", "The schema is uploaded under its name first; requests contain only its name and the picks."],
  ["messages", "Plain messages", "The same prompt as messages with the vendor's cache marks: prompts with the same beginning reuse the text before a mark."],
]

/** @type {Record<Api.WriteSnippet["client"], string>} how it is run */
const NEEDS = {
  "openai-python": "pip install openai; save as ask.py and run it",
  "anthropic-python": "pip install anthropic; save as ask.py and run it",
  curl: "In a shell of Linux or macOS",
  "openai-javascript": "npm install openai; save as ask.mjs; node ask.mjs",
}

export class Snippets {
  #server
  #workspace
  #asked = 0
  #shown = ""
  #folds = ""
  /** @type {Set<number>} which of the long texts are unfolded, by their place */
  #unfolded = new Set()
  #client = chosen("client", CLIENTS)
  #way = chosen("way", WAYS)
  #what = h("p", { class: "soft what" })
  #fault = h("p", { class: "fault", role: "status", "data-mood": "warn" })
  #needs = h("p", { class: "soft needs" })
  #text = h("pre", { tabindex: "0", role: "region", "aria-label": "Program" })
  #notes = h("ul", { class: "soft notes", "aria-label": "Notes on the program" })
  #soon = debounce(ASK_AFTER_MS, () => this.#ask())
  copier = new Copier("Copy the program", () => this.#shown)

  /** @param {import("../base/server.js").Server} server @param {import("../documents/workspace.js").Workspace} workspace @param {() => boolean} wanted whether it is visible */
  constructor(server, workspace, wanted) {
    this.#server = server
    this.#workspace = workspace
    const again = () => { if (wanted()) this.#soon() }
    workspace.on("checked", again)
    workspace.on("settings", again)
    this.node = h("section", { class: "card program", "aria-label": "From a program" },
      h("h3", {}, "From a program"),
      h("div", { class: "serve-row choices-of-program" },
        segments("Client", "serve-client", CLIENTS, this.#client, value => { this.#client = value; this.#chose("client", value) }),
        segments("What it sends", "serve-way", WAYS, this.#way, value => { this.#way = value; this.#chose("way", value) })),
      this.#what, this.#fault,
      h("div", { class: "program-frame" }, h("div", { class: "bar" }, this.#needs, this.copier.node), this.#text),
      this.#notes)
  }

  /** Updates the code when it becomes visible. */
  shown() { this.#soon() }

  /** @param {string} name @param {string} value */
  #chose(name, value) {
    remembered(`serve-${name}`, value)
    this.#soon()
  }

  async #ask() {
    const asked = ++this.#asked, client = this.#client, way = this.#way, { origin, settings } = this.#workspace
    const answer = await this.#server.ask("write_snippet", { ...this.#workspace.texts(), origin, settings, client, way, address: address() })
    if (asked !== this.#asked) return
    if (answer.away || answer.error != null) return this.#tell(answer.error ?? AWAY)
    this.#tell(answer.fault ? `${answer.fault} Until then the sample sends a plain request.` : "")
    this.#what.textContent = answer.fault ? "A request without a schema." : WAYS.find(([name]) => name === way)?.[2] ?? ""
    this.#needs.textContent = NEEDS[client]
    this.#show(answer)
    this.#notes.replaceChildren(...answer.notes.map(note => h("li", {}, note)))
  }

  // All lines are present for searches; those of long texts are folded.
  /** @param {Api.Snippet} answer */
  #show({ text, folded }) {
    const folds = JSON.stringify(folded)
    if (this.#shown === text && this.#folds === folds) return
    this.#shown = text
    this.#folds = folds
    const lines = text.split("\n"), joined = (/** @type {number} */ from, /** @type {number} */ to) => lines.slice(from, to).map(line => `${line}\n`).join("")
    let at = 0
    const parts = folded.flatMap(({ first, last }, place) => {
      const before = joined(at, first)
      at = last + 1
      return [before, ...this.#fold(place, joined(first, at), at - first)]
    })
    this.#text.replaceChildren(...parts, lines.slice(at).join("\n"))
  }

  // CSS adds the button's label, so that selections contain only the program.
  /** @param {number} place @param {string} text @param {number} lines */
  #fold(place, text, lines) {
    const body = h("span", {}, text), button = h("button", { type: "button", class: "fold", onclick: () => {
      if (!this.#unfolded.delete(place)) this.#unfolded.add(place)
      turned()
    } })
    const turned = () => {
      const open = this.#unfolded.has(place), words = open ? `fold ${plural(lines, "line")}` : `… ${plural(lines, "more line")}`
      body.hidden = !open
      button.setAttribute("aria-expanded", String(open))
      button.setAttribute("aria-label", button.dataset.words = words)
    }
    turned()
    return [button, body]
  }

  /** @param {string} sentence */
  #tell(sentence) { if (this.#fault.textContent !== sentence) this.#fault.textContent = sentence }
}

/**
 * The saved choice, or the first.
 * @template {string} Value
 * @param {string} name @param {[Value, ...string[]][]} values @returns {Value}
 */
function chosen(name, values) {
  const before = remembered(`serve-${name}`)
  return (values.find(([value]) => value === before) ?? values[0])[0]
}

/**
 * A group of radio buttons in a row.
 * @template {string} Value
 * @param {string} label @param {string} name @param {[Value, string, ...string[]][]} values @param {Value} value @param {(value: Value) => unknown} chose
 */
function segments(label, name, values, value, chose) {
  return h("fieldset", { class: "segments" }, h("legend", { class: "sr" }, label), ...values.map(([one, title]) =>
    h("label", {}, h("input", { type: "radio", name, value: one, checked: one === value, onchange: () => chose(one) }), h("span", {}, title))))
}
