// The head of the page: pages, document, menu, model, and what has to be said to the user.
import { count, h } from "./dom.js"
import { Emitter } from "./events.js"
import { Exporter } from "./exporter.js"
import { Files, decoded } from "./files.js"

const clock = (/** @type {string | number} */ iso) => new Date(iso).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })

/** @typedef {NonNullable<Api.OpenFile["encoding"]>} Encoding */

/** @type {Partial<Record<Encoding, string>>} */
const OFFERS = { "windows-1252": "Windows-1252", "utf-16": "UTF-16" }

/**
 * "shown": a page of the registry is.
 * @extends {Emitter<{shown: string}>}
 */
export class Shell extends Emitter {
  #workspace
  #server
  /** @type {Map<string, HTMLAnchorElement>} */
  #nav
  #name = h("span", { class: "document" })
  #saved = h("span", { class: "soft saved", role: "status" })
  #pill = h("button", { type: "button", class: "pill model", "aria-describedby": "model-facts" }, "loading…")
  #facts = h("div", { class: "facts-card", id: "model-facts", role: "tooltip" })
  #menu = h("div", { class: "menu", role: "menu", hidden: true, id: "file-menu" })
  #menuButton = h("button", { type: "button", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": "file-menu" }, "File")
  #chooser = h("input", { type: "file", accept: ".pml,.xml,application/xml,text/xml", hidden: true, "aria-label": "Open a document from this computer" })
  #notices = h("div", { class: "notices", "aria-live": "assertive" })
  #dialog = h("dialog", { class: "shelf", "aria-label": "Earlier workspaces" })
  #exporter
  #keeper
  #draft = ""
  #written = ""
  /** @type {Api.SampleTitle[]} */
  #samples = []
  /** @type {string[]} */
  #files = []
  #filling = false

  /**
   * @param {HTMLElement} host
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("./server.js").Server} server
   * @param {{name: string, title: string}[]} pages
   */
  constructor(host, workspace, server, pages) {
    super()
    this.#workspace = workspace
    this.#server = server
    this.#exporter = new Exporter(host, workspace, server)
    this.#keeper = new Files(host, workspace, server, this)
    this.#nav = new Map(pages.map(({ name, title }) => [name, h("a", { href: `#/${name}` }, title)]))
    host.append(
      h("header", { class: "top" },
        h("h1", {}, "Prompt Cache Studio"),
        h("nav", { "aria-label": "Pages" }, ...this.#nav.values()),
        h("div", { class: "workspace-name" }, this.#name, this.#saved),
        h("div", { class: "menu-anchor" }, this.#menuButton, this.#menu),
        h("button", { type: "button", class: "quiet", "aria-label": "Light or dark", title: "Light or dark", onclick: () => this.#turn() }, "◐"),
        h("div", { class: "model-anchor" }, this.#pill, this.#facts)),
      this.#notices, this.#chooser, this.#dialog)
    addEventListener("hashchange", () => this.#showPage())
    this.#showPage()
    this.#followTheme()
    this.#wireMenu()
    this.#wireNews()
  }

  /** @param {Api.Start} start */
  start({ samples, files, folder }) {
    this.#samples = samples
    this.#files = files
    this.#keeper.start({ folder })
  }

  /** What is being done for the model that is not there yet. @param {string} words */
  loading(words) { this.#pill.textContent = `${words}…` }

  /** The model is there. @param {Api.ModelFacts} model */
  model(model) {
    const name = model.name.startsWith("/") ? model.name.split("/").findLast(part => part) : model.name
    const rounded = /^int\d+$/.test(model.weights) ? ` · ${model.weights} weights` : ""
    this.#pill.textContent = `${name} · ${model.device} · ${model.dtype}${rounded}`
    this.#facts.replaceChildren(
      ...(model.about ? [h("p", {}, model.about)] : []),
      h("p", {}, model.summary),
      h("p", { class: "soft" }, `${model.family}; ${count(model.context_length)} tokens of context; ${count(model.bytes_per_token)} bytes of cache per token.`))
  }

  /** @param {string} page */
  go(page) { location.hash = `#/${page}` }

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
   * @template {"open_sample" | "open_file" | "open_text" | "open_shelved"} Question
   * @param {Question} question
   * @param {Omit<Api.Questions[Question][0], "page">} request
   * @returns {Promise<void>}
   */
  async open(question, request) {
    const asked = /** @type {Api.Questions[Question][0]} */ ({ ...request, page: this.#workspace.page() })
    const answer = /** @type {import("./server.js").Reply<Api.Opened>} */ (await this.#server.ask(question, asked))
    if (answer.away) return
    if (answer.error != null) return this.notice(answer.error)
    const { encoding } = answer
    if (encoding) return this.#offer(answer.message ?? "", encoding, () => this.open(question, { ...request, encoding }))
    this.go("author")
    if (answer.workspace) await this.#workspace.open(answer.workspace)
  }

  /** Keeps the draft, and writes each document to the file that it came from. */
  async save() {
    await this.#workspace.save()
    this.saved(await this.#keeper.save())
  }

  /** Says what was written, after it was. @param {string[]} names */
  saved(names, files = this.#files) {
    this.#files = files
    this.#name.textContent = this.#workspace.name || "Untitled"
    this.#written = names.length ? `${names.join(", ")} written ${clock(Date.now())}` : ""
    this.#showSaved()
  }

  #showSaved() {
    const missing = this.#workspace.unwritten().map(kind => `${this.#workspace.fileOf(kind)} not written`)
    this.#saved.textContent = [...missing, this.#written && !missing.length ? this.#written : this.#draft].filter(Boolean).join(" · ")
    this.#saved.dataset.mood = missing.length ? "warn" : ""
  }

  /** @param {string} sentence @param {Encoding} encoding @param {() => unknown} open */
  #offer(sentence, encoding, open) {
    this.notice(sentence, { key: "encoding", mood: "info", actions: [[`Open as ${OFFERS[encoding]}`, open]] })
  }

  /** @param {File} file @param {Encoding} [encoding] */
  async #openChosen(file, encoding) {
    const bytes = new Uint8Array(await file.arrayBuffer()), found = decoded(bytes, encoding)
    if (found) return this.open("open_text", { name: file.name, ...found })
    const other = bytes[0] >= 0xfe ? "utf-16" : "windows-1252"
    if (encoding === other) return this.notice(`${file.name} is broken ${OFFERS[other]}. Convert it to UTF-8 first.`)
    this.#offer(`${file.name} is not UTF-8. Open it as ${OFFERS[other]}? It will be saved as UTF-8.`, other, () => this.#openChosen(file, other))
  }

  /** The name of the page that is shown. */
  get page() { return document.documentElement.dataset.page ?? "" }

  #showPage() {
    const names = [...this.#nav.keys()], wanted = location.hash.replace(/^#\/?/, ""), page = names.includes(wanted) ? wanted : names[0]
    if (wanted && wanted !== page) {
      history.replaceState(history.state, "", `#/${page}`)
      this.notice(`The studio has no page “${wanted}”; this is ${this.#nav.get(page)?.textContent}.`, { key: "page", mood: "info" })
      scrollTo(0, 0)
    } else if (page !== this.page) this.dismiss("page")
    document.documentElement.dataset.page = page
    for (const [name, link] of this.#nav) {
      if (name === page) link.setAttribute("aria-current", "page")
      else link.removeAttribute("aria-current")
    }
    this.emit("shown", page)
  }

  #followTheme() {
    const chosen = localStorage.getItem("prompt-cache-studio.theme")
    if (chosen) document.body.classList.toggle("dark", chosen === "dark")
  }

  #turn() {
    const dark = document.body.classList.toggle("dark")
    localStorage.setItem("prompt-cache-studio.theme", dark ? "dark" : "light")
  }

  #wireMenu() {
    const close = () => { this.#menu.hidden = true; this.#menuButton.setAttribute("aria-expanded", "false") }
    this.#menuButton.addEventListener("click", () => {
      if (!this.#menu.hidden) return close()
      this.#fillMenu()
      this.#menu.hidden = false
      this.#menuButton.setAttribute("aria-expanded", "true")
      this.#menu.querySelector("button")?.focus()
      this.#listFiles()
    })
    this.#menu.addEventListener("click", close)
    this.#menu.addEventListener("focusout", event => { if (!this.#filling && !(event.relatedTarget instanceof Node && this.#menu.contains(event.relatedTarget))) close() })
    this.#menu.addEventListener("keydown", event => {
      const items = [...this.#menu.querySelectorAll("button")], at = items.findIndex(item => item === document.activeElement)
      const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0
      if (step) { event.preventDefault(); items.at((at + step) % items.length)?.focus() }
      if (event.key === "Escape") { event.preventDefault(); close(); this.#menuButton.focus() }
    })
    this.#chooser.addEventListener("change", async () => {
      const file = this.#chooser.files?.[0]
      this.#chooser.value = ""
      if (!file) return
      if (file.size > 5 * 1024 * 1024) return this.notice(`${file.name} is larger than 5 MB. Open a smaller file.`)
      await this.#openChosen(file)
    })
    document.addEventListener("keydown", event => {
      if (event.defaultPrevented || !(event.ctrlKey || event.metaKey) || event.key !== "s") return
      event.preventDefault()
      this.save()
    })
  }

  // Other programs put files into the folder and take them away. What has the focus keeps it.
  async #listFiles() {
    if (!this.#keeper.folder) return
    const { files } = await this.#server.ask("list_files", {})
    if (!files || files.join("/") === this.#files.join("/")) return
    this.#files = files
    if (this.#menu.hidden) return
    const items = () => [...this.#menu.querySelectorAll("button")], words = document.activeElement?.textContent
    const inside = this.#menu.contains(document.activeElement)
    this.#filling = true
    this.#fillMenu()
    if (inside) (items().find(item => item.textContent === words) ?? items()[0]).focus()
    this.#filling = false
  }

  #fillMenu() {
    const item = (/** @type {string} */ words, /** @type {() => unknown} */ action, keys = "") => h("button", { type: "button", role: "menuitem", tabindex: "-1", onclick: action }, words, keys ? h("kbd", {}, keys) : null)
    const own = this.#keeper.folder
    this.#menu.replaceChildren(
      h("span", { class: "menu-head" }, "Samples"),
      ...this.#samples.map(sample => item(sample.title, () => this.open("open_sample", { name: sample.name, prompt: 0 }))),
      h("hr"),
      ...(this.#files.length ? [h("span", { class: "menu-head" }, "Your folder"),
        ...this.#files.map(name => item(name, () => this.open("open_file", { name }))), h("hr")] : []),
      item("Open a file…", () => this.#chooser.click()),
      item("Earlier workspaces…", () => this.#showShelf()),
      h("hr"),
      item("Save", () => this.save(), "Ctrl S"),
      ...(own ? [item("Save the schema as…", () => this.#keeper.saveAs("schema")), item("Save the prompt as…", () => this.#keeper.saveAs("prompt"))] : []),
      item("Download the schema", () => this.#keeper.download("schema")),
      item("Download the prompt", () => this.#keeper.download("prompt")),
      item("Export…", () => this.#exporter.open()),
    )
  }

  async #showShelf() {
    const { shelf = [], error } = await this.#server.ask("shelf", {})
    if (error) return this.notice(error)
    const close = h("button", { type: "button", onclick: () => this.#dialog.close() }, "Close")
    const rows = shelf.map(kept => h("li", {}, h("button", { type: "button", onclick: () => { this.#dialog.close(); this.open("open_shelved", { key: kept.key }) } },
      h("strong", {}, kept.name || "Untitled"), h("span", { class: "soft" }, new Date(kept.saved).toLocaleString()), h("pre", {}, kept.prompt))))
    this.#dialog.replaceChildren(h("h2", {}, "Earlier workspaces"),
      rows.length ? h("ol", {}, ...rows) : h("p", { class: "soft" }, "Nothing yet. When you open another document, the one before it is kept here."), close)
    this.#dialog.showModal()
  }

  #wireNews() {
    const workspace = this.#workspace
    const say = (/** @type {string} */ draft) => { this.#draft = draft; this.#showSaved() }
    workspace.on("opened", () => {
      this.#name.textContent = workspace.name || "Untitled"
      this.#written = ""
      for (const key of ["save", "save-schema", "save-prompt", "encoding"]) this.dismiss(key)
      say("")
    })
    workspace.on("typing", () => {
      this.#name.textContent = workspace.name || "Untitled"  // an undo may have brought another document back
      this.#written = ""
      say("edited")
    })
    workspace.on("saving", () => say("saving…"))
    workspace.on("saved", at => { say(`draft kept ${clock(at)}`); for (const key of ["conflict", "unsaved"]) this.dismiss(key) })
    workspace.on("unsaved", sentence => {
      say("draft not kept")
      if (sentence) this.notice(sentence, { key: "unsaved" })
    })
    workspace.on("written", () => this.#showSaved())
    workspace.on("unchecked", sentence => { if (sentence) this.notice(sentence, { key: "unchecked" }); else this.dismiss("unchecked") })
    workspace.on("notice", sentence => this.notice(sentence, { key: "document" }))
    workspace.on("conflict", ({ conflict, message }) => {
      say("draft not kept")
      this.notice(message, { key: "conflict", actions: [
        ["Load that text", async () => { if (await workspace.shelve()) workspace.open(conflict) }],
        ["Keep this text", () => workspace.save({ force: true })],
      ] })
    })
    workspace.on("recovered", ({ restored, keys }) => {
      if (restored) this.notice("Text that was not saved before its tab was closed is back in the editors.", { key: "restored", mood: "info" })
      const last = keys.at(-1)
      if (last) this.notice("Text that was not saved before its tab was closed is among the earlier workspaces (File menu).", {
        key: "recovered", mood: "info", actions: [["Open it", () => this.open("open_shelved", { key: last })]] })
    })
    this.#server.on("away", () => this.notice(workspace.keepHere()
      ? "The studio's server does not answer. Your text is kept in this browser, and is saved when the server is back and this page is open."
      : "The studio's server does not answer, and this browser has no room for your text: leave the page open until the server is back.", { key: "away" }))
    this.#server.on("back", () => this.dismiss("away"))
  }
}
