// Lists of documents to open: recent ones, and those of the user's folder.
import { bytes, h, moment, plural } from "../base/dom.js"

const KINDS = { schema: "Schema", prompt: "Prompt", both: "Sample", workspace: "Workspace", folder: "Folder", other: "Not PML" }
const AWAY = "The studio's server does not answer. Try again when it is back."

/** @typedef {{name: string, kind: string, about: string, size: string, time: string, missing: string, holds?: string, open: () => unknown, forget?: () => unknown}} Row */

export class Documents {
  #server
  #shell
  #title = h("h2", { id: "documents-title" })
  #about = h("p", { class: "soft" })
  #find = h("input", { type: "search", id: "documents-find", placeholder: "Filter by name or schema", "aria-label": "Filter by name or schema", autocomplete: "off", spellcheck: "false" })
  #kind = h("select", { "aria-label": "Kind" }, ...[["", "All"], ["schema", "Schemas"], ["prompt", "Prompts"], ["folder", "Folders"]].map(([value, words]) => h("option", { value }, words)))
  #head = h("tr")
  #body = h("tbody")
  /** Folder lists have columns for schema, size and time; recent ones only the time. */
  #own = true
  #none = h("p", { class: "soft", role: "status" })
  #dialog = h("dialog", { class: "documents", "aria-labelledby": "documents-title" },
    this.#title, this.#about,
    h("div", { class: "filters" }, this.#find, this.#kind),
    h("div", { class: "listed" }, h("table", {},
      h("thead", {}, this.#head),
      this.#body)),
    this.#none,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => this.#dialog.close() }, "Close")))
  /** @type {Row[]} */
  #rows = []
  /** The first row gets the focus once there are rows. */
  #awaited = false
  #loading = false
  /** Identifies the current list, to ignore late answers. */
  #turn = 0
  #empty = ""
  /** Names of all documents in the folder. @type {string[]} */
  #files = []

  /**
   * @param {HTMLElement} host
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/shell.js").Shell} shell opens documents
   */
  constructor(host, server, shell) {
    this.#server = server
    this.#shell = shell
    this.#find.addEventListener("input", () => { this.#awaited = false; this.#show() })
    this.#kind.addEventListener("change", () => this.#show())
    this.#find.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== "ArrowDown") return
      event.preventDefault()
      this.#first()
    })
    this.#body.addEventListener("keydown", event => {
      const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0, all = this.#buttons()
      const at = all.findIndex(one => one === document.activeElement)
      if (!step || at < 0) return
      event.preventDefault()
      if (at + step < 0) this.#find.focus()
      else all[Math.min(at + step, all.length - 1)].focus()
    })
    host.append(this.#dialog)
  }

  /** Lists the user's folder. @param {string} [inside] a subfolder, ending with / */
  async folder(inside = "") {
    const turn = this.#begin("Your folder", "Reading the folder…", true)
    const { folder, entries, error } = await this.#server.ask("browse", {})
    if (turn !== this.#turn) return
    if (!entries) return this.#fail(error)
    this.#about.textContent = folder
    this.#find.value ||= inside
    this.#fill(entries.map(({ name, kind, schema, size, changed }) => ({
      name, kind, about: schema, size: bytes(size), time: moment(changed * 1000), missing: "",
      open: () => this.#shell.open("open_file", { name }),
    })), "This folder has no documents yet. Save one there, or add a .pml file.")
  }

  /** Lists recent documents. */
  async recent() {
    const turn = this.#begin("Recent documents", "Reading the list…", false)
    const [{ documents, error }, { files }] = await Promise.all([this.#server.ask("recent", {}), this.#server.ask("list_files", {})])
    if (turn !== this.#turn) return
    this.#files = files ?? []
    if (!documents) return this.#fail(error)
    this.#about.textContent = "Your own workspaces are here with their latest text. Earlier texts are under File, Versions."
    this.#recent(documents)
  }

  /** The folders of recent documents as rows, latest first. @param {Api.RecentEntry[]} documents @returns {(Row & {used: string})[]} */
  #folders(documents) {
    /** The latest use of each. @type {Map<string, string>} */
    const found = new Map()
    for (const { file, used } of documents) {
      if (!file) continue
      const folder = file.slice(0, file.lastIndexOf("/") + 1)
      if (!found.has(folder)) found.set(folder, used)
    }
    return [...found].map(([folder, used]) => ({
      used, name: folder || "Your folder", kind: "folder", about: "", size: "", time: moment(used), missing: "", holds: plural(this.#files.filter(name => name.startsWith(folder)).length, "document"), open: () => this.folder(folder) }))
  }

  /** @param {Api.RecentEntry[]} documents */
  #recent(documents) {
    const rows = documents.map(({ origin, name, kind, used, file, sample, version, missing }) => ({
      used, name, kind, about: "", size: "", time: moment(used), missing: missing ?? "",
      open: () => file ? this.#shell.open("open_file", { name: file }) : version ? this.#shell.open("open_shelved", { key: version }) : this.#shell.open("open_sample", { name: sample ?? "", prompt: 0 }),
      forget: kind === "workspace" ? undefined : async () => {
        const answer = await this.#server.ask("forget_recent", { origin })
        if (answer.documents) { this.#recent(answer.documents); this.#find.focus() }
      },
    }))
    this.#fill([...rows, ...this.#folders(documents)].sort((a, b) => Date.parse(b.used) - Date.parse(a.used)), "Nothing yet. Your workspaces, and documents that you open from samples or your folder, appear here.")
  }

  #first() {
    const first = this.#buttons()[0]
    this.#awaited = !first && this.#loading
    first?.focus()
  }

  #buttons() { return /** @type {HTMLButtonElement[]} */ ([...this.#body.querySelectorAll("button.name:not(:disabled)")]) }

  /** @param {string} title @param {string} working @param {boolean} own whether this is the folder's list */
  #begin(title, working, own) {
    this.#own = own
    const columns = own ? ["Name", "Kind", "Schema", "Size", "Changed"] : ["Name", "Kind", "Opened", ""]
    this.#head.replaceChildren(...columns.map(words => h("th", { scope: "col", "aria-label": words || "Remove", class: words === "Size" ? "number" : "" }, words)))
    this.#title.textContent = title
    this.#about.textContent = ""
    this.#find.value = this.#kind.value = ""
    this.#rows = []
    this.#loading = true
    this.#awaited = false
    this.#body.replaceChildren()
    this.#none.textContent = working
    this.#dialog.showModal()
    this.#find.focus()
    return ++this.#turn
  }

  /** @param {string} [error] */
  #fail(error) {
    this.#loading = false
    this.#none.textContent = error ?? AWAY
  }

  /** @param {Row[]} rows @param {string} empty */
  #fill(rows, empty) {
    this.#rows = rows
    this.#empty = empty
    this.#loading = false
    this.#show()
    if (this.#awaited) this.#first()
  }

  #show() {
    if (this.#loading) return
    const words = this.#find.value.trim().toLowerCase(), kind = this.#kind.value
    const shown = this.#rows.filter(row => `${row.name} ${row.about}`.toLowerCase().includes(words) && (!kind || row.kind === kind || row.kind === "both" || row.kind === "workspace"))
    this.#body.replaceChildren(...shown.map(row => h("tr", { class: row.missing ? "missing" : "" },
      h("td", {}, h("button", { type: "button", class: "name", disabled: Boolean(row.missing), onclick: () => { this.#dialog.close(); row.open() } }, row.name),
        row.missing ? h("span", { class: "soft" }, row.missing) : null),
      h("td", {}, [KINDS[/** @type {keyof typeof KINDS} */ (row.kind)] ?? "", row.holds].filter(Boolean).join(", ")),
      ...(this.#own ? [h("td", {}, row.about), h("td", { class: "number" }, row.size)] : []), h("td", {}, row.time),
      this.#own ? null : h("td", {}, row.forget ? h("button", { type: "button", class: "quiet", "aria-label": `Remove ${row.name} from the list`, onclick: row.forget }, "✕") : null))))
    this.#none.textContent = shown.length ? "" : this.#rows.length ? "No documents match." : this.#empty
  }
}
