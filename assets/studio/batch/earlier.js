// Stored batches: opens, names and deletes them.
import { when } from "../runs/compare.js"
import { bytes, count, h, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { AWAY } from "../base/jobs.js"
import { confirmed } from "../base/confirm.js"
import { Table } from "../base/table.js"

/** @typedef {Api.BatchKept} Kept */

const STATES = { done: "done", stopped: "stopped", failed: "failed", elsewhere: "running in another studio" }

/** A batch's display name. @param {Kept} batch */
const called = ({ name, schema, started }) => name || `${schema || "Untitled"}, ${when(started)}`

/**
 * "open": a batch to show; "deleted": deleted batches; "named": a renamed batch.
 * @extends {Emitter<{open: Kept, deleted: string[], named: {key: string, name: string}}>}
 */
export class Earlier extends Emitter {
  #server
  #shown = ""
  /** @type {string | null} */
  #working = null
  /** @type {Kept[]} */
  #rows = []
  #summary = h("summary", {})
  #status = h("span", { class: "soft", role: "status", "aria-live": "polite" })
  #delete = h("button", { type: "button", onclick: () => this.#remove() }, "Delete")
  #warnings = h("div", { "data-mood": "warn" })
  #held = h("p", { class: "soft hint" })
  /** @type {Table<Kept>} */
  #table = new Table({
    label: "Stored batches", key: row => row.key, sort: ["started", -1], choice: called,
    columns: [
      { name: "started", title: "Started", value: row => Date.parse(row.started) || null, greatest: true, cell: row => h("button", { type: "button", class: "quiet when", "data-key": `open ${row.key}`, "aria-label": `Show ${called(row)}`, onclick: () => this.emit("open", row) }, when(row.started)) },
      { name: "name", title: "Name", value: row => row.name, cell: row => this.#field(row) },
      { name: "kind", title: "Rows have", value: row => row.decides ? "decisions" : "answers" },
      { name: "schema", title: "Schema", value: row => row.schema },
      { name: "model", title: "Model", value: row => row.model, cell: row => row.model.split("/").findLast(part => part) ?? "–" },
      { name: "rows", title: "Answered", value: row => row.answered, number: true, cell: row => `${count(row.answered)} of ${count(row.rows)}` },
      { name: "failed", title: "Failed", value: row => row.failed, number: true },
      { name: "passed", title: "Passed", value: row => row.judged ? row.passed / row.judged : null, number: true, cell: row => row.judged ? `${count(row.passed)} of ${count(row.judged)}` : "–", about: "Rows whose answers pass all checks" },
      { name: "state", title: "State", value: row => this.#state(row) },
    ],
  })
  node = h("details", { class: "batch-part batch-earlier", hidden: true }, this.#summary,
    h("div", { class: "earlier-body" }, this.#warnings, h("div", { class: "table-tools" }, this.#delete, this.#status), this.#table.node, this.#held))

  /** @param {import("../base/server.js").Server} server */
  constructor(server) {
    super()
    this.#server = server
    this.#table.on("chosen", () => this.#buttons())
    this.#buttons()
  }

  /** Marks the batch that the page shows. @param {string} key */
  show(key) {
    this.#shown = key
    this.#mark()
  }

  async refresh() {
    const answer = await this.#server.ask("list_batches", {})
    if (answer.away || answer.error != null) return this.#say(answer.error ?? `${AWAY} This list may be out of date.`, "bad")
    const { batches, held, working } = answer, known = new Map(this.#rows.map(row => [row.key, row])), same = working === this.#working
    this.#working = working
    // An unchanged row keeps its object, so that text being typed in it survives.
    this.#rows = batches.map(row => {
      const old = known.get(row.key)
      return old && same && JSON.stringify(old) === JSON.stringify(row) ? old : row
    })
    this.node.hidden = !batches.length && !held.warnings.length
    this.#summary.textContent = `Stored batches: ${count(batches.length)}${batches.some(({ key }) => key === working) ? ", one of them running" : ""}`
    this.#warnings.replaceChildren(...held.warnings.map(sentence => h("p", {}, sentence)))
    this.#held.textContent = `${plural(batches.length, "batch").replace("batchs", "batches")}, ${bytes(held.bytes)}, in ${held.file}. ${count(held.most_batches)} batches and ${count(held.most_bytes / 1024 ** 2)} MiB are stored at most. Beyond that the oldest batches are deleted, unnamed ones first.`
    this.#table.fill(this.#rows)
    this.#buttons()
    this.#mark()
  }

  /** @param {Kept} row */
  #state({ key, state }) { return state === "working" ? key === this.#working ? "running" : "unfinished" : STATES[state] }

  #mark() {
    for (const row of this.#table.node.querySelectorAll("tbody tr")) row.setAttribute("aria-current", String(row instanceof HTMLElement && row.dataset.row === this.#shown))
  }

  /** @param {Kept} row */
  #field(row) {
    const field = h("input", {
      type: "text", class: "in-place", "data-key": `name ${row.key}`, value: row.name, maxlength: 200, autocomplete: "off", placeholder: "Name it", "aria-label": `Name of ${called(row)}`, title: row.name,
      onchange: async () => {
        const name = field.value
        if (name === row.name) return
        const answer = await this.#server.ask("name_batch", { key: row.key, name })
        if (answer.away || answer.error != null) return this.#say(`The name is not saved yet. ${answer.error ?? AWAY}`, "bad")
        this.#rows = this.#rows.map(one => one.key === row.key ? { ...one, name } : one)
        this.#table.fill(this.#rows)
        this.#mark()
        this.emit("named", { key: row.key, name })
        this.#say("The name is saved.")
      },
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter") field.dispatchEvent(new Event("change"))
        if (event.key === "Escape") { field.value = row.name; event.stopPropagation() }
      },
    })
    return field
  }

  #buttons() {
    const chosen = this.#table.chosen.length
    this.#delete.disabled = chosen === 0
    this.#delete.textContent = chosen ? `Delete ${chosen === 1 ? "1 batch" : `${count(chosen)} batches`}` : "Delete"
  }

  async #remove() {
    const rows = this.#table.chosen, keys = rows.map(({ key }) => key), named = rows.filter(({ name }) => name).length
    const what = rows.length === 1 ? called(rows[0]) : `${count(rows.length)} batches`
    const sentence = `Delete ${what} with all answers permanently?${named && rows.length > 1 ? ` ${count(named)} of them ${named === 1 ? "has" : "have"} a name.` : ""} This cannot be undone.`
    if (!await confirmed(this.node, sentence, rows.length === 1 ? "Delete it" : `Delete ${count(rows.length)} batches`)) return this.#say("Nothing was deleted.")
    const { deleted, error } = await this.#server.ask("delete_batches", { keys })
    this.#say(deleted == null ? error ?? AWAY : `Deleted ${deleted === 1 ? "1 batch" : `${count(deleted)} batches`}.`, deleted == null ? "bad" : "")
    if (deleted != null) this.emit("deleted", keys)
    await this.refresh()
    if (this.node.hidden) return
    this.#summary.focus()
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }
}
