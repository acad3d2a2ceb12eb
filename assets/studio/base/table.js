// A table with sorting, filters, selection and arrow keys. A row keeps its element through updates, and its cells while its data are unchanged: a press on its check box and text being typed survive.
import { count, h, keepFocus, refill } from "./dom.js"
import { Emitter } from "./events.js"

const AT_ONCE = 200  // rows, and as many more with each press of the button below
const CONTROLS = "button, input, select, a[href]"

/** @typedef {import("./dom.js").Child} Child */

/**
 * @template Row
 * @typedef {{
 *   name: string, title: string, value: (row: Row) => string | number | null | undefined, cell?: (row: Row) => Child | Child[], number?: boolean,
 *   greatest?: boolean, about?: string,
 * }} Column `value` is what it is sorted by, found by and saved as; `cell` is what it shows, where that is more than its text; `greatest` first when it is sorted, as numbers are
 */

/**
 * @template Row
 * @typedef {{
 *   label: string, columns: Column<Row>[], key: (row: Row) => string, sort: [string, 1 | -1], choice?: (row: Row) => string,
 *   words?: (row: Row) => string, empty?: (all: number) => Child | Child[], state?: (row: Row) => string,
 * }} Options `state` is said by a row's `data-state`; `choice` names a row on its check box, where rows can be chosen; `words` adds to what a row is found by; `empty` is shown where there are no rows, of `all` that there would be without the filter
 */

/**
 * "shown": the rows after a sort or a filter; "chosen": the selection.
 * @template Row
 * @extends {Emitter<{shown: Row[], chosen: Row[]}>}
 */
export class Table extends Emitter {
  #options
  /** @type {Row[]} */
  #rows = []
  /** @type {Row[]} */
  #shown = []
  /** @type {[string, 1 | -1]} */
  #sort
  #words = /** @type {string[]} */ ([])
  /** @type {(row: Row) => boolean} */
  #also = () => true
  #most = AT_ONCE
  /** @type {Set<string>} */
  #chosen = new Set()
  /** @type {{key: string, node: HTMLTableRowElement} | null} */
  #below = null
  /** @type {Map<string, {row: Row, node: HTMLTableRowElement}>} */
  #kept = new Map()
  #head = h("tr", {})
  #body = h("tbody", {})
  #scroll
  #empty = h("p", { class: "empty", hidden: true })
  #more = h("button", { type: "button", hidden: true, onclick: () => this.#showMore() })

  /** @param {Options<Row>} options */
  constructor(options) {
    super()
    this.#options = options
    this.#sort = options.sort
    this.#scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label }, h("table", {}, h("thead", {}, this.#head), this.#body))
    this.node = h("div", { class: "table" }, this.#scroll, this.#empty, this.#more)
    this.#body.addEventListener("keydown", event => this.#walk(event))
    this.#list()
  }

  /** Sets all rows, visible or not. @param {Row[]} rows */
  fill(rows) {
    this.#rows = rows
    const there = new Set(rows.map(this.#options.key)), chosen = this.#chosen.size
    this.#chosen = new Set([...this.#chosen].filter(key => there.has(key)))
    for (const key of this.#kept.keys()) if (!there.has(key)) this.#kept.delete(key)
    this.#list()
    if (this.#chosen.size !== chosen) this.emit("chosen", this.chosen)
  }

  /** Shows rows that contain all words and pass `also`. @param {string} words @param {(row: Row) => boolean} also */
  filter(words, also = () => true) {
    this.#words = words.toLowerCase().split(/\s+/).filter(Boolean)
    this.#also = also
    this.#most = AT_ONCE
    this.#list()
  }

  /** The rows that pass the filter, sorted. */
  get shown() { return this.#shown }

  /** The selected rows, sorted, without rows hidden by the filter. */
  get chosen() { return this.#shown.filter(row => this.#chosen.has(this.#options.key(row))) }

  /** @param {Iterable<string>} keys */
  choose(keys) {
    this.#chosen = new Set(keys)
    this.#list()
    this.emit("chosen", this.chosen)
  }

  /** The visible rows as lines of cells, titles first, for export. */
  lines() { return [this.#options.columns.map(({ title }) => title), ...this.#shown.map(row => this.#options.columns.map(({ value }) => value(row)))] }

  focus() { this.#scroll.focus() }

  /** Shows content below one row only; null removes it. @param {string} key @param {Child} content */
  expand(key, content) {
    const cells = this.#options.columns.length + (this.#options.choice ? 1 : 0)
    this.#below = content ? { key, node: h("tr", { class: "expansion" }, h("td", { colspan: String(cells) }, content)) } : null
    this.#paint()
  }

  #list() {
    const before = this.#shown, { columns, words } = this.#options, [by, way] = this.#sort
    const column = columns.find(({ name }) => name === by) ?? columns[0]
    const has = (/** @type {Row} */ row) => {
      const found = [...columns.map(({ value }) => value(row)), words?.(row)].join(" ").toLowerCase()
      return this.#words.every(word => found.includes(word))
    }
    this.#shown = this.#rows.filter(row => this.#also(row) && (!this.#words.length || has(row)))
      .sort((a, b) => compared(column.value(a), column.value(b), way))
    this.#paint()
    if (before.length !== this.#shown.length || before.some((row, index) => row !== this.#shown[index])) this.emit("shown", this.#shown)
  }

  #paint() {
    const { empty } = this.#options, shown = this.#shown.length
    this.#scroll.hidden = shown === 0
    this.#empty.hidden = shown > 0 || !empty
    if (!shown && empty) this.#empty.replaceChildren(...[empty(this.#rows.length)].flat().filter(child => child != null && child !== false))
    this.#more.hidden = shown <= this.#most
    this.#more.textContent = `Show ${count(Math.min(AT_ONCE, shown - this.#most))} of ${count(shown - this.#most)} more`
    refill(this.#head, this.#options.choice ? h("th", { scope: "col", class: "choice" }, this.#chooseAll()) : null, ...this.#options.columns.map(column => this.#title(column)))
    keepFocus(this.#body, () => this.#place())
  }

  // Rows that are in their place are not moved: an element that moves between press and release gets no click.
  #place() {
    const below = this.#below, rows = this.#shown.slice(0, this.#most).flatMap(row => {
      const node = this.#row(row), expanded = below?.key === node.dataset.row
      node.toggleAttribute("data-open", expanded)
      return expanded && below ? [node, below.node] : [node]
    })
    const wanted = new Set(rows)
    for (const node of [...this.#body.children]) if (!wanted.has(/** @type {HTMLTableRowElement} */ (node))) node.remove()
    rows.forEach((node, index) => { if (node !== this.#body.children[index]) this.#body.insertBefore(node, this.#body.children[index] ?? null) })
  }

  /** @param {Column<Row>} column */
  #title({ name, title, number, greatest = number, about }) {
    const [by, way] = this.#sort, turn = () => {
      this.#sort = [name, name === by ? /** @type {1 | -1} */ (-way) : greatest ? -1 : 1]
      this.#list()
    }
    return h("th", { scope: "col", class: number ? "number" : null, "data-column": name, "aria-sort": name === by ? (way > 0 ? "ascending" : "descending") : null },
      h("button", { type: "button", class: "quiet", "data-key": name, title: about, onclick: turn }, title, h("span", { class: "way", "aria-hidden": "true" }, name === by ? (way > 0 ? "↑" : "↓") : "")))
  }

  #chooseAll() {
    const all = this.#shown.length > 0 && this.chosen.length === this.#shown.length
    const box = h("input", { type: "checkbox", "data-key": "all", "aria-label": `Choose all ${count(this.#shown.length)} shown`, checked: all, indeterminate: !all && this.chosen.length > 0,
      onchange: () => this.choose(box.checked ? this.#shown.map(this.#options.key) : []) })
    return box
  }

  /** @param {Row} row */
  #row(row) {
    const { columns, choice, key, state } = this.#options, name = key(row), known = this.#kept.get(name), node = known?.node ?? h("tr", { "data-row": name })
    if (!known && choice) node.append(h("td", { class: "choice" }, h("input", { type: "checkbox", "data-key": `choose ${name}`, onchange: (/** @type {Event} */ { target }) => this.#choose(name, /** @type {HTMLInputElement} */ (target).checked) })))
    if (known?.row !== row) {
      const first = choice ? 1 : 0, of = state?.(row)
      for (const cell of [...node.children].slice(first)) cell.remove()
      if (of === undefined) delete node.dataset.state
      else node.dataset.state = of
      node.append(...columns.map(column => h("td", { class: column.number ? "number" : null, "data-column": column.name, "data-title": column.title }, column.cell ? column.cell(row) : String(column.value(row) ?? "–"))))
      if (choice) node.querySelector("input")?.setAttribute("aria-label", `Choose ${choice(row)}`)
    }
    const chosen = this.#chosen.has(name), box = choice ? node.querySelector("input") : null
    if (box) box.checked = chosen
    node.toggleAttribute("data-chosen", chosen)
    this.#kept.set(name, { row, node })
    return node
  }

  /** @param {string} key @param {boolean} on */
  #choose(key, on) {
    if (on) this.#chosen.add(key)
    else this.#chosen.delete(key)
    this.#paint()
    this.emit("chosen", this.chosen)
  }

  #showMore() {
    const next = this.#most
    this.#most += AT_ONCE
    this.#paint()
    const first = this.#lines()[next]?.querySelector(CONTROLS)
    if (first instanceof HTMLElement) first.focus()
    else this.focus()
  }

  // The rows without expanded content.
  #lines() { return [...this.#body.children].filter(row => row instanceof HTMLElement && row.dataset.row !== undefined) }

  // Up and down move to the same control of the next row, Ctrl-Home and Ctrl-End to the first and last row.
  /** @param {KeyboardEvent} event */
  #walk(event) {
    const { target, key, ctrlKey } = event, rows = this.#lines()
    if (!(target instanceof HTMLElement) || target instanceof HTMLSelectElement || event.defaultPrevented) return
    const at = rows.findIndex(row => row.contains(target))
    if (at < 0) return
    const to = key === "ArrowDown" ? at + 1 : key === "ArrowUp" ? at - 1 : ctrlKey && key === "Home" ? 0 : ctrlKey && key === "End" ? rows.length - 1 : -1
    if (!rows[to]) return
    const place = [...rows[at].querySelectorAll(CONTROLS)].indexOf(target), next = [...rows[to].querySelectorAll(CONTROLS)][place]
    if (!(next instanceof HTMLElement)) return
    event.preventDefault()
    next.focus()
  }
}

const collator = new Intl.Collator(undefined, { numeric: true })

/**
 * Compares texts by locale and numbers by value; missing values are last.
 * @param {string | number | null | undefined} a
 * @param {string | number | null | undefined} b
 * @param {1 | -1} way
 */
function compared(a, b, way) {
  const missing = Number(a == null || a === "") - Number(b == null || b === "")
  if (missing || a == null || b == null) return missing
  return way * (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)))
}
