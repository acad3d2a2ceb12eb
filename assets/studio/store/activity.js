// The store's history: misses, evictions and next evictions.
import { bytes, count, h, milliseconds, moment, plural } from "../base/dom.js"
import { swatch } from "../base/treemap.js"

const MIB = 1024 ** 2
const KEY_SHOWN = 8  // enough to tell keys apart
export const date = (/** @type {number} */ seconds) => moment(seconds * 1000)
export const module = (/** @type {{path: string | null, key: string}} */ row) => row.path || `fixed text (${row.key.slice(0, KEY_SHOWN)})`

/** The computing time, or a dash if unknown. @param {number} seconds */
export const computing = seconds => seconds ? milliseconds(seconds * 1000) : "–"

/** @param {string} label @param {string[]} titles @param {(import("../base/dom.js").Child | import("../base/dom.js").Child[])[][]} rows @param {number} numbers the number of numeric columns at the end */
const listed = (label, titles, rows, numbers) => {
  const cell = (/** @type {number} */ index) => index >= titles.length - numbers ? "number" : null
  return h("div", { class: "table" }, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, ...titles.map((title, index) => title ? h("th", { scope: "col", class: cell(index) }, title) : h("td")))),
      h("tbody", {}, ...rows.map(row => h("tr", {}, ...row.map((words, index) => h("td", { class: cell(index) }, words))))))))
}

/** @param {Api.Missing[]} misses */
export function missed(misses) {
  if (!misses.length) return []
  const why = (/** @type {Api.Missing} */ one) => [h("strong", {}, one.reason), ` ${one.meaning}${one.gone_at ? `, on ${date(one.gone_at)}` : ""}.`]
  return [h("h3", {}, "Misses"), h("p", { class: "soft" }, "The latest segments that a run had to compute."),
    listed("Latest misses", ["When", "Schema", "Module", "Why", "Size", "Computing time"], misses.map(one =>
      [date(one.at), [swatch(one.schema), one.schema || "–"], module(one), why(one), bytes(one.bytes), milliseconds(one.ms)]), 2)]
}

/** @param {Api.Eviction[]} rows */
export function gone(rows) {
  if (!rows.length) return []
  return [h("h3", {}, "Evictions"), h("ul", {}, ...rows.map(row =>
    h("li", {}, h("span", { class: "soft" }, date(row.at)), ` ${row.schema || "–"} ${module(row)}, ${bytes(row.bytes)}: ${row.reason}`)))]
}

/** Explains the eviction order. @type {Record<Api.WouldGo["policy"], string>} */
const ORDERS = {
  cost: "Segments that are cheapest to recompute per MiB are evicted first; recent use raises a segment's value.",
  lru: "Least recently used segments are evicted first.",
}

/** @param {Api.WouldGo} next */
export function nextOut({ total, first, budget, spare, missing, policy }) {
  const lacking = missing ? h("p", { "data-mood": "warn" }, `${bytes(missing)} would still be missing: the other segments are pinned or in use, or the budget of ${bytes(budget)} is too small.`) : null
  if (!total.segments) return [lacking ?? h("p", { class: "empty" }, `No evictions needed: ${bytes(spare)} of the budget of ${bytes(budget)} are free.`)]
  let sum = 0
  const rows = first.map((row, index) => {
    sum += row.bytes
    return [count(index + 1), [swatch(row.schema ?? ""), row.schema || "–"], module(row), date(row.last_used), computing(row.seconds), bytes(row.bytes), computing(row.seconds * MIB / Math.max(1, row.bytes)), bytes(sum)]
  })
  const more = total.segments - first.length
  return [h("p", {}, `${plural(total.segments, "segment")} would be evicted, ${bytes(total.bytes)}${more > 0 ? `; the first ${count(first.length)} of them` : ""}. ${ORDERS[policy]}`), ...(lacking ? [lacking] : []),
    listed("Next evictions", ["", "Schema", "Module", "Last used", "Computing time", "Size", "Per MiB", "Total"], rows, 4)]
}
