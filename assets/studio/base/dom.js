// Elements and numbers. All text is inserted as text nodes, never as HTML.

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * h("button", {class: "x", "aria-label": "y", onclick: f}, "text", node, …): an element; null children are left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} attributes
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value)
    else if (name in node && typeof value !== "string") Object.assign(node, { [name]: value })
    else node.setAttribute(name, value === true ? "" : value)
  }
  for (const child of children.flat()) if (child != null && child !== false) node.append(child)
  return node
}

/**
 * Changes what is in an element; if that removes the focus, it moves to the new element with the same `data-key`.
 * @param {HTMLElement} node
 * @param {() => void} change
 */
export function keepFocus(node, change) {
  const focused = document.activeElement, key = focused instanceof HTMLElement && node.contains(focused) ? focused.dataset.key : undefined
  change()
  if (key === undefined || node.contains(document.activeElement)) return
  for (const one of node.querySelectorAll("[data-key]")) if (one instanceof HTMLElement && one.dataset.key === key) one.focus({ preventScroll: true })
}

/**
 * Replaces an element's children; the focus moves to the new child with the same `data-key`.
 * @param {HTMLElement} node
 * @param {...Child} children
 */
export function refill(node, ...children) {
  keepFocus(node, () => node.replaceChildren(...children.filter(child => child != null && child !== false)))
}

const grouped = new Intl.NumberFormat("en")
export const count = (/** @type {number} */ value) => grouped.format(Math.round(value))
export const plural = (/** @type {number} */ value, /** @type {string} */ noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`
/** Work done so far; encoding counts tokens. @param {string} what @param {number} done @param {number} total */
export const tally = (what, done, total) => `${count(done)} of ${/encod/.test(what) ? plural(total, "token") : count(total)}`

/** @param {number | null | undefined} value */
export function milliseconds(value) {
  if (value == null) return "–"
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`
  return `${value.toFixed(value >= 100 ? 0 : value >= 1 ? 1 : 2)} ms`
}

/** A KL divergence, or a part of one. @param {number} value */
export function nats(value) {
  if (value === 0) return "0"
  if (Math.abs(value) < 0.001) return "< 0.001"
  return Math.abs(value) < 0.1 ? value.toPrecision(2) : value.toFixed(2)
}

/** @param {number} value */
export function bytes(value) {
  if (value < 1024) return `${value} B`
  if (value < 1024 ** 2) return `${(value / 1024).toFixed(0)} KiB`
  return value < 1024 ** 3 ? `${(value / 1024 ** 2).toFixed(1)} MiB` : `${(value / 1024 ** 3).toFixed(2)} GiB`
}

/** @type {Intl.DateTimeFormatOptions} */
const MOMENT = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" }
const thisYear = new Intl.DateTimeFormat("en", MOMENT), anyYear = new Intl.DateTimeFormat("en", { ...MOMENT, year: "numeric" })
const hours = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" })

/** A day and a time, as "Nov 23, 09:16", with the year if it is not the current one; "–" if invalid. @param {string | number} at a date, or milliseconds since 1970 */
export function moment(at) {
  const date = new Date(at)
  if (Number.isNaN(date.getTime())) return "–"
  return (date.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(date)
}

/** The time of a day, as "09:16". @param {string | number} at */
export const clock = at => hours.format(new Date(at))

/** The speedup of the cached side as a number and a word. @param {number} ratio uncached time over cached time */
export const times = ratio => [`${(ratio >= 1 ? ratio : 1 / ratio).toFixed(Math.max(ratio, 1 / ratio) >= 100 ? 0 : 1)}×`, ratio >= 1 ? "faster" : "slower"]

/** A range of speedups in the words of `times`. @param {number} least @param {number} most */
export function timesRange(least, most) {
  if (least >= 1) return `${times(least)[0].slice(0, -1)} to ${times(most)[0].slice(0, -1)}`
  if (most <= 1) return `${times(most)[0].slice(0, -1)} to ${times(least)[0].slice(0, -1)}`
  return `from ${times(least).join(" ")} to ${times(most).join(" ")}`
}

const CLOSE = 1.25  // a smaller ratio of one timing each may be chance

/** Whether the timings of both sides overlap, or one timing of each is close to the other. @param {{ttft_speedup?: number | null, least_speedup?: number | null, most_speedup?: number | null}} comparison */
export const overlapping = ({ ttft_speedup: ratio, least_speedup: least, most_speedup: most }) => least != null && most != null ? least < 1 && most > 1 : ratio != null && ratio > 1 / CLOSE && ratio < CLOSE

/** @param {number} wait @returns {Promise<void>} */
export const pause = wait => new Promise(resolve => { setTimeout(resolve, wait) })

/**
 * @template {any[]} Values
 * @param {number} wait
 * @param {(...values: Values) => unknown} action
 */
export function debounce(wait, action) {
  let timer = 0
  const later = (/** @type {Values} */ ...values) => { clearTimeout(timer); timer = setTimeout(() => action(...values), wait) }
  return Object.assign(later, { cancel: () => clearTimeout(timer) })
}

/** Whether no element has the focus. */
export const unfocused = () => !document.activeElement || document.activeElement.matches("body, :disabled")

/** A unique key. */
export const newKey = () => crypto.getRandomValues(new Uint32Array(2)).join("-")
