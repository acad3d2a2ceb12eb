// The source of rows: a pasted, dropped or chosen table, or a grid; and its errors.
import { count, debounce, h, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { decoded } from "../documents/file_saving.js"
import { AWAY } from "../base/jobs.js"

const READ_AFTER_MS = 400
const MOST_BYTES = 5 * 1024 * 1024
const EXAMPLE_ROWS = 3
const cell = (/** @type {string} */ text) => /[",;\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text

/** @typedef {"table" | "grid"} Source */

/**
 * "changed": the form was edited; "read": the number of rows, null if unknown, and why none can run; "held": what all rows start from; "encoded": what the valid rows encode, and their number; null if unknown.
 * @extends {Emitter<{changed: void, read: {rows: number | null, refusal?: string}, held: Api.Held, encoded: {encoded: Api.Encoded, valid: number} | null}>}
 */
export class Rows extends Emitter {
  #server
  #workspace
  #grid
  #asked = 0
  /** Fields that the user edited; saved values do not overwrite them. @type {Set<"source" | "table" | "alone">} */
  #own = new Set()
  #readSoon = debounce(READ_AFTER_MS, () => this.#read())
  #table = h("textarea", { rows: 7, spellcheck: false, wrap: "off", "aria-label": "Table of rows, as CSV or JSON Lines", placeholder: "id,picks,text,expect contains\nsurf,tokyo,Highlight the surf spots.,beach", oninput: () => this.#wrote() })
  #chooser = h("input", { type: "file", accept: ".csv,.tsv,.txt,.jsonl,.json,text/csv", hidden: true, "aria-label": "Open a table from this computer" })
  #status = h("p", { class: "read", role: "status" })
  #faults = h("ul", { class: "row-faults", "aria-label": "Errors in the rows", hidden: true })
  /** @type {Record<Source, HTMLInputElement>} */
  #source = { table: this.#radio("rows-from", "table"), grid: this.#radio("rows-from", "grid") }
  #alone = h("input", { type: "checkbox", onchange: () => { this.#own.add("alone"); this.#grid.stand(this.#alone.checked); this.#changed() } })
  #panel
  /** Whether rows ignore the open prompt. */
  alone = h("label", { class: "check", title: "If off, each row adds its picks to the prompt of the Author page and replaces its last text." }, this.#alone, "Ignore the modules ticked in Author")

  /**
   * @param {import("../base/server.js").Server} server
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("./grid.js").Grid} grid
   */
  constructor(server, workspace, grid) {
    super()
    this.#server = server
    this.#workspace = workspace
    this.#grid = grid
    this.#source.table.checked = true
    this.#panel = h("div", { class: "table-form" }, this.#table,
      h("div", { class: "table-tools" },
        h("button", { type: "button", onclick: () => this.#chooser.click() }, "Choose a file…"),
        h("button", { type: "button", onclick: () => this.#example() }, "Insert an example"),
        h("span", { class: "soft" }, "or drop one here. Columns: ", ...["picks", "text", "module/parameter", "set temperature", "expect contains"].flatMap((name, at) => [at ? ", " : "", h("code", {}, name)]), ".")), this.#chooser)
    this.node = h("section", { class: "batch-part rows-part", "aria-label": "Rows" },
      h("header", {}, h("h3", {}, "Rows"), h("div", { class: "segmented", role: "radiogroup", "aria-label": "Rows from" },
        h("label", {}, this.#source.table, "Table"), h("label", {}, this.#source.grid, "Grid"))),
      this.#panel, grid.node, this.#status, this.#faults)
    this.#chooser.addEventListener("change", () => {
      const file = this.#chooser.files?.[0]
      this.#chooser.value = ""
      if (file) this.#open(file)
    })
    this.#wireDrop()
    grid.on("changed", () => this.#changed())
    workspace.on("checked", ({ basis }) => {
      if (basis.tree) grid.over(basis.tree)
      this.#readSoon()
    })
    workspace.on("settings", () => this.#readSoon())
  }

  /** @returns {Source} */
  get source() { return this.#source.grid.checked ? "grid" : "table" }

  /** The form as the server expects it. */
  wanted() {
    const { source } = this, { settings, origin } = this.#workspace
    return { ...this.#workspace.texts(), origin, settings, source, table: source === "table" ? this.#table.value : "", grid: source === "grid" ? this.#grid.axes : [], alone: this.#alone.checked }
  }

  /** The form to save for the next visit. */
  kept() { return { source: this.source, table: this.#table.value, grid: this.#grid.chosen, alone: this.#alone.checked } }

  /** Fills in saved values, except in edited fields. @param {Record<string, any>} form */
  fill({ source, table, alone }) {
    if (!this.#own.has("source")) this.#source[source === "grid" ? "grid" : "table"].checked = true
    if (!this.#own.has("table") && typeof table === "string") this.#table.value = table
    if (!this.#own.has("alone")) this.#alone.checked = alone === true
    this.#grid.stand(this.#alone.checked)
    this.#show()
    this.#readSoon()
  }

  /** @param {string} name @param {Source} value */
  #radio(name, value) { return h("input", { type: "radio", name, value, onclick: () => this.#own.add("source"), onchange: () => { this.#own.add("source"); this.#show(); this.#changed() } }) }

  // A written table is the source, also if the saved form arrived meanwhile and had a grid.
  #wrote() {
    this.#own.add("source").add("table")
    this.#source.table.checked = true
    this.#show()
    this.#changed()
  }

  #show() {
    this.#panel.hidden = this.source !== "table"
    this.#grid.node.hidden = this.source !== "grid"
  }

  #changed() {
    this.emit("changed")
    this.emit("read", { rows: null })
    this.#readSoon()
  }

  // Ignores answers about outdated rows.
  async #read() {
    const asked = ++this.#asked, held = await this.#server.ask("batch_held", this.wanted())
    if (asked !== this.#asked) return
    if (!held.away && held.error == null) this.emit("held", held)
    this.emit("encoded", null)
    if (this.source === "grid" ? !this.#grid.rows : !this.#table.value.trim()) {
      this.#say("")
      this.#list([])
      return this.emit("read", { rows: 0, refusal: "There are no rows yet." })
    }
    const answer = await this.#server.ask("batch_read", this.wanted())
    if (asked !== this.#asked) return
    if (answer.away || answer.error != null) {
      this.#say(answer.error ?? AWAY, "bad")
      this.#list([])
      return this.emit("read", { rows: 0, refusal: answer.error ?? AWAY })
    }
    const { rows, repeated, looked, faults, faulty, encoded } = answer
    const some = looked < rows ? ` The first ${count(looked)} of these were checked.` : ""
    const once = repeated ? `, without ${plural(repeated, "duplicate")}` : ""
    const refusal = faulty === rows ? "No row can run: each has an error." : ""
    if (refusal) this.#say(`${plural(rows, "row")}${once}, ${count(faulty)} with an error.`, "bad")
    else this.#say(faulty ? `${plural(rows, "row")}${once}, ${count(faulty)} with an error: these fail, and the others run.${some}` : `${plural(rows, "row")}${once}, no errors.${some}`, faulty ? "warn" : "good")
    this.#list(faults, faulty)
    this.emit("read", { rows, refusal })
    this.emit("encoded", { encoded, valid: rows - faulty })
  }

  /** @param {Api.FaultOfRows[]} faults */
  #list(faults, total = 0) {
    const more = total - faults.reduce((sum, { rows }) => sum + rows, 0)
    this.#faults.hidden = !faults.length
    const table = this.source === "table"
    this.#faults.replaceChildren(...faults.map(({ line, column, message, rows }) => {
      const place = `${table ? "Line" : "Row"} ${line}${rows > 1 ? ` and ${plural(rows - 1, "more row")}` : ""}${column ? `, column ${column}` : ""}`
      return h("li", {}, table ? h("button", { type: "button", class: "quiet row-place", onclick: () => this.#reveal(line) }, place) : h("span", { class: "row-place" }, place), h("span", {}, message))
    }), ...(more > 0 ? [h("li", { class: "soft" }, `And ${plural(more, "row")} more.`)] : []))
  }

  /** Puts the caret at the start of a line. @param {number} line */
  #reveal(line) {
    const lines = this.#table.value.split("\n"), at = lines.slice(0, line - 1).reduce((sum, { length }) => sum + length + 1, 0)
    this.#table.focus()
    this.#table.setSelectionRange(at, at)
    this.#table.scrollTop = Math.max(0, line - 3) * (this.#table.scrollHeight / Math.max(1, lines.length))
  }

  /** @param {File} file @param {import("../documents/opener.js").Encoding} [encoding] @returns {Promise<void>} */
  async #open(file, encoding) {
    if (file.size > MOST_BYTES) return this.#say(`${file.name} is larger than 5 MB. Use pml run --batch, which has no limit.`, "bad")
    const data = new Uint8Array(await file.arrayBuffer()), found = decoded(data, encoding)
    if (found) return this.#write(found.text, encoding && encoding !== "utf-8" ? `${file.name} is not UTF-8 and was read as ${encoding}: check its characters.` : "")
    if (encoding) return this.#say(`${file.name} is not a text file. Save it as CSV UTF-8.`, "bad")
    return this.#open(file, data[0] >= 0xfe ? "utf-16" : "windows-1252")
  }

  // Edits like the user, so that Ctrl-Z undoes it.
  /** @param {string} text */
  #write(text, notice = "") {
    this.#source.table.checked = true
    this.#show()
    this.#table.focus()
    this.#table.select()
    if (!document.execCommand("insertText", false, text)) this.#table.value = text
    this.#table.setSelectionRange(0, 0)
    this.#table.scrollTop = 0
    this.#wrote()
    if (notice) this.#say(notice, "warn")
  }

  // One row for each of the first choices of the open schema.
  #example() {
    const [choice, module] = ["One of", "Module"].map(group => this.#grid.offers.find(one => one.group === group))
    const argument = this.#grid.offers.find(({ kind }) => kind === "argument")
    const values = (choice ?? module)?.offered?.map(({ value }) => value).filter(value => value && !value.startsWith("-")).slice(0, EXAMPLE_ROWS) ?? [""]
    const own = choice && argument?.name.startsWith(`${values[0].split("/")[0]}/`) && argument.name.split("/").length === 2 ? argument : null
    const columns = ["id", "picks", ...(own ? [own.name] : []), "text", "expect not contains"]
    const rows = values.map((value, index) => [String(index + 1), value, ...(own ? [`${index + 2} days`] : []), "What should I know first?", "sorry"])
    this.#write([columns, ...rows].map(cells => cells.map(cell).join(",")).join("\n") + "\n")
  }

  #wireDrop() {
    const over = (/** @type {boolean} */ on) => this.node.toggleAttribute("data-drop", on)
    this.node.addEventListener("dragover", event => { if (event.dataTransfer?.types.includes("Files")) { event.preventDefault(); event.stopPropagation(); over(true) } })
    this.node.addEventListener("dragleave", event => { if (!(event.relatedTarget instanceof Node && this.node.contains(event.relatedTarget))) over(false) })
    this.node.addEventListener("drop", event => {
      const file = event.dataTransfer?.files[0]
      over(false)
      if (!file) return
      event.preventDefault()
      event.stopPropagation()
      this.#open(file)
    })
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }
}
