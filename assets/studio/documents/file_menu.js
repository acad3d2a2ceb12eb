// The File menu: opens and saves documents.
import { Documents } from "./document_list.js"
import { h } from "../base/dom.js"
import { fileToOpen, writesFiles } from "./browser_files.js"
import { Exporter } from "./exporter.js"
import { Drops } from "./file_drop.js"
import { Files } from "./file_saving.js"
import { FileState } from "./file_state.js"
import { Importer } from "./importer.js"
import { Opener } from "./opener.js"
import { Shelf } from "./versions.js"
import { Starts } from "../shell/starting_points.js"
import { keysOf, pressed } from "../shell/shortcuts.js"

const LISTED = 8  // documents of the folder listed in the menu

export class FileMenu {
  #workspace
  #server
  #menu = h("div", { class: "menu", role: "menu", hidden: true, id: "file-menu" })
  #button = h("button", { type: "button", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": "file-menu" }, "File")
  #chooser = h("input", { type: "file", accept: ".pml,.xml,application/xml,text/xml", hidden: true, "aria-label": "Open a document from this computer" })
  #imported = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Import files from this computer" })
  #folder = h("input", { type: "file", webkitdirectory: true, hidden: true, "aria-label": "Import a folder from this computer" })
  #opener
  #exporter
  #keeper
  #shelf
  #importer
  #drops
  #documents
  #state
  #starts
  /** @type {Api.SampleTitle[]} */
  #samples = []
  /** @type {string[]} */
  #files = []
  #filling = false
  /** The button with its menu. */
  element = h("div", { class: "menu-anchor" }, this.#button, this.#menu)

  /**
   * @param {HTMLElement} host for dialogs
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/shell.js").Shell} shell shows notices and pages
   */
  constructor(host, workspace, server, shell) {
    this.#workspace = workspace
    this.#server = server
    this.#opener = new Opener(workspace, server, shell)
    this.#exporter = new Exporter(host, workspace, server)
    this.#keeper = new Files(host, workspace, server, shell, this.#opener)
    this.#shelf = new Shelf(host, workspace, server, shell)
    this.#documents = new Documents(host, server, shell)
    this.#state = new FileState(workspace)
    this.#starts = new Starts(host, workspace, server, this.#opener)
    this.#importer = new Importer(host, server, shell)
    this.#drops = new Drops(host, this.#opener, this.#importer, server, shell)
    host.append(this.#chooser, this.#imported, this.#folder)
    this.#wire()
    this.#wireNews(shell)
    server.on("back", () => this.#listFiles())  // a restarted studio may have another folder
  }

  /** The open documents' state in the header. */
  get state() { return this.#state.element }

  get opener() { return this.#opener }

  /** @param {Api.Start} start */
  start({ samples, files, folder, root }) {
    this.#samples = samples
    this.#files = files
    this.#keeper.start({ folder, root })
  }

  /** Saves the draft and each document to its file. */
  async save() {
    await this.#workspace.save()
    await this.#keeper.save()
  }

  /** Updates the list of the folder's documents. @param {string[]} files */
  saved(files) { this.#files = files }

  /** The menu's commands for the palette. @returns {import("../shell/commands.js").Command[]} */
  commands() {
    this.#fill()
    return [...this.#menu.querySelectorAll("button")].map(item => {
      const keys = item.querySelector("kbd")?.textContent ?? ""
      return { title: (item.textContent ?? "").slice(0, keys ? -keys.length : undefined), group: "File", keys, run: () => item.click() }
    })
  }

  #wire() {
    const close = () => { this.#menu.hidden = true; this.#button.setAttribute("aria-expanded", "false") }
    this.#button.addEventListener("click", () => {
      if (!this.#menu.hidden) return close()
      this.#fill()
      this.#menu.hidden = false
      this.#button.setAttribute("aria-expanded", "true")
      this.#menu.querySelector("button")?.focus()
      this.#listFiles()
    })
    this.#menu.addEventListener("click", close)
    this.#menu.addEventListener("focusout", event => { if (!this.#filling && !(event.relatedTarget instanceof Node && this.#menu.contains(event.relatedTarget))) close() })
    this.#menu.addEventListener("keydown", event => {
      const items = [...this.#menu.querySelectorAll("button")], at = items.findIndex(item => item === document.activeElement)
      const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0
      if (step) { event.preventDefault(); items.at((at + step) % items.length)?.focus() }
      if (event.key === "Escape") { event.preventDefault(); close(); this.#button.focus() }
    })
    this.#chooser.addEventListener("change", async () => {
      const file = this.#chooser.files?.[0]
      this.#chooser.value = ""
      if (file) await this.#opener.openChosen(file)
    })
    for (const chooser of [this.#imported, this.#folder]) {
      chooser.addEventListener("change", () => {
        const files = [...chooser.files ?? []].map(file => ({ path: file.webkitRelativePath || file.name, file }))
        chooser.value = ""
        if (files.length) this.#drops.take(files)
      })
    }
    document.addEventListener("keydown", event => {
      if (event.defaultPrevented || !pressed(event, "save")) return
      event.preventDefault()
      this.save()
    })
  }

  // A file that the browser can write is saved there again.
  async #choose() {
    if (!writesFiles()) return this.#chooser.click()
    const handle = await fileToOpen()
    if (handle) await this.#opener.openChosen(await handle.getFile(), handle)
  }

  // Other programs may add and remove files. The focus stays.
  async #listFiles() {
    const { files, folder = false, root = "" } = await this.#server.ask("list_files", {})
    if (!files || folder === this.#keeper.folder && root === this.#keeper.root && files.join("/") === this.#files.join("/")) return
    this.#files = files
    this.#keeper.start({ folder, root })
    if (this.#menu.hidden) return
    const items = () => [...this.#menu.querySelectorAll("button")], words = document.activeElement?.textContent
    const inside = this.#menu.contains(document.activeElement)
    this.#filling = true
    this.#fill()
    if (inside) (items().find(item => item.textContent === words) ?? items()[0]).focus()
    this.#filling = false
  }

  #fill() {
    // Dialogs restore the focus, and the menu is closed by then.
    const chosen = (/** @type {() => unknown} */ action) => { if (this.#menu.contains(document.activeElement)) this.#button.focus(); action() }
    const item = (/** @type {string} */ words, /** @type {() => unknown} */ action, keys = "") => h("button", { type: "button", role: "menuitem", tabindex: "-1", onclick: () => chosen(action) }, words, keys ? h("kbd", {}, keys) : null)
    const head = (/** @type {string} */ words) => h("span", { class: "menu-head" }, words)
    const own = this.#keeper.folder, some = this.#files.slice(0, LISTED)
    this.#menu.replaceChildren(
      item("New…", () => this.#starts.open()),
      item("Open from this computer…", () => this.#choose()),
      item("Import files…", () => this.#imported.click()),
      item("Import a folder…", () => this.#folder.click()),
      item("Recent…", () => this.#documents.recent()),
      item("Versions…", () => this.#shelf.open()),
      h("hr"),
      item("Save", () => this.save(), keysOf("save")),
      item("Save as…", () => this.#keeper.saveAs()),
      item(own ? "Choose another folder…" : "Choose a folder…", () => this.#keeper.choose()),
      item("Rename…", () => this.#keeper.rename()),
      ...(writesFiles() ? [item("Save the schema as a file…", () => this.#keeper.saveFile("schema")), item("Save the prompt as a file…", () => this.#keeper.saveFile("prompt"))] : []),
      item("Download the schema", () => this.#keeper.download("schema")),
      item("Download the prompt", () => this.#keeper.download("prompt")),
      item("Export…", () => this.#exporter.open()),
      h("hr"),
      ...(own ? [head("Your folder"), ...some.map(name => item(name, () => this.#opener.open("open_file", { name }))),
        item(this.#files.length > some.length ? `All ${this.#files.length} documents…` : "Browse the folder…", () => this.#documents.folder()), h("hr")] : []),
      head("Samples"),
      ...this.#samples.map(sample => item(sample.title, () => this.#opener.open("open_sample", { name: sample.name, prompt: 0 }))),
    )
  }

  /** @param {import("../shell/shell.js").Shell} shell */
  #wireNews(shell) {
    const workspace = this.#workspace
    workspace.on("opened", () => { for (const key of ["save", "save-schema", "save-prompt"]) shell.dismiss(key) })
    workspace.on("saved", () => { for (const key of ["conflict", "unsaved"]) shell.dismiss(key) })
    workspace.on("unsaved", sentence => { if (sentence) shell.notice(sentence, { key: "unsaved" }) })
    workspace.on("recovered", ({ restored, keys }) => {
      if (restored) shell.notice("Unsaved text of a closed tab was restored in the editors.", { key: "restored", mood: "info" })
      const last = keys.at(-1)
      if (last) shell.notice("Unsaved text of a closed tab is under File, Versions.", {
        key: "recovered", mood: "info", actions: [["Open it", () => this.#opener.open("open_shelved", { key: last })]] })
    })
  }
}
