// Where other programs find the engine, what they call the model, and who may come.
import { Copier } from "../copying.js"
import { h } from "../dom.js"
import { AWAY } from "../jobs.js"

/** @type {Record<Api.ServedNow["state"], [string, string, string]>} a word, a mood, and what becomes of requests */
const STATES = {
  ok: ["Ready", "good", "Requests are answered."],
  loading: ["Loading", "warn", "Requests are answered with status 503 (529 to Anthropic's clients) until the model is loaded."],
  off: ["Off", "warn", "Requests are answered with status 503 (529 to Anthropic's clients) until it is switched on, or the studio is started anew."],
  draining: ["Ending", "warn", "Answers under way end, and no request is taken in: the studio is being closed."],
}

/** Where the page reaches the server is where programs on this machine do. */
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
  /** The copy buttons of both base URLs, for who looks for them by name. */
  copiers

  /** @param {import("../server.js").Server} server @param {(now: Api.ServedNow) => unknown} told is given the state after a switch */
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
    const asked = keys ? `A key is asked: requests bring ${keys === 1 ? "the one" : `one of the ${keys}`} that the server was started with; the programs below read it from PML_API_KEY.`
      : "No key is asked; clients that want one may send any."
    const sites = origins.length ? ` So may pages of ${origins.join(", ")}.` : ""
    const who = `${asked} Programs on this machine may ask, and no others.${sites}`
    if (this.#who.textContent !== who) this.#who.textContent = who
  }

  /** What is there instead of a state. @param {string} sentence */
  away(sentence) {
    this.#pill.textContent = "Unknown"
    this.#pill.dataset.mood = "bad"
    this.#what.textContent = sentence
    this.#switch.disabled = true
  }

  /** Switches it on or off. */
  async turn() {
    const answer = await this.#server.ask("switch_api", { on: !this.#on })
    if (answer.away || answer.error != null) return this.away(answer.error ?? AWAY)
    this.#told(answer)
  }
}
