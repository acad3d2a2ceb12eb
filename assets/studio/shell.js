// The head of the page: document, menu, model, and what has to be said to the user; beside it the rail of pages.
import { count, h } from "./dom.js"
import { Emitter } from "./events.js"
import { FileMenu } from "./filemenu.js"
import { icon } from "./icons.js"
import { Rail } from "./rail.js"

/**
 * "shown": a page of the registry is.
 * @extends {Emitter<{shown: string}>}
 */
export class Shell extends Emitter {
  #workspace
  #server
  #rail
  #pill = h("button", { type: "button", class: "pill model", "aria-describedby": "model-facts" }, "loading…")
  #facts = h("div", { class: "facts-card", id: "model-facts", role: "tooltip" })
  #notices = h("div", { class: "notices", "aria-live": "assertive" })
  #files
  #signs = h("div", { class: "signs" })

  /** The place in the head for what acts on the open document from every page. */
  tools = h("div", { class: "tools" })

  /**
   * @param {HTMLElement} host
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("./server.js").Server} server
   * @param {import("./rail.js").Entry[]} pages
   */
  constructor(host, workspace, server, pages) {
    super()
    this.#workspace = workspace
    this.#server = server
    this.#files = new FileMenu(host, workspace, server, this)
    this.#rail = new Rail(pages)
    host.append(
      this.#rail.node,
      h("header", { class: "top" },
        this.#files.state,
        this.#files.element,
        this.tools,
        h("div", { class: "model-anchor" }, this.#pill, this.#facts),
        this.#signs),
      this.#notices)
    this.sign("theme", "Light or dark", () => this.turn())
    this.#pill.addEventListener("click", () => { if (this.#rail.has("models")) this.go("models") })
    this.#rail.on("unknown", ({ wanted, title }) => {
      this.notice(`The studio has no page “${wanted}”; this is ${title}.`, { key: "page", mood: "info" })
      scrollTo(0, 0)
    })
    let last = ""
    this.#rail.on("shown", page => {
      if (last && page !== last) this.dismiss("page")
      last = page
      this.emit("shown", page)
    })
    this.#rail.start()
    this.#followTheme()
    this.#wireNews()
  }

  /** @param {Api.Start} start */
  start(start) { this.#files.start(start) }

  /** What is being done for the model that is not there yet. @param {string} words */
  loading(words) { this.#pill.textContent = `${words}…` }

  /** The model is there. @param {Api.ModelFacts} model */
  model(model) {
    const rounded = /^(int\d+|four-bit)$/.test(model.weights) ? ` · ${model.weights} weights` : ""
    this.#pill.replaceChildren(h("span", { class: "name" }, model.own_name), ` · ${model.device} · ${model.dtype}${rounded}`)
    this.#facts.replaceChildren(
      ...(model.about ? [h("p", {}, model.about)] : []),
      h("p", {}, model.summary),
      h("p", { class: "soft" }, `${model.family}; ${count(model.context_length)} tokens of context; ${count(model.bytes_per_token)} bytes of cache per token.`))
  }

  /** @param {string} page @param {string} [place] in it */
  go(page, place) { this.#rail.go(page, place) }

  /** The place of a page is there, which may be the one that is shown. */
  unveil() { this.#rail.unveil() }

  /** What the File menu offers now. */
  fileCommands() { return this.#files.commands() }

  /** A sign in the head that does something. @param {string} name of the sign @param {string} title @param {() => unknown} action */
  sign(name, title, action) {
    this.#signs.prepend(h("button", { type: "button", class: "quiet sign-button", "aria-label": title, title, onclick: action }, icon(name)))
  }

  /** The pages of the registry, in its order. */
  get pages() { return this.#rail.entries }

  /**
   * A sentence at the top of the page, with buttons [words, action]; it stays until it is dismissed.
   * @param {string} sentence
   * @param {{key?: string, actions?: import("./files.js").Action[], mood?: string, closed?: () => unknown}} options
   */
  notice(sentence, { key = sentence, actions = [], mood = "bad", closed = () => {} } = {}) {
    this.dismiss(key)
    /** @type {HTMLElement} */
    const node = h("div", { class: "notice", "data-mood": mood, "data-notice": key }, h("p", {}, sentence),
      ...actions.map(([words, action]) => h("button", { type: "button", onclick: () => { node.remove(); action() } }, words)),
      h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => { node.remove(); closed() } }, "✕"))
    this.#notices.append(node)
  }

  /** @param {string} key */
  dismiss(key) { for (const node of this.#notices.querySelectorAll("[data-notice]")) if (node.getAttribute("data-notice") === key) node.remove() }

  /**
   * Opens a workspace by asking the server `question`; the present one goes to the shelf.
   * @template {import("./opener.js").Question} Question
   * @param {Question} question
   * @param {Omit<Api.Questions[Question][0], "page">} request
   */
  open(question, request) { return this.#files.opener.open(question, request) }

  /** Keeps the draft, and writes each document to the file that it came from. */
  save() { return this.#files.save() }

  /** What is in the folder, after something was written there. @param {string[]} [files] */
  saved(files) { if (files) this.#files.saved(files) }

  /** The name of the page that is shown. */
  get page() { return this.#rail.page }

  /** The place in it that the address names; "" for all of it. */
  get place() { return this.#rail.place }

  #followTheme() {
    const chosen = localStorage.getItem("prompt-cache-studio.theme")
    if (chosen) document.body.classList.toggle("dark", chosen === "dark")
  }

  /** Turns the page light or dark. */
  turn() {
    const dark = document.body.classList.toggle("dark")
    localStorage.setItem("prompt-cache-studio.theme", dark ? "dark" : "light")
  }

  #wireNews() {
    const workspace = this.#workspace
    workspace.on("unchecked", sentence => { if (sentence) this.notice(sentence, { key: "unchecked" }); else this.dismiss("unchecked") })
    workspace.on("notice", sentence => this.notice(sentence, { key: "document" }))
    this.#server.on("away", () => this.notice(workspace.keepHere()
      ? "The studio's server does not answer. Your text is kept in this browser, and is saved when the server is back and this page is open."
      : "The studio's server does not answer, and this browser has no room for your text: leave the page open until the server is back.", { key: "away" }))
    this.#server.on("back", () => this.dismiss("away"))
    this.#server.on("late", () => this.notice("The studio's server is there and answers late: the machine is busy. Nothing is lost.", { key: "late", mood: "info" }))
    this.#server.on("prompt", () => this.dismiss("late"))
    this.#server.on("renewed", () => this.notice("Another version of the studio was started. Your text is kept: load the page again to use that version.",
      { key: "renewed", mood: "info", actions: [["Load the page again", () => location.reload()]] }))
  }
}
