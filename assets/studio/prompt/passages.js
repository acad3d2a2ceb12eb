// The model's input as blocks. Blocks out of view are plain text; tokens and white space are drawn in view only.
import { h } from "../base/dom.js"

const BLOCK = 3000 // characters, extended to the end of the line
const LONGEST = 6000 // of a single line
/** @type {Record<string, string>} */
const SPACES = { " ": "·", "\n": "↵", "\t": "→", "\u00a0": "⍽", "\r": "␍", "\u200b": "◦", "\ufeff": "◦" }
const SPACE = /[ \n\t\u00a0\r\u200b\ufeff]/

/**
 * @typedef {{passage: number, from: number, to: number}} Part characters of a passage
 * @typedef {{key: string, heading: string, parts: Part[], looks: string[]}} Row a heading, or the text of a block
 */

/** @param {Api.ReadPassage} passage @param {boolean} first of the text @param {boolean} alone whether there are no turns */
function headingOf({ turn, role }, first, alone) {
  if (turn !== null) return role
  if (role) return `${role} — to be answered`
  return alone ? "text" : first ? "beginning" : "between turns"
}

/** The rows of a text. Rows with equal keys look the same. @param {Api.ReadPassage[]} passages @returns {Row[]} */
export function rowsOf(passages) {
  /** @type {Row[]} */
  const rows = []
  const alone = passages.every(({ turn, role }) => turn === null && !role)
  /** @type {Row | null} */
  let row = null
  let length = 0, tint = 0, section = "", module = ""
  passages.forEach((passage, index) => {
    const heading = headingOf(passage, index === 0, alone), own = `${passage.turn} ${heading}`
    if (own !== section) {
      section = own
      rows.push({ key: `# ${heading}`, heading, parts: [], looks: [] })
      row = null
    }
    if (passage.author === "module" && passage.path !== module) { tint = 1 - tint; module = passage.path }
    for (let from = 0; from < passage.text.length || (from === 0 && !passage.text);) {
      if (!row) { row = { key: "", heading: "", parts: [], looks: [] }; rows.push(row); length = 0 }
      const rest = passage.text.length - from
      let to = passage.text.length
      if (length + rest > BLOCK) {
        const line = passage.text.indexOf("\n", from + Math.max(0, BLOCK - length))
        to = Math.min(line < 0 ? to : line + 1, from + LONGEST)
      }
      row.parts.push({ passage: index, from, to })
      row.looks.push(look(passage, tint))
      row.key += `${look(passage, tint)}\u0000${passage.text.slice(from, to)}\u0001`
      length += to - from
      if (length >= BLOCK && passage.text[to - 1] === "\n" || length >= LONGEST) row = null
      from = to
      if (!passage.text) break
    }
  })
  return rows
}

/** A passage's class. @param {Api.ReadPassage} passage @param {number} tint */
function look({ author, meets, document: where }, tint) {
  return `passage by-${author}${author === "module" && tint ? " second" : ""}${meets ? " meets" : ""}${where ? " written" : ""}`
}

/** One row on the page. */
export class Block {
  /** Whether it is in view. */
  seen = false
  #marked = ""
  /** @type {HTMLElement[]} */
  #spans
  /** @type {Part[]} */
  #parts
  /** @type {Api.ReadPassage[]} */
  #passages = []

  /** @param {Row} row */
  constructor(row) {
    this.key = row.key
    this.#parts = row.parts
    this.#spans = row.looks.map(name => h("span", { class: name }))
    this.node = row.heading ? h("h3", { class: "turn" }, row.heading) : h("div", { class: "block" }, ...this.#spans)
  }

  /** Sets its passages. @param {Row} row @param {Api.ReadPassage[]} passages */
  take(row, passages) {
    const first = this.#passages.length === 0
    this.#parts = row.parts
    this.#passages = passages
    row.parts.forEach((part, at) => { this.#spans[at].dataset.passage = String(part.passage) })
    if (first) this.mark({ tokens: false, spaces: false })
  }

  /** Draws or removes tokens and white space. @param {{tokens: boolean, spaces: boolean}} marks */
  mark(marks) {
    const tokens = marks.tokens && this.#parts.some(({ passage }) => this.#passages[passage].borders)
    const wanted = `${tokens} ${marks.spaces} ${tokens ? this.#parts.map(({ passage, from, to }) => this.#passages[passage].borders?.filter(one => one >= from && one < to)).join("|") : ""}`
    if (wanted === this.#marked) return
    this.#marked = wanted
    this.#parts.forEach((part, at) => {
      const passage = this.#passages[part.passage]
      const pieces = tokens && passage.borders ? tokensOf(passage, part) : [{ text: passage.text.slice(part.from, part.to), name: "", shared: 1, at: part.from }]
      this.#spans[at].replaceChildren(...pieces.flatMap(piece => drawn(piece, passage, marks.spaces)))
    })
  }

  /** @param {number} passage */
  highlight(passage) {
    this.#spans.forEach((span, at) => span.classList.toggle("current", this.#parts[at].passage === passage))
  }

  /** The offset in a passage of a place in this block; -1 if it is not here. @param {number} passage @param {Node} node @param {number} offset */
  offset(passage, node, offset) {
    const at = this.#parts.findIndex((part, index) => part.passage === passage && this.#spans[index].contains(node))
    if (at < 0) return -1
    const range = document.createRange()
    range.setStart(this.#spans[at], 0)
    range.setEnd(node, offset)
    return this.#parts[at].from + range.toString().length
  }
}

/** Unique token starts, each with the number of tokens there. @type {WeakMap<Api.ReadPassage, [number, number][]>} */
const begun = new WeakMap()

/** @param {Api.ReadPassage} passage */
function beginnings(passage) {
  const known = begun.get(passage)
  if (known) return known
  /** @type {[number, number][]} */
  const found = []
  for (const border of passage.borders ?? []) {
    const last = found.at(-1)
    if (last && last[0] === border) last[1]++
    else found.push([border, 1])
  }
  begun.set(passage, found)
  return found
}

/** The tokens of a part; tokens that share a character are merged. @param {Api.ReadPassage} passage @param {Part} part */
function tokensOf(passage, { from, to }) {
  const all = beginnings(passage)
  let next = all.findIndex(([at]) => at >= from)
  if (next < 0) next = all.length
  const found = []
  for (let at = from, odd = next % 2 === 1, begins = false, shared = 0; at < to;) {
    if (all[next]?.[0] === at) { begins = true; shared = all[next][1]; odd = next % 2 === 0; next++ }
    const end = Math.min(to, all[next]?.[0] ?? to)
    found.push({ text: passage.text.slice(at, end), name: `token${odd ? " odd" : ""}${begins ? " begins" : ""}`, shared, at })
    at = end
    begins = false
    shared = 0
  }
  return found
}

/** @param {{text: string, name: string, shared: number, at: number}} piece @param {Api.ReadPassage} passage @param {boolean} spaces @returns {(Node | string)[]} */
function drawn({ text, name, shared, at }, { specials }, spaces) {
  /** @type {(Node | string)[]} */
  const found = []
  let place = at
  for (const [from, to] of specials) {
    if (to <= at || from >= at + text.length) continue
    found.push(...spaced(text.slice(place - at, Math.max(0, from - at)), spaces), h("span", { class: "special" }, text.slice(Math.max(0, from - at), to - at)))
    place = to
  }
  found.push(...spaced(text.slice(Math.max(0, place - at)), spaces))
  return name ? [h("span", { class: name, title: shared > 1 ? `${shared} tokens share this` : null, "data-shared": shared > 1 ? String(shared) : null }, ...found)] : found
}

/** @param {string} text @param {boolean} shown @returns {(Node | string)[]} */
function spaced(text, shown) {
  if (!shown || !SPACE.test(text)) return text ? [text] : []
  return text.split(/([ \n\t\u00a0\r\u200b\ufeff])/).filter(Boolean).map(one => SPACES[one] ? h("span", { class: "space", "data-sign": SPACES[one] }, one) : one)
}
