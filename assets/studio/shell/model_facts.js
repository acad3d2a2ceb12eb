// Facts about models for the Models page: loaded or not, compared with well-known ones, and under the open schema.
import { bytes, count, h, plural } from "../base/dom.js"

const MEBI = 1024 ** 2

/** @type {Record<string, string>} how weights lie in memory */
const WEIGHTS = { int8: "rounded to int8", int4: "rounded to int4", "four-bit": "in the file's four bits" }

/** The last part of a path. @param {string} name */
export const shortName = name => name.split(/[\\/]/).findLast(part => part) ?? name

/**
 * The shortest path ends that differ.
 * @param {string[]} names
 */
export function distinct(names) {
  const tail = (/** @type {string} */ name, /** @type {number} */ parts) => name.split(/[\\/]/).filter(Boolean).slice(-parts).join("/")
  return names.map(name => {
    for (let parts = 1; ; parts++) {
      const shown = tail(name, parts)
      if (shown === tail(name, parts + 1) || !names.some(other => other !== name && tail(other, parts) === shown)) return shown
    }
  })
}

/** A number of parameters: 4.95 M, 1.1 B. @param {number} value */
function magnitude(value) {
  const [unit, size] = value >= 1e9 ? ["B", 1e9] : value >= 1e6 ? ["M", 1e6] : ["K", 1e3]
  return `${(value / size).toPrecision(3)} ${unit}`
}

/** @param {[string, string | null][]} rows */
const factList = rows => h("dl", { class: "model-facts" }, ...rows.map(([title, value]) =>
  value === null ? null : h("div", {}, h("dt", {}, title), h("dd", {}, value))))

/** @param {number} heads @param {number} size */
const headsOf = (heads, size) => `${plural(heads, "head")} × ${count(size)}`

/** All facts about the loaded model. @param {Api.ModelDetails} model */
export function loadedFacts(model) {
  const short = model.own_name, checks = Object.entries(model.checks)
  return [
    h("p", { class: "model-name" }, h("strong", {}, short), short === model.model ? null : h("span", { class: "soft" }, model.model)),
    factList([
      ["Family", model.family], ["Parameters", magnitude(model.parameters)], ["On disk", model.file_bytes ? `${bytes(model.file_bytes)}, ${model.format}` : null], ["Weights in memory", `${bytes(model.weight_bytes)}, ${WEIGHTS[model.weights] ?? model.weights}`],
      ["Device", model.device], ["Number format", model.dtype], ["Context", plural(model.context_length, "token")],
      ["Layers", count(model.layers)], ["Keys and values", headsOf(model.heads, model.head_size)], ["One cached token", bytes(model.bytes_per_token)],
    ]),
    model.why_larger ? h("p", { class: "soft" }, model.why_larger) : null,
    h("p", { class: "model-summary" },
      h("span", { class: "pill", "data-mood": model.exact_up_to ? "warn" : "good" }, model.exact_up_to ? `exact up to ${plural(model.exact_up_to, "token")}` : `exact up to ${model.dtype} rounding`),
      h("span", { class: "pill" }, model.path === "segments" ? "segments used without a copy" : "segments copied for each prompt"), model.summary),
    ...model.notes.map(note => h("p", { "data-mood": "warn" }, `${note.charAt(0).toUpperCase()}${note.slice(1)}.`)),
    model.apart ? h("p", { class: "soft" }, `This GPU reads shared segments one by one: ${model.apart}.`) : null,
    h("details", {}, h("summary", {}, "Comparisons of the probe"),
      h("p", { class: "soft" }, "Largest difference from the model's own logits, in units of their spread."),
      h("table", { class: "checks" }, h("tbody", {}, ...checks.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, value.toExponential(1))))))),
  ].filter(node => node !== null)
}

/** A model before it is loaded. @param {Api.ModelLook} look */
export function lookFacts(look) {
  return [
    factList([
      ["Family", look.family], ["Parameters", magnitude(look.parameters)], ["Context", plural(look.context_length, "token")],
      ["Layers", count(look.layers)], ["Keys and values", headsOf(look.kv_heads, look.head_size)], ["One cached token", bytes(look.bytes_per_token)],
      ["Runs on", `${look.device} in ${look.dtype}`], ["On disk", look.file_bytes ? `${bytes(look.file_bytes)}, ${look.format}` : null], ["Weights in memory", bytes(look.weight_bytes)], ["Download", look.fetch_bytes ? bytes(look.fetch_bytes) : null],
    ]),
    ...(look.why_larger ? [h("p", { class: "soft" }, look.why_larger)] : []),
    memoryBar(look),
  ]
}

/** The device's memory to scale: used, needed by the model, and free. @param {Api.ModelLook} look */
function memoryBar({ weight_bytes: weights, working_bytes: working, working_tokens: tokens, free, total }) {
  if (!total) return h("div", {})
  const taken = total - free, scale = Math.max(total, taken + weights + working)
  /** @type {[string, string, number][]} */
  const parts = [["taken", "Used now", taken], ["weights", "Weights", weights], ["working", `A prompt of ${plural(tokens, "token")} uncached, about`, working], ["free", "Free afterwards", Math.max(0, free - weights - working)]]
  return h("div", { class: "memory" },
    h("div", { class: "memory-bar", "aria-hidden": "true" }, ...parts.map(([part, , size]) => {
      const node = h("span", { "data-part": part })
      node.style.flexBasis = `${100 * size / scale}%`
      return node
    })),
    h("dl", { class: "memory-legend" }, ...parts.map(([part, words, size]) => h("div", { "data-part": part }, h("dt", {}, words), h("dd", {}, bytes(size))))))
}

const mebibytes = (/** @type {number} */ value) => `${(value / MEBI).toFixed(3)} MiB`

/**
 * The paper's table 2 as computed, with later models and the loaded one, and the open schema's size in each.
 * @param {Api.KnownRow[]} rows
 * @param {Api.ModelDetails | null} loaded
 * @param {number} tokens of the open schema
 */
export function knownTable(rows, loaded, tokens) {
  const own = loaded && h("tr", { class: "own" }, h("th", { scope: "row" }, loaded.own_name, h("span", { class: "soft" }, " loaded")),
    number(count(loaded.layers)), number(headsOf(loaded.heads, loaded.head_size)), number(`${loaded.bytes_per_token < MEBI / 100 ? bytes(loaded.bytes_per_token) : mebibytes(loaded.bytes_per_token)}, ${loaded.dtype}`), number("–"), number("–"), number(tokens ? bytes(tokens * loaded.bytes_per_token) : "–"))
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Bytes of one token, model by model" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Model"), ...["Layers", "Keys and values", "One token", "Without shared heads", "Paper, table 2", "The open schema"].map(title => h("th", { scope: "col", class: "number" }, title)))),
    h("tbody", {}, own, ...rows.map(row => h("tr", {}, h("th", { scope: "row" }, row.title), number(count(row.layers)), number(headsOf(row.kv_heads, row.head_size)), number(mebibytes(row.bytes_per_token)),
      number(row.unshared === row.bytes_per_token ? "the same" : mebibytes(row.unshared)), number(row.paper === null ? "–" : `${row.paper.toFixed(2)} MB`), number(tokens ? bytes(tokens * row.bytes_per_token) : "–"))))))
}

const number = (/** @type {string} */ text) => h("td", { class: "number" }, text)

/** A share in percent with two significant digits. @param {number} part @param {number} whole */
const share = (part, whole) => `${(100 * part / whole).toPrecision(2)} %`

/** The open schema's size by module. @param {Api.SchemaSizes} sizes @param {Map<string, string>} tiers names of tiers */
export function schemaFacts(sizes, tiers) {
  const shares = [sizes.memory && `${share(sizes.bytes, sizes.memory)} of the ${bytes(sizes.memory)} for segments in memory`, sizes.disk && `${share(sizes.bytes, sizes.disk)} of the ${bytes(sizes.disk)} on disk`].filter(Boolean)
  const rows = [...sizes.modules]
  if (sizes.anonymous_tokens) rows.unshift({ path: "fixed text", tokens: sizes.anonymous_tokens, bytes: sizes.anonymous_tokens * sizes.bytes_per_token, cached: "none" })
  const most = Math.max(1, ...rows.map(row => row.bytes))
  return [
    h("p", {}, h("strong", {}, sizes.name || "The open schema"), `: ${plural(sizes.tokens, "token")} with every module once, ${bytes(sizes.bytes)} of keys and values`, shares.length ? `: ${shares.join(", ")}.` : "."),
    h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": "The open schema in this model" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Module"), h("th", { scope: "col", class: "number" }, "Tokens"), h("th", { scope: "col", class: "number" }, "Size"), h("th", { scope: "col" }, h("span", { class: "unseen" }, "To scale")), h("th", { scope: "col" }, "Cached"))),
      h("tbody", {}, ...rows.map(row => {
        const bar = h("span", { class: "size-bar", "aria-hidden": "true" })
        bar.style.width = `${100 * row.bytes / most}%`
        const outside = row === rows[0] && sizes.anonymous_tokens > 0
        return h("tr", {}, h("th", { scope: "row", class: outside ? "soft" : null }, row.path), number(count(row.tokens)), number(bytes(row.bytes)), h("td", { class: "to-scale" }, bar), h("td", {}, outside ? "" : tiers.get(row.cached) ?? row.cached))
      })))),
  ]
}
