// The API's address, the model's name, and access.
import { Copier } from "../base/copy_button.js"
import { h } from "../base/dom.js"
import { AWAY } from "../base/jobs.js"

/** @type {Record<Api.ServedNow["state"], [string, string, string]>} a word, a mood, and what becomes of requests */
const STATES = {
  ok: ["Ready", "good", "Requests are answered."],
  loading: ["Loading", "warn", "Requests are answered with status 503 (529 to Anthropic's clients) until the model is loaded."],
  off: ["Off", "warn", "Requests are answered with status 503 (529 to Anthropic's clients) until it is switched on, or the studio restarts."],
  draining: ["Closing", "warn", "The studio is closing: running answers finish, and new requests are rejected."],
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
  #own = h("input", { type: "text", autocomplete: "off", spellcheck: false, placeholder: "gpt-4o, my-model", "aria-label": "Further names of the model, separated by commas", title: "Requests may use any of these names. They are stored for the next start.", oninput: () => this.#offer(), onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") this.#name() } })
  #save = h("button", { type: "button", hidden: true, onclick: () => this.#name() }, "Save")
  #named = ""  // the stored names
  #said = h("span", { class: "soft", role: "status" })
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
        row("Model", [this.#model, this.#aliases], this.#copier),
        h("div", {}, h("dt", {}, "Other names"), h("dd", {}, this.#own, this.#save, this.#said))),
      this.#who)
  }

  /** @param {Api.ServedNow} now */
  show({ state, model, aliases, own_aliases: own, keys, origins }) {
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
    const named = own.join(", ")
    if (named !== this.#named && this.#own.value === this.#named) this.#own.value = named
    this.#named = named
    this.#offer()
    const asked = keys ? `Requests need ${keys === 1 ? "the server's key" : `one of the server's ${keys} keys`}; the programs below read it from PML_API_KEY.`
      : "No key is needed; clients may send any."
    const sites = origins.length ? ` Pages of ${origins.join(", ")} may also send requests.` : ""
    const who = `${asked} Only programs on this machine may send requests.${sites}`
    if (this.#who.textContent !== who) this.#who.textContent = who
  }

  #offer() {
    this.#save.hidden = this.#own.value.trim() === this.#named
    if (!this.#save.hidden) this.#said.textContent = ""
  }

  async #name() {
    const answer = await this.#server.ask("name_model", { names: this.#own.value.split(",") })
    const failed = answer.away || answer.error != null
    this.#said.dataset.mood = failed ? "bad" : ""
    if (answer.away || answer.error != null) {
      this.#said.textContent = answer.error ?? AWAY
      return
    }
    this.#own.value = this.#named
    this.#told(answer)
    this.#said.textContent = this.#named ? "Saved." : "No other names."
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
