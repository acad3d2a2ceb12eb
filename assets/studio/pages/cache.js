// The store as it is: what is kept, how full it is, what was evicted, and what can be done about it.
import { bytes, count, h, plural, refill } from "../dom.js"
import { AWAY, Job, STOPPED } from "../jobs.js"
import { confirmed } from "../question.js"

/** @type {Record<string, number>} */
const UNITS = { MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 }
const date = (/** @type {number} */ seconds) => new Date(seconds * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" })
/**
 * @typedef {Api.SegmentRow} Row
 * @typedef {keyof Row} Column
 * @typedef {Event & {target: HTMLInputElement}} ChangeEvent
 */

const KEY_SHOWN = 8  // characters that tell keys apart
const LABEL_WIDTH = 36, LABEL_HEIGHT = 24
const module = (/** @type {Row} */ row) => row.path || `anonymous text (${row.key.slice(0, KEY_SHOWN)})`

/** @type {[Column, string, (row: Row) => string][]} */
const COLUMNS = [
  ["schema", "Schema", row => row.schema || "–"],
  ["path", "Module", module],
  ["scope", "Scope", row => row.scope],
  ["model", "Model", row => row.model.split("/").findLast(part => part) ?? row.model],
  ["tokens", "Tokens", row => count(row.tokens)],
  ["bytes", "Size", row => bytes(row.bytes)],
  ["tier", "Tier", row => row.tier],
  ["hits", "Hits", row => count(row.hits)],
  ["last_used", "Last used", row => date(row.last_used)],
]
/** @type {Set<Column>} */
const NUMBERS = new Set(["tokens", "bytes", "hits", "last_used"])

/**
 * Rectangles in percent for values, largest first: cut in two across the longer side, again and again.
 * @template {{value: number}} Item
 * @param {Item[]} items
 * @param {number} aspect width over height
 * @returns {(Item & {x: number, y: number, width: number, height: number})[]}
 */
export function treemap(items, aspect, x = 0, y = 0, width = 100, height = 100) {
  if (!items.length) return []
  if (items.length === 1) return [{ ...items[0], x, y, width, height }]
  const total = items.reduce((sum, { value }) => sum + value, 0)
  let first = 0, split = 0
  while (split < items.length - 1 && (split === 0 || first + items[split].value / 2 < total / 2)) first += items[split++].value
  const share = total ? first / total : .5
  return width * aspect >= height
    ? [...treemap(items.slice(0, split), aspect, x, y, width * share, height), ...treemap(items.slice(split), aspect, x + width * share, y, width * (1 - share), height)]
    : [...treemap(items.slice(0, split), aspect, x, y, width, height * share), ...treemap(items.slice(split), aspect, x, y + height * share, width, height * (1 - share))]
}

class CachePage {
  #host
  #server
  /** @type {Api.StoreState | null} */
  #state = null
  /** @type {[Column, number]} */
  #sort = ["last_used", -1]
  /** @type {Set<string>} */
  #chosen = new Set()
  /** @type {Job<Api.Verified> | null} */
  #job = null
  #filter = h("input", { type: "search", placeholder: "Filter by schema, module, model…", "aria-label": "Filter segments" })
  #totals = h("dl", { class: "totals" })
  #warnings = h("div", { class: "warnings", "data-mood": "warn" })
  #status = h("span", { class: "soft", role: "status", "aria-live": "polite" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress of the verification" })
  #map = h("div", { class: "treemap", role: "img" })
  #head = h("tr", {})
  #body = h("tbody", {})
  #pins = h("div", { class: "pins" })
  #evictions = h("div", { class: "evictions" })
  #delete = h("button", { type: "button", disabled: true, onclick: () => this.#remove() }, "Delete")
  #verify = h("button", { type: "button", onclick: () => this.#check(false) }, "Verify")
  #repair = h("button", { type: "button", hidden: true, onclick: () => this.#check(true) }, "Set damage right")
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#job?.stop() }, "Stop")
  #most = h("input", { type: "number", min: "0", step: "any", required: true, "aria-label": "Size" })
  #unit = h("select", { "aria-label": "Unit" }, ...Object.keys(UNITS).map(name => h("option", { value: name, selected: name === "GiB" }, name)))
  /** @type {{size: string, bytes: number} | null} */
  #offered = null
  #table
  #empty = h("p", { class: "empty" })

  /** @param {HTMLElement} host @param {import("../server.js").Server} server */
  constructor(host, server) {
    this.#host = host
    this.#server = server
    this.#filter.addEventListener("input", () => this.#list())
    const size = h("form", { class: "size", novalidate: true, onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, this.#most, this.#unit,
      h("button", { type: "button", onclick: () => this.#prune() }, "Prune to this now"),
      h("button", { type: "button", onclick: () => this.#setBudget() }, "Set as budget"))
    this.#table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Segments" }, h("table", {}, h("thead", {}, this.#head), this.#body))
    host.append(
      h("header", { class: "cache-head" }, h("h2", {}, "Cache"), this.#status, this.#meter, h("span", { class: "grow" }), this.#stop, this.#repair, this.#verify,
        h("button", { type: "button", onclick: () => this.refresh() }, "Refresh")),
      this.#totals, this.#warnings, this.#map,
      h("div", { class: "cache-tools" }, this.#filter, this.#delete, h("span", { class: "grow" }), size),
      this.#table, this.#empty,
      this.#pins, this.#evictions)
  }

  async refresh() {
    const answer = await this.#server.ask("cache_state", {})
    if (answer.away) return this.#say("The studio's server does not answer. What is shown may be old.", "bad")
    if (answer.error != null) return this.#say(answer.error, "bad")
    this.#state = answer
    const there = new Set(answer.segments.map(({ key }) => key))
    this.#chosen = new Set([...this.#chosen].filter(key => there.has(key)))
    this.#showTotals(answer)
    this.#showMap(answer)
    this.#list()
    this.#showPins(answer)
    this.#showEvictions(answer)
  }

  get #size() { return `${this.#most.value} ${this.#unit.value}` }

  // The field begins with the budget as it is, and stands for its very bytes until somebody writes another.
  /** @param {number} budget */
  #offerBudget(budget) {
    if (this.#offered ? this.#size !== this.#offered.size : this.#most.value) return
    const unit = Object.keys(UNITS).findLast(name => budget >= UNITS[name]) ?? "MiB"
    this.#most.value = String(Number((budget / UNITS[unit]).toFixed(2)))
    this.#unit.value = unit
    this.#offered = { size: this.#size, bytes: budget }
  }

  /** @param {Api.StoreState} state */
  #showTotals({ stats, memory, folder, warnings, left_out: more }) {
    this.#offerBudget(stats.budget)
    const asked = stats.hits + stats.misses
    const facts = [
      ["Segments", count(stats.segments)],
      ["On disk", `${bytes(stats.bytes)} of ${bytes(stats.budget)}`],
      ["In memory", `${bytes(memory.bytes)} of ${bytes(memory.budget)}`],
      ["Hit rate", asked ? `${Math.round(100 * stats.hits / asked)}% of ${count(asked)}` : "–"],
      ["Evicted", count(stats.evicted)],
      ["Damaged, set aside", count(stats.corrupt)],
      ["Left on the disk", bytes(stats.disk_free)],
      ["Stored as", stats.scheme],
    ]
    this.#totals.replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))
    this.#totals.title = folder
    this.#warnings.replaceChildren(...warnings.map(sentence => h("p", {}, sentence)))
    if (more) this.#say(`${plural(more, "older segment")} more than are listed.`)
  }

  /** @param {Api.StoreState} state */
  #showMap(state) {
    const modules = new Map()
    for (const row of state.segments) {
      const schema = row.schema || "–", key = JSON.stringify([schema, row.path])
      modules.set(key, (modules.get(key) ?? 0) + row.bytes)
    }
    const items = [...modules].map(([key, value]) => ({ place: JSON.parse(key), value })).sort((a, b) => b.value - a.value)
    const schemas = [...new Set(items.map(({ place }) => place[0]))]
    this.#map.hidden = items.length === 0
    this.#map.setAttribute("aria-label", `Bytes by schema and module: ${items.slice(0, 5).map(({ place, value }) => `${place.join(" ")} ${bytes(value)}`).join(", ")}`)
    const groups = schemas.map(schema => ({ schema, inner: items.filter(({ place }) => place[0] === schema) }))
      .map(group => ({ ...group, value: group.inner.reduce((sum, { value }) => sum + value, 0) })).sort((a, b) => b.value - a.value)
    const aspect = this.#map.clientWidth / (this.#map.clientHeight || 1) || 1
    this.#map.replaceChildren(...treemap(groups, aspect).flatMap(({ inner, schema, x, y, width, height }, index) =>
      treemap(inner, aspect, x, y, width, height).map(({ place, value, ...at }) => {
        const cell = h("div", { class: "cell", "data-shade": String(index % 4), title: `${schema} ${place[1] || "anonymous text"}: ${bytes(value)}` },
          at.width * this.#map.clientWidth / 100 > LABEL_WIDTH && at.height * this.#map.clientHeight / 100 > LABEL_HEIGHT ? h("span", {}, place[1].split("/").at(-1) || schema) : null)
        Object.assign(cell.style, { left: `${at.x}%`, top: `${at.y}%`, width: `${at.width}%`, height: `${at.height}%` })
        return cell
      })))
  }

  #list() {
    const [by, way] = this.#sort
    const words = this.#filter.value.toLowerCase().split(/\s+/).filter(Boolean)
    const rows = (this.#state?.segments ?? []).filter(row => words.every(word => [row.schema, row.path, row.scope, row.model, row.tier].join(" ").toLowerCase().includes(word)))
    rows.sort((a, b) => way * (NUMBERS.has(by) ? Number(a[by]) - Number(b[by]) : String(a[by] ?? "").localeCompare(String(b[by] ?? ""))))
    this.#sayEmpty(rows.length)
    /** @type {HTMLInputElement} */
    const all = h("input", { type: "checkbox", "data-key": "all", "aria-label": "Choose all that are shown", checked: rows.length > 0 && rows.every(({ key }) => this.#chosen.has(key)), onchange: () => {
      for (const { key } of rows) all.checked ? this.#chosen.add(key) : this.#chosen.delete(key)
      this.#list()
    } })
    refill(this.#head, h("th", { scope: "col" }, all), ...COLUMNS.map(([name, title]) => h("th", { scope: "col", class: NUMBERS.has(name) ? "number" : null, "aria-sort": name === by ? (way > 0 ? "ascending" : "descending") : null },
      h("button", { type: "button", class: "quiet", "data-key": name, onclick: () => { this.#sort = [name, name === by ? -way : NUMBERS.has(name) ? -1 : 1]; this.#list() } }, title, name === by ? (way > 0 ? " ↑" : " ↓") : ""))))
    refill(this.#body, ...rows.slice(0, 500).map(row => h("tr", { "data-pinned": row.pinned ? "yes" : null },
      h("td", {}, h("input", { type: "checkbox", "data-key": row.key, "aria-label": `Choose ${module(row)}`, checked: this.#chosen.has(row.key), onchange: (/** @type {ChangeEvent} */ { target }) => {
        target.checked ? this.#chosen.add(row.key) : this.#chosen.delete(row.key)
        this.#buttons()
      } })), ...COLUMNS.map(([name, , cell]) => h("td", { class: NUMBERS.has(name) ? "number" : null }, cell(row), name === "schema" && row.pinned ? h("span", { class: "pill" }, "pinned") : null)))))
    this.#buttons()
  }

  /** @param {number} shown rows */
  #sayEmpty(shown) {
    this.#empty.hidden = shown > 0
    this.#empty.textContent = this.#state?.segments.length ? "No segment has all of these words."
      : this.#state?.stats.budget === 0 ? "Nothing is stored, and nothing will be while the budget is 0. Set a larger one above."
        : "Nothing is stored. Run a prompt, and what it computes is kept here for the next one."
  }

  #buttons() {
    this.#delete.disabled = this.#chosen.size === 0
    this.#delete.textContent = this.#chosen.size ? `Delete ${plural(this.#chosen.size, "segment")}` : "Delete"
  }

  /** @param {Api.StoreState} state */
  #showPins(state) {
    const schemas = [...new Set(state.segments.flatMap(({ schema }) => schema ? schema.split(",") : []).concat(state.pins))].sort()
    refill(this.#pins, ...(schemas.length ? [h("h3", {}, "Pinned schemas"), h("p", { class: "soft" }, "Segments of a pinned schema are never evicted."),
      h("div", { class: "choices" }, ...schemas.map(schema => h("label", { class: "check" }, h("input", { type: "checkbox", "data-key": schema, checked: state.pins.includes(schema), onchange: async (/** @type {ChangeEvent} */ { target }) => {
        const answer = await this.#server.ask("cache_pin", { schema, pinned: target.checked })
        if (answer.error) this.#say(answer.error, "bad")
        this.refresh()
      } }), schema)))] : []))
  }

  /** @param {Api.StoreState} state */
  #showEvictions({ evictions: rows }) {
    this.#evictions.replaceChildren(...(rows.length ? [h("h3", {}, "What went, and why"), h("ul", {}, ...rows.map(row =>
      h("li", {}, h("span", { class: "soft" }, date(row.at)), ` ${row.schema || "–"} ${row.path || "anonymous text"}, ${bytes(row.bytes)}: ${row.reason}`)))] : []))
  }

  async #remove() {
    const keys = [...this.#chosen], focused = document.activeElement === this.#delete
    const answer = await this.#server.ask("cache_delete", { keys })
    this.#say(answer.error ?? (answer.removed ? `Deleted ${plural(answer.removed.segments, "segment")}, ${bytes(answer.removed.bytes)}.` : AWAY), answer.removed ? "" : "bad")
    await this.refresh()
    if (focused && this.#delete.disabled) this.#table.focus()
  }

  /** The size that was written, in bytes; null where it is none. */
  #wanted() {
    this.#say("")
    const taken = this.#most.checkValidity()
    this.#most.setAttribute("aria-invalid", String(!taken))
    if (!taken) {
      this.#most.focus()
      this.#say("A size is a number of 0 or more. Nothing was changed.", "bad")
      return null
    }
    return this.#size === this.#offered?.size ? this.#offered.bytes : Number(this.#most.value) * UNITS[this.#unit.value]
  }

  async #prune() {
    const size = this.#wanted()
    if (size !== null) this.#bounded("Pruned", await this.#server.ask("cache_prune", { bytes: size }))
  }

  async #setBudget() {
    const size = this.#wanted()
    if (size === null) return
    const { surplus, pinned, error } = await this.#server.ask("cache_surplus", { bytes: size })
    if (!surplus) return this.#say(error ?? AWAY, "bad")
    const spared = pinned ? ` Segments of pinned schemas, ${bytes(pinned)}, stay.` : ""
    const evicts = `A budget of ${this.#size} evicts ${plural(surplus.segments, "segment")}, ${bytes(surplus.bytes)}; what is needed again is computed again.${spared}`
    if (surplus.segments && !await confirmed(this.#host, evicts, "Evict and set the budget")) return this.#say("The budget stays as it was; nothing was evicted.")
    this.#bounded("The budget is set", await this.#server.ask("cache_budget", { bytes: size }))
  }

  /** @param {string} done in words @param {import("../server.js").Reply<Api.Gone>} answer */
  #bounded(done, { removed, error }) {
    const size = removed?.bytes ? `, ${bytes(removed.bytes)},` : ""
    this.#say(error ?? (removed ? `${done}; ${plural(removed.segments, "segment")}${size} evicted.` : AWAY), removed ? "" : "bad")
    this.refresh()
  }

  /** @param {boolean} repair */
  async #check(repair) {
    const focused = [this.#verify, this.#repair].some(button => button === document.activeElement)
    this.#stop.hidden = false
    if (focused) this.#stop.focus()
    this.#verify.disabled = true
    this.#repair.hidden = true
    const job = this.#job = new Job(this.#server)
    job.on("state", ({ done, total }) => {
      this.#meter.hidden = false
      Object.assign(this.#meter, { max: total || 1, value: done })
      this.#say(`Reading file ${count(done)} of ${count(total)}…`)
    })
    const end = await job.asked(this.#server.ask("cache_verify", { key: job.key, repair }))
    this.#job = null
    this.#verify.disabled = false
    if (document.activeElement === this.#stop) this.#verify.focus()
    this.#stop.hidden = this.#meter.hidden = true
    if (end.result) this.#showVerdict(/** @type {Api.Verified & {clean: boolean}} */ (end.result))
    else this.#say((end.fault || end.error) ?? `${AWAY} Verify again when it is back.`, end.fault === STOPPED ? "" : "bad")
    this.refresh()
  }

  /** @param {Api.Verified & {clean: boolean}} verdict */
  #showVerdict({ clean, segments, bytes: read, seconds, faults, unread, orphans, foreign, index, repaired }) {
    const theirs = foreign.length ? ` ${plural(foreign.length, "other file")} in the folder: not the store's, left alone.` : ""
    const pace = `${plural(segments, "segment")}, ${bytes(read)} read in ${seconds.toFixed(2)} s`
    if (clean) return this.#say(`Index and files agree: ${pace}.${theirs}`, "good")
    const found = [index && "a damaged index", faults.length && plural(faults.length, "damaged segment"), orphans.length && plural(orphans.length, "stray file")].filter(Boolean).join(" and ")
    const missed = unread.length ? ` ${plural(unread.length, "segment")} could not be read just now and stayed.` : ""
    this.#repair.hidden = repaired || !found
    const mended = found && `${found} set aside, removed or built again; what is missing is computed when it is needed.`
    this.#say((repaired ? mended : found && `${found} found (${pace}).`) + missed + theirs, repaired && !missed ? "" : "bad")
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const page = new CachePage(studio.hosts.cache, studio.server)
  studio.on("stored", () => { if (studio.shell.page === "cache") page.refresh() })
  return { shown: () => page.refresh() }
}
