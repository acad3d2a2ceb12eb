// The store: its segments, size and evictions, and actions on them.
import { bytes, count, debounce, h, plural, refill, unfocused } from "../base/dom.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"
import { computing, date, gone, missed, module, nextOut } from "../store/activity.js"
import { confirmed } from "../base/confirm.js"
import { Treemap, swatch } from "../base/treemap.js"

/** @type {Record<string, number>} */
const UNITS = { MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 }
/**
 * @typedef {Api.SegmentRow} Row
 * @typedef {NonNullable<Api.SegmentPage["order"]>} Column
 * @typedef {import("../base/treemap.js").Place} Place
 * @typedef {Event & {target: HTMLInputElement}} ChangeEvent
 */

/** @type {[Column, string, (row: Row) => string][]} */
const COLUMNS = [
  ["schema", "Schema", row => row.schema.split(",").join(", ") || "–"],
  ["path", "Module", module],
  ["scope", "Scope", row => row.scope],
  ["model", "Model", row => row.model.split("/").findLast(part => part) ?? row.model],
  ["tokens", "Tokens", row => count(row.tokens)],
  ["bytes", "Size", row => bytes(row.bytes)],
  ["tier", "Location", row => row.tier],
  ["hits", "Hits", row => count(row.hits)],
  ["last_used", "Last used", row => date(row.last_used)],
]
/** @type {Set<Column>} */
const NUMBERS = new Set(["tokens", "bytes", "hits", "last_used"])
const ROOM = 100  // initial MiB to make room for
const FILTER_MS = 150

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
  #counted = h("p", { class: "soft", hidden: true }, "The hit rate counts all lookups, including repeated timings and batches.")
  #warnings = h("div", { class: "warnings", "data-mood": "warn" })
  #status = h("span", { class: "soft", role: "status", "aria-live": "polite" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress of the verification" })
  /** @type {Place | null} */
  #place = null
  #map = new Treemap(place => this.#narrow(place))
  #narrowed = h("p", { class: "narrowed", hidden: true })
  /** @type {Api.SegmentList | null} */
  #shown = null
  #start = 0
  #asked = 0
  #refreshed = 0
  #head = h("tr", {})
  #body = h("tbody", {})
  #pins = h("div", { class: "pins" })
  #evictions = h("div", { class: "evictions" })
  #misses = h("div", { class: "misses" })
  #next = h("div", { class: "next" })
  #room = h("input", { type: "number", id: "cache-room", min: "0", step: "any", required: true, value: String(ROOM) })
  #sums = h("p", { class: "soft sums", "aria-live": "polite" })
  #earlier = h("button", { type: "button", onclick: () => this.#turn(-1) }, "Earlier")
  #later = h("button", { type: "button", onclick: () => this.#turn(1) }, "Later")
  #delete = h("button", { type: "button", disabled: true, onclick: () => this.#remove() }, "Delete")
  #verify = h("button", { type: "button", onclick: () => this.#check(false) }, "Verify")
  #repair = h("button", { type: "button", hidden: true, onclick: () => this.#check(true) }, "Repair")
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#job?.stop() }, "Stop")
  #most = h("input", { type: "number", min: "0", step: "any", required: true, "aria-label": "Size" })
  #unit = h("select", { "aria-label": "Unit" }, ...Object.keys(UNITS).map(name => h("option", { value: name, selected: name === "GiB" }, name)))
  /** @type {{size: string, bytes: number} | null} */
  #offered = null
  #table
  #empty = h("p", { class: "empty" })

  /** @param {HTMLElement} host @param {import("../base/server.js").Server} server */
  constructor(host, server) {
    this.#host = host
    this.#server = server
    const filter = debounce(FILTER_MS, () => this.#again())
    this.#filter.addEventListener("input", () => filter())
    addEventListener("resize", debounce(FILTER_MS, () => this.#map.again()))
    const size = h("form", { class: "size", novalidate: true, onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, this.#most, this.#unit,
      h("button", { type: "button", onclick: () => this.#prune() }, "Evict to this size"),
      h("button", { type: "button", onclick: () => this.#setBudget() }, "Set as budget"))
    this.#table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Segments" }, h("table", {}, h("thead", {}, this.#head), this.#body))
    host.append(
      h("header", { class: "cache-head" }, h("h2", {}, "Cache"), this.#status, this.#meter, h("span", { class: "grow" }), this.#stop, this.#repair, this.#verify,
        h("button", { type: "button", onclick: () => this.refresh() }, "Refresh")),
      this.#totals, this.#counted, this.#warnings, this.#map.node,
      h("div", { class: "cache-tools" }, this.#filter, this.#delete, h("span", { class: "grow" }), size), this.#narrowed,
      this.#table, this.#empty,
      h("div", { class: "pages" }, this.#sums, h("span", { class: "grow" }), this.#earlier, this.#later),
      this.#pins,
      h("section", { class: "would-go", "aria-label": "Making room" }, h("h3", {}, "Next evictions"),
        h("form", { class: "size", novalidate: true, onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.#askNext() } },
          h("label", { for: this.#room.id }, "Make room for"), this.#room, "MiB", h("button", { type: "submit" }, "Show")), this.#next),
      this.#misses, this.#evictions)
  }

  async refresh() {
    const asked = ++this.#refreshed, answer = await this.#server.ask("cache_state", {})
    if (asked !== this.#refreshed) return
    if (answer.away) return this.#say("The studio's server does not answer. This page may be out of date.", "bad")
    if (answer.error != null) return this.#say(answer.error, "bad")
    this.#state = answer
    this.#showTotals(answer)
    this.#map.show(answer.modules, this.#place)
    this.#showPins(answer)
    this.#misses.replaceChildren(...missed(answer.misses))
    this.#evictions.replaceChildren(...gone(answer.evictions))
    await Promise.all([this.#list(), this.#askNext()])
  }

  get #size() { return `${this.#most.value} ${this.#unit.value}` }

  // The field stands for the exact bytes of the budget until the user edits it.
  /** @param {number} budget */
  #offerBudget(budget) {
    if (this.#offered ? this.#size !== this.#offered.size : this.#most.value) return
    const unit = Object.keys(UNITS).findLast(name => budget >= UNITS[name]) ?? "MiB"
    this.#most.value = String(Number((budget / UNITS[unit]).toFixed(2)))
    this.#unit.value = unit
    this.#offered = { size: this.#size, bytes: budget }
  }

  /** @param {Api.StoreState} state */
  #showTotals({ stats, memory, folder, warnings }) {
    this.#offerBudget(stats.budget)
    const asked = stats.hits + stats.misses
    const facts = [
      ["Segments", count(stats.segments)],
      ["On disk", `${bytes(stats.bytes)} of ${bytes(stats.budget)}`],
      ["In memory", `${bytes(memory.bytes)} of ${bytes(memory.budget)}`],
      ["Hit rate", asked ? `${Math.round(100 * stats.hits / asked)}% of ${count(asked)}` : "–"],
      ["Evicted", count(stats.evicted)],
      ["Damaged, set aside", count(stats.corrupt)],
      ["Free on disk", bytes(stats.disk_free)],
      ["Stored as", stats.scheme],
    ]
    this.#totals.replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))
    this.#counted.hidden = !asked
    this.#totals.title = folder
    this.#warnings.replaceChildren(...warnings.map(sentence => h("p", {}, sentence)))
  }

  /** The list's filter. @returns {Api.WantedSegments} */
  #sought() {
    return { words: this.#filter.value.split(/\s+/).filter(Boolean), schema: this.#place?.schema ?? null, path: this.#place?.path ?? null }
  }

  // A module in the map filters the list; choosing it again removes the filter.
  /** @param {Place | null} place */
  #narrow(place) {
    this.#place = place
    if (this.#state) this.#map.show(this.#state.modules, place)
    this.#again()
  }

  #again() {
    this.#start = 0
    this.#list()
  }

  /** @param {1 | -1} way */
  async #turn(way) {
    this.#start = Math.max(0, this.#start + way * (this.#shown?.most ?? 0))
    await this.#list()
    if (unfocused()) this.#table.focus()
  }

  async #list() {
    const asked = ++this.#asked, [order, way] = this.#sort
    const answer = await this.#server.ask("cache_list", { ...this.#sought(), order, down: way < 0, start: this.#start })
    if (asked !== this.#asked) return
    if (!answer.rows) return this.#say(answer.error ?? AWAY, "bad")
    if (!answer.rows.length && this.#start) return this.#again()
    this.#shown = /** @type {Api.SegmentList} */ (answer)
    this.#paint(this.#shown)
  }

  /** @param {Api.SegmentList} shown */
  #paint({ rows, all: sums, most }) {
    const [by, way] = this.#sort
    this.#sayEmpty(rows.length)
    this.#sayNarrowed()
    this.#sums.textContent = sums.segments ? `${count(this.#start + 1)} to ${count(this.#start + rows.length)} of ${plural(sums.segments, "segment")}: ${bytes(sums.bytes)}, ${plural(sums.tokens, "token")}` : ""
    this.#earlier.hidden = this.#later.hidden = sums.segments <= most
    this.#earlier.disabled = this.#start === 0
    this.#later.disabled = this.#start + rows.length >= sums.segments
    /** @type {HTMLInputElement} */
    const all = h("input", { type: "checkbox", "data-key": "all", "aria-label": "Choose all matches", checked: rows.length > 0 && rows.every(({ key }) => this.#chosen.has(key)), onchange: () => this.#chooseAll(all.checked) })
    refill(this.#head, h("th", { scope: "col" }, all), ...COLUMNS.map(([name, title]) => h("th", { scope: "col", class: NUMBERS.has(name) ? "number" : null, "aria-sort": name === by ? (way > 0 ? "ascending" : "descending") : null },
      h("button", { type: "button", class: "quiet", "data-key": name, onclick: () => { this.#sort = [name, name === by ? -way : NUMBERS.has(name) ? -1 : 1]; this.#again() } }, title, name === by ? (way > 0 ? " ↑" : " ↓") : ""))))
    refill(this.#body, ...rows.map(row => h("tr", { "data-pinned": row.pinned ? "yes" : null },
      h("td", {}, h("input", { type: "checkbox", "data-key": row.key, "aria-label": `Choose ${module(row)}`, checked: this.#chosen.has(row.key), onchange: (/** @type {ChangeEvent} */ { target }) => {
        target.checked ? this.#chosen.add(row.key) : this.#chosen.delete(row.key)
        this.#buttons()
      } })), ...COLUMNS.map(([name, , cell]) => h("td", { class: NUMBERS.has(name) ? "number" : null }, name === "schema" ? swatch(row.schema) : null, cell(row), name === "schema" && row.pinned ? h("span", { class: "pill" }, "pinned") : null)))))
    this.#buttons()
  }

  // Selects matches on all pages, not just the shown one.
  /** @param {boolean} on */
  async #chooseAll(on) {
    const { keys, error } = await this.#server.ask("cache_keys", this.#sought())
    if (!keys) return this.#say(error ?? AWAY, "bad")
    for (const key of keys) on ? this.#chosen.add(key) : this.#chosen.delete(key)
    if (this.#shown) this.#paint(this.#shown)
  }

  #sayNarrowed() {
    this.#narrowed.hidden = this.#place === null
    if (!this.#place) return
    const { schema, path } = this.#place
    refill(this.#narrowed, swatch(schema), h("span", {}, `Only ${schema || "segments without schema"}${path === null ? "" : `, ${path || "fixed text"}`}`),
      h("button", { type: "button", "data-key": "all", onclick: () => { this.#narrow(null); this.#filter.focus() } }, "Show all"))
  }

  async #askNext() {
    if (!this.#room.checkValidity()) {
      this.#next.replaceChildren(h("p", { "data-mood": "bad" }, "A size is a number of 0 or more."))
      return
    }
    const answer = await this.#server.ask("cache_next", { bytes: Number(this.#room.value) * UNITS.MiB })
    this.#next.replaceChildren(...(answer.total ? nextOut(/** @type {Api.WouldGo} */ (answer)) : [h("p", {}, answer.error ?? AWAY)]))
  }

  /** @param {number} shown rows */
  #sayEmpty(shown) {
    this.#empty.hidden = shown > 0
    this.#empty.textContent = this.#state?.stats.segments ? "No segments match. Shorten the filter or clear it."
      : this.#state?.stats.budget === 0 ? "Nothing is stored because the budget is 0. Set a larger budget above."
        : "Nothing is stored yet. Run a prompt to store its segments."
  }

  #buttons() {
    this.#delete.disabled = this.#chosen.size === 0
    this.#delete.textContent = this.#chosen.size ? `Delete ${plural(this.#chosen.size, "segment")}` : "Delete"
  }

  /** @param {Api.StoreState} state */
  #showPins(state) {
    const { schemas } = state
    refill(this.#pins, ...(schemas.length ? [h("h3", {}, "Pinned schemas"), h("p", { class: "soft" }, "Segments of a pinned schema are not evicted."),
      h("div", { class: "choices" }, ...schemas.map(schema => h("label", { class: "check" }, h("input", { type: "checkbox", "data-key": schema, checked: state.pins.includes(schema), onchange: async (/** @type {ChangeEvent} */ { target }) => {
        const answer = await this.#server.ask("cache_pin", { schema, pinned: target.checked })
        if (answer.error) this.#say(answer.error, "bad")
        this.refresh()
      } }), swatch(schema), schema, schema in state.pinned_until ? h("span", { class: "soft" }, ` until ${new Date(1000 * state.pinned_until[schema]).toLocaleString()}`) : null)))] : []))
  }

  async #remove() {
    const focused = document.activeElement === this.#delete, keys = await this.#agreed([...this.#chosen])
    if (!keys) return this.#delete.focus()
    const answer = await this.#server.ask("cache_delete", { keys })
    this.#say(answer.error ?? (answer.removed ? `Deleted ${plural(answer.removed.segments, "segment")}, ${bytes(answer.removed.bytes)}.` : AWAY), answer.removed ? "" : "bad")
    if (answer.removed) for (const key of keys) this.#chosen.delete(key)
    await this.refresh()
    if (focused && unfocused()) this.#table.focus()
  }

  // Confirms deletions, and pinned segments separately.
  /** @param {string[]} keys @returns {Promise<string[] | null>} those that are to go; null for none */
  async #agreed(keys) {
    const { all: sums, pinned, schemas, error } = await this.#server.ask("cache_weigh", { keys })
    if (!sums || !pinned || !schemas) {
      this.#say(error ?? AWAY, "bad")
      return null
    }
    const took = sums.seconds ? `, which took ${computing(sums.seconds)}` : ""
    const one = keys.length === 1 ? this.#shown?.rows.find(({ key }) => key === keys[0]) : undefined
    const named = one ? `${module(one)} of ${one.schema.split(",").join(", ") || "no schema"}` : plural(sums.segments, "segment")
    const what = `Delete ${named}, ${bytes(sums.bytes)}? Later prompts recompute up to ${plural(sums.tokens, "token")}${took}.`
    if (!await confirmed(this.#host, what, "Delete")) return this.#kept()
    if (!pinned.length) return keys
    const stay = `${count(pinned.length)} of them ${pinned.length === 1 ? "is" : "are"} of ${schemas.length === 1 ? "a pinned schema" : "pinned schemas"} (${schemas.join(", ")}). Delete ${pinned.length === 1 ? "it" : "these"} too?`
    return await confirmed(this.#host, stay, "Delete the pinned ones too") ? keys : this.#kept()
  }

  #kept() {
    this.#say("Nothing was deleted.")
    return null
  }

  /** The entered size in bytes; null if invalid. */
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
    const evicts = `A budget of ${this.#size} evicts ${plural(surplus.segments, "segment")}, ${bytes(surplus.bytes)}; later prompts recompute what they need.${spared}`
    if (surplus.segments && !await confirmed(this.#host, evicts, "Evict and set the budget")) return this.#say("The budget is unchanged; nothing was evicted.")
    this.#bounded("The budget is set", await this.#server.ask("cache_budget", { bytes: size }))
  }

  /** @param {string} done description @param {import("../base/server.js").Reply<Api.Gone>} answer */
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
    const theirs = foreign.length ? ` ${plural(foreign.length, "other file")} in the folder: not created by the store, left unchanged.` : ""
    const pace = `${plural(segments, "segment")}, ${bytes(read)} read in ${seconds.toFixed(2)} s`
    if (clean) return this.#say(`Index and files agree: ${pace}.${theirs}`, "good")
    const found = [index && "a damaged index", faults.length && plural(faults.length, "damaged segment"), orphans.length && plural(orphans.length, "stray file")].filter(Boolean).join(" and ")
    const unheard = unread.length ? ` ${plural(unread.length, "segment")} could not be read and were left unchanged.` : ""
    this.#repair.hidden = repaired || !found
    const mended = found && `${found} set aside, removed or rebuilt. Missing segments are recomputed when needed.`
    this.#say((repaired ? mended : found && `${found} found (${pace}).`) + unheard + theirs, repaired && !unheard ? "" : "bad")
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
