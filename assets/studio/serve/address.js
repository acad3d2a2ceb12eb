// The API's address, the model's name, and access.
import { Copier } from "../base/copy_button.js"
import { h } from "../base/dom.js"
import { AWAY } from "../base/jobs.js"

/** @type {Record<Api.ServedNow["state"], [string, string, string]>} a word, a mood, and what becomes of requests */
const STATES = {
  ok: ["Ready", "good", "Requests are answered."],
  loading: ["Loading", "warn", "Requests are answered with status 503 (529 to Anthropic's clients) until the model is loaded."],
  off: ["Off", "warn", "Requests are answered with status 503 (529 to Anthropic's clients) until it is switched on, or the studio restarts."],
  draining: ["Ending", "warn", "The studio is closing: running answers finish, and new requests are rejected."],
}

/** The page's own origin is also the API's. */
export const address = () => location.origin

export class Address {
  #server
  #told
  #pill = h("span", { class: "pill state" }, "…")
  #what = h("p", { class: "served-state", role: "status" })
  #switch = h("button", { type: "button", disabled: true, onclick: () => this.turn() }, "Switch off")
  #model = h("code", {}, "…")
  #copier = new Copier("Copy the model's name", () => this.#model.textContent ?? "")
  #aliases = h("span", { class: "soft" })
  #who = h("p", { class: "soft" })
  #on = true
  /** The copy buttons of both base URLs, by name. */
  copiers

  /** @param {import("../base/server.js").Server} server @param {(now: Api.ServedNow) => unknown} told called with the state after a switch */
  constructor(server, told) {
    this.#server = server
    this.#told = told
    this.copiers = {
      openai: new Copier("Copy the base URL for OpenAI's clients", () => `${address()}/v1`),
      anthropic: new Copier("Copy the base URL for Anthropic's clients", address),
    }
    const row = (/** @type {string} */ name, /** @type {Node[]} */ value, /** @type {Copier} */ copier) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value, copier.node))
    this.node = h("section", { class: "card address", "aria-label": "Address" },
      h("header", { class: "serve-row" }, h("h3", {}, "Address"), this.#pill, this.#what, this.#switch),
      h("dl", { class: "addresses" },
        row("Base URL, OpenAI", [h("code", {}, `${address()}/v1`)], this.copiers.openai),
        row("Base URL, Anthropic", [h("code", {}, address())], this.copiers.anthropic),
        row("Model", [this.#model, this.#aliases], this.#copier)),
      this.#who)
  }

  /** @param {Api.ServedNow} now */
  show({ state, model, aliases, keys, origins }) {
    const [word, mood, what] = STATES[state]
    this.#on = state !== "off"
    this.#pill.dataset.mood = mood
    if (this.#pill.textContent !== word) this.#pill.textContent = word
    if (this.#what.textContent !== what) this.#what.textContent = what
    this.#switch.disabled = state === "draining"
    this.#switch.classList.toggle("primary", !this.#on)
    this.#switch.textContent = this.#on ? "Switch off" : "Switch on"
    this.#model.textContent = model || "not loaded yet"
    this.#copier.node.hidden = !model
    this.#aliases.textContent = aliases.length ? `also called ${aliases.join(", ")}` : ""
    const asked = keys ? `Requests need ${keys === 1 ? "the server's key" : `one of the server's ${keys} keys`}; the programs below read it from PML_API_KEY.`
      : "No key is needed; clients may send any."
    const sites = origins.length ? ` Pages of ${origins.join(", ")} may also send requests.` : ""
    const who = `${asked} Only programs on this machine may send requests.${sites}`
    if (this.#who.textContent !== who) this.#who.textContent = who
  }

  /** Shows a message instead of a state. @param {string} sentence */
  away(sentence) {
    this.#pill.textContent = "Unknown"
    this.#pill.dataset.mood = "bad"
    this.#what.textContent = sentence
    this.#switch.disabled = true
  }

  /** Switches the API on or off. */
  async turn() {
    const answer = await this.#server.ask("switch_api", { on: !this.#on })
    if (answer.away || answer.error != null) return this.away(answer.error ?? AWAY)
    this.#told(answer)
  }
}
