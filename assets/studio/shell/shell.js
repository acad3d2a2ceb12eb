// The page's header: document, menu, model and notices; and the navigation.
import { count, h } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { FileMenu } from "../documents/file_menu.js"
import { icon } from "../base/icons.js"
import { Rail } from "./navigation.js"

const MISSING = "server does not answer"

/** Puts the sentences about a missing server into the past, everywhere on the page. */
function toPast() {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, node => node.parentElement?.closest(".cm-editor, pre") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT)
  while (texts.nextNode()) {
    const text = /** @type {Text} */ (texts.currentNode)
    if (text.data.includes(MISSING)) text.data = text.data.replace(MISSING, "server did not answer").replace(" when it is back", "")
  }
}

/**
 * "shown": a page.
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

  /** Header buttons that act on the open document from every page. */
  tools = h("div", { class: "tools" })

  /**
   * @param {HTMLElement} host
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("./navigation.js").Entry[]} pages
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

  /** Shows the model's loading progress. @param {string} words */
  loading(words) {
    this.#pill.textContent = `${words}…`
    this.#facts.replaceChildren(h("p", {}, `The studio is ${words}. You can write meanwhile.`))
  }

  /** Shows the loaded model. @param {Api.ModelFacts} model */
  model(model) {
    const rounded = /^(int\d+|four-bit)$/.test(model.weights) ? ` · ${model.weights} weights` : ""
    this.#pill.replaceChildren(h("span", { class: "name" }, model.own_name), h("span", {}, ` · ${model.device} · ${model.dtype}${rounded}`))
    this.#facts.replaceChildren(
      ...(model.about ? [h("p", {}, model.about)] : []),
      h("p", {}, model.summary),
      h("p", { class: "soft" }, `${model.family}; ${count(model.context_length)} tokens of context; ${count(model.bytes_per_token)} bytes of cache per token.`))
  }

  /** @param {string} page @param {string} [place] in the page */
  go(page, place) { this.#rail.go(page, place) }

  /** Shows the page if its element was mounted. */
  unveil() { this.#rail.unveil() }

  /** The File menu's commands. */
  fileCommands() { return this.#files.commands() }

  /** An icon button in the header. @param {string} name of the icon @param {string} title @param {() => unknown} action */
  sign(name, title, action) {
    this.#signs.prepend(h("button", { type: "button", class: "quiet sign-button", "aria-label": title, title, onclick: action }, icon(name)))
  }

  /** The pages in order. */
  get pages() { return this.#rail.entries }

  /**
   * Shows a notice with buttons [words, action] until the user dismisses it.
   * @param {string} sentence
   * @param {{key?: string, actions?: import("../documents/file_saving.js").Action[], mood?: string, closed?: () => unknown}} options
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
   * Opens a workspace through an endpoint; the current one becomes a version.
   * @template {import("../documents/opener.js").Question} Question
   * @param {Question} question
   * @param {Omit<Api.Questions[Question][0], "page">} request
   */
  open(question, request) { return this.#files.opener.open(question, request) }

  /** Saves the draft and each document to its file. */
  save() { return this.#files.save() }

  /** Updates the list of the folder's documents. @param {string[]} [files] */
  saved(files) { if (files) this.#files.saved(files) }

  /** The current page's name. */
  get page() { return this.#rail.page }

  /** The URL's part after the page's name, or "". */
  get place() { return this.#rail.place }

  #followTheme() {
    const chosen = localStorage.getItem("prompt-cache-studio.theme")
    if (chosen) document.body.classList.toggle("dark", chosen === "dark")
  }

  /** Switches between light and dark. */
  turn() {
    const dark = document.body.classList.toggle("dark")
    localStorage.setItem("prompt-cache-studio.theme", dark ? "dark" : "light")
  }

  #wireNews() {
    const workspace = this.#workspace
    workspace.on("unchecked", sentence => { if (sentence) this.notice(sentence, { key: "unchecked" }); else this.dismiss("unchecked") })
    workspace.on("notice", sentence => this.notice(sentence, { key: "document" }))
    this.#server.on("away", () => this.notice(workspace.keepHere()
      ? "The studio's server does not answer. Your text is stored in this browser. It is saved when the server is back and this page is open."
      : "The studio's server does not answer, and this browser has no room for your text: leave the page open until the server is back.", { key: "away" }))
    this.#server.on("back", () => { this.dismiss("away"); toPast() })
    this.#server.on("late", () => this.notice("The studio's server is slow because the machine is busy. Nothing is lost.", { key: "late", mood: "info" }))
    this.#server.on("prompt", () => this.dismiss("late"))
    this.#server.on("renewed", () => this.notice("Another version of the studio was started. Your text is not lost: reload the page to use that version.",
      { key: "renewed", mood: "info", actions: [["Reload the page", () => location.reload()]] }))
  }
}
