// Bytes by schema and module as rectangles, with a fixed colour per schema.
import { bytes, count, h, refill } from "./dom.js"

const LABEL_WIDTH = 36, LABEL_HEIGHT = 24
// Hues other than teal, orange and purple, which have meanings, in degrees of OKLCH.
const HUES = [[95, 150], [225, 275], [335, 380]], STEPS = 12, LIGHTNESS = [42, 50]

/** A schema's colour: fixed by its name, and dark enough for white text. @param {string} name */
export function schemaColour(name) {
  if (!name) return "#4b5563"
  let hash = 2166136261
  for (const letter of name) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 16777619) >>> 0
  const [from, to] = HUES[hash % HUES.length], step = Math.floor(hash / HUES.length) % STEPS
  return `oklch(${LIGHTNESS[Math.floor(hash / 64) % LIGHTNESS.length]}% 0.12 ${(from + (to - from) * step / (STEPS - 1)) % 360})`
}

/** A small square in that colour. @param {string} name */
export function swatch(name) {
  const square = h("span", { class: "swatch", "aria-hidden": "true" })
  square.style.background = schemaColour(name)
  return square
}

/**
 * Rectangles in percent for values, largest first, by repeated halving of the longer side.
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

/** A schema and one of its modules; without path the whole schema. @typedef {{schema: string, path: string | null}} Place */

const same = (/** @type {Place | null} */ one, /** @type {Place | null} */ other) => one?.schema === other?.schema && one?.path === other?.path

export class Treemap {
  #choose
  /** @type {Api.ModuleBytes[]} */
  #modules = []
  /** @type {Place | null} */
  #chosen = null
  node = h("div", { class: "treemap", role: "group", "aria-label": "Bytes by schema and module; choose one to list its segments" })

  /** @param {(place: Place | null) => void} choose called with the choice, or null when it is cleared */
  constructor(choose) {
    this.#choose = choose
    this.node.addEventListener("keydown", event => this.#walk(event))
  }

  /** @param {Api.ModuleBytes[]} modules @param {Place | null} chosen */
  show(modules, chosen) {
    this.#modules = modules
    this.#chosen = chosen
    this.node.hidden = modules.length === 0
    const schemas = [...new Set(modules.map(({ schema }) => schema))]
    const groups = schemas.map(schema => ({ schema, inner: modules.filter(one => one.schema === schema).map(one => ({ ...one, value: one.bytes })) }))
      .map(group => ({ ...group, value: group.inner.reduce((sum, { value }) => sum + value, 0) })).sort((a, b) => b.value - a.value)
    const { clientWidth: wide, clientHeight: high } = this.node, aspect = wide / (high || 1) || 1
    const cells = treemap(groups, aspect).flatMap(({ inner, x, y, width, height }) => treemap(inner, aspect, x, y, width, height))
    const reached = Math.max(0, cells.findIndex(cell => same(cell, chosen)))
    refill(this.node, ...cells.map(({ schema, path, segments, bytes: size, ...at }, index) => {
      const named = at.width * wide / 100 > LABEL_WIDTH && at.height * high / 100 > LABEL_HEIGHT
      const words = `${schema || "no schema"}, ${path === null ? "smaller modules" : path || "fixed text"}: ${bytes(size)}, ${count(segments)} of the segments`
      const cell = h("button", { type: "button", class: "cell", "data-key": `${schema}\n${path}`, title: words, "aria-label": words, "aria-pressed": String(same({ schema, path }, chosen)),
        tabindex: index === reached ? "0" : "-1", onclick: () => this.#choose(same({ schema, path }, this.#chosen) ? null : { schema, path }) },
        named ? h("span", {}, path === null ? "smaller modules" : path.split("/").at(-1) || "fixed text") : null)
      Object.assign(cell.style, { left: `${at.x}%`, top: `${at.y}%`, width: `${at.width}%`, height: `${at.height}%`, background: schemaColour(schema) })
      return cell
    }))
  }

  /** Redraws at another width. */
  again() { this.show(this.#modules, this.#chosen) }

  /** @param {KeyboardEvent} event */
  #walk({ key, target }) {
    const cells = [...this.node.querySelectorAll("button")], at = cells.findIndex(cell => cell === target)
    const to = key === "ArrowRight" || key === "ArrowDown" ? at + 1 : key === "ArrowLeft" || key === "ArrowUp" ? at - 1 : key === "Home" ? 0 : key === "End" ? cells.length - 1 : -1
    if (at < 0 || !cells[to]) return
    cells[at].tabIndex = -1
    cells[to].tabIndex = 0
    cells[to].focus()
  }
}
