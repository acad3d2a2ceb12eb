// The Serve page: the API's address, code for clients, and recent requests.
import { h, pause } from "../base/dom.js"
import { AWAY } from "../base/jobs.js"
import { Address } from "../serve/address.js"
import { Requests } from "../serve/requests.js"
import { Snippets } from "../serve/snippets.js"

const ASK_AGAIN_MS = 1000

class ServePage {
  #server
  #shell
  #address
  #snippets
  #requests
  #change = 0
  #watching = false

  /** @param {import("../studio.js").Studio} studio */
  constructor({ hosts, server, workspace, shell, commands, help }) {
    this.#server = server
    this.#shell = shell
    this.#address = new Address(server, now => this.#take(now, true))
    this.#snippets = new Snippets(server, workspace, () => this.#seen)
    this.#requests = new Requests(server, shell)
    hosts.serve.append(
      h("header", { class: "serve-row serve-head" }, h("h2", {}, "Serve"),
        h("p", { class: "soft" }, "Programs that use the API of OpenAI, Anthropic or Ollama can use this model and its cache while the studio runs."),
        h("button", { type: "button", onclick: () => help.open("server") }, "All endpoints")),
      this.#address.node, this.#snippets.node, this.#requests.rate, this.#requests.node)
    const here = () => this.#seen
    commands.add(
      { title: "Copy the program", group: "Serve", words: "snippet code clipboard", when: here, run: () => this.#snippets.copier.button.click() },
      { title: "Copy the base URL for OpenAI's clients", group: "Serve", words: "address endpoint", when: here, run: () => this.#address.copiers.openai.button.click() },
      { title: "Copy the base URL for Anthropic's clients", group: "Serve", words: "address endpoint", when: here, run: () => this.#address.copiers.anthropic.button.click() },
      { title: "Switch the server for other programs on or off", group: "Serve", words: "api start stop", when: here, run: () => this.#address.turn() })
    server.on("back", () => { this.#change = 0 })
    document.addEventListener("visibilitychange", () => { if (!document.hidden && this.#seen) this.refresh() })
  }

  get #seen() { return this.#shell.page === "serve" }

  shown() {
    this.#snippets.shown()
    this.#requests.shown()
    this.#watch()
  }

  /** Updates the page for a new model. */
  model() { if (this.#seen) { this.#snippets.shown(); this.refresh() } }

  // Polls each second while the page is visible.
  async #watch() {
    if (this.#watching) return
    this.#watching = true
    while (this.#seen) {
      if (!this.#server.away && !document.hidden) await this.refresh()
      await pause(ASK_AGAIN_MS)
    }
    this.#watching = false
  }

  async refresh() {
    const change = this.#change, answer = await this.#server.ask("served", { change })
    if (answer.away || answer.error != null) return this.#address.away(answer.error ?? AWAY)
    if (change === this.#change) this.#take(answer, change === 0 || answer.change < change)
  }

  /** @param {Api.ServedNow} now @param {boolean} all whether these are all requests */
  #take(now, all) {
    if (all) this.#requests.clear()
    this.#change = now.change
    this.#address.show(now)
    this.#requests.of(now.state, now.since)
    this.#requests.take(now.requests)
  }
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const page = new ServePage(studio)
  studio.on("model", () => page.model())
  return { shown: () => page.shown() }
}
