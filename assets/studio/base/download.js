// Downloads of data in the page.
import { h } from "./dom.js"

const KEEP_MS = 10_000

/** Downloads a text as a file. @param {string} name @param {string} text */
export function download(name, text, type = "application/xml") {
  const url = URL.createObjectURL(new Blob([text], { type }))
  h("a", { href: url, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(url), KEEP_MS)
}

/** @param {string} name @param {unknown} value */
export const downloadJson = (name, value) => download(name, `${JSON.stringify(value, null, 1)}\n`, "application/json")

/** @param {string} name @param {Cell[][]} lines of cells, titles first */
export const downloadCsv = (name, lines) => download(name, csv(lines), "text/csv")

/** @typedef {string | number | boolean | null | undefined} Cell */

/**
 * Lines of cells as CSV (RFC 4180). An apostrophe precedes texts that a spreadsheet would treat as formulas.
 * @param {Cell[][]} lines
 */
export function csv(lines) {
  return lines.map(cells => `${cells.map(quoted).join(",")}\r\n`).join("")
}

/** @param {Cell} cell */
function quoted(cell) {
  if (cell == null) return ""
  const text = typeof cell === "string" && /^(?:[\t\r]|[\p{Z}\p{C}\p{M}]*[=+\-@＝＋－＠﹢﹣﹦﹫])/u.test(cell) ? `'${cell}` : String(cell)
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/** A file name from free text. @param {string} words @param {string} ending without the dot */
export function fileName(words, ending) {
  const plain = words.normalize("NFKD").toLowerCase().replace(/[^\p{Letter}\p{Number}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60)
  return `${plain || "untitled"}.${ending}`
}
