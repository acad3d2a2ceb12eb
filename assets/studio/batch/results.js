// The results of a batch: a summary, its rows, sorted and filtered, and the details of one row.
import { count, h, milliseconds, nats, plural, refill, times } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { AWAY } from "../base/jobs.js"
import { Table } from "../base/table.js"
import { heldBy } from "./held.js"
import { rowDetail, uncachedTime } from "./row.js"
import { scoreOf, showScore } from "./score.js"

/** @type {[string, string, (row: Api.RowShown) => boolean][]} */
const FILTERS = [
  ["all", "All", () => true],
  ["failed checks", "Failed checks", row => row.cached?.passed === false || row.uncached?.passed === false],
  ["result changed", "Result changed by caching", row => row.cached?.passed != null && row.uncached?.passed != null && row.cached.passed !== row.uncached.passed],
  ["over the limit", "Over the KL limit", row => row.over_limit === true],
  ["differing", "Texts differ", row => row.same_text === false],
  ["scored", "Scored", row => row.cached?.score != null || row.uncached?.score != null],
  ["errors", "Errors", row => row.state === "failed"],
]

/** A row's question and its differences from other rows, as chips. @param {Api.RowShown} row */
function apart({ picks, arguments: given, settings, text, question }) {
  const pick = (/** @type {string} */ name) => `${name.startsWith("-") ? "without " : ""}${name.split("/").at(-1)}`
  return [
    question ? h("span", { class: text ? "row-text" : "row-text soft", title: text ? null : "The text of the open prompt" }, question) : null,
    ...picks.split(" ").filter(Boolean).map(name => h("span", { class: "chip", "data-kind": "module", title: name }, pick(name))),
    ...Object.entries(given).map(([name, value]) => h("span", { class: "chip", "data-kind": "argument", title: name }, `${name.split("/").at(-1)}: ${value}`)),
    ...Object.entries(settings).map(([name, value]) => h("span", { class: "chip" }, `${name} ${value}`)),
  ]
}

/**
 * "open": a row to open in Author; "fault": a score that was not stored, with the reason.
 * @extends {Emitter<{open: number, fault: string}>}
 */
export class Results extends Emitter {
  #server
  /** @type {Api.RowShown[]} */
  #rows = []
  #key = ""
  #both = true
  #graded = false  // whether the table has a column of grades
  #filter = "all"
  /** @type {number | null} */
  #opened = null
  #held = h("div", { class: "batch-held" })
  #tiles = h("dl", { class: "tiles" })
  #filters = h("div", { class: "segmented filters", role: "group", "aria-label": "Row filter" })
  #words = h("input", { type: "search", placeholder: "Find in questions and answers…", "aria-label": "Find rows", oninput: () => this.#list() })
  #found = h("span", { class: "soft", role: "status" })
  #table = this.#makeTable()
  #place = h("div", { class: "batch-rows" }, this.#table.node)
  node = h("div", { class: "batch-results" }, this.#held, this.#tiles, h("div", { class: "results-tools" }, this.#filters, this.#words, this.#found), this.#place)

  /** @param {import("../base/server.js").Server} server */
  constructor(server) {
    super()
    this.#server = server
  }

  /** @param {Api.BatchState} batch */
  show({ key, mode, rows, summary, held, alone }) {
    if (key !== this.#key) {
      this.#begin(key, mode === "both")
      this.#held.replaceChildren(...heldBy(held, alone))
    }
    for (const row of rows) this.#rows[row.number] = row
    if (summary.graded && !this.#graded) this.#regrade()
    this.#showTiles(summary)
    if (!rows.length) return
    this.#showFilters()
    this.#table.fill([...this.#rows])
    this.#tell()
  }

  /** @param {string} key @param {boolean} both */
  #begin(key, both) {
    this.#key = key
    this.#rows = []
    this.#filter = "all"
    this.#words.value = ""
    this.#opened = null
    this.#both = both
    this.#graded = false
    this.#table = this.#makeTable()
    this.#place.replaceChildren(this.#table.node)
  }

  #makeTable() {
    const time = (/** @type {number | null | undefined} */ value) => value == null ? "" : milliseconds(value)
    /** @type {Table<Api.RowShown>} */
    const table = new Table({
      label: "Rows of the batch", key: row => String(row.number), sort: ["row", 1], state: row => row.state, empty: () => "No rows match.",
      words: row => `${row.id} ${row.fault?.message ?? ""}`,
      columns: [
        { name: "row", title: "Row", value: row => row.number, cell: row => this.#opener(row) },
        { name: "asks", title: "Question", value: row => [row.picks, ...Object.entries({ ...row.arguments, ...row.settings }).flat(), row.question].join(" "), cell: row => h("div", { class: "asks" }, ...apart(row)) },
        { name: "cached", title: "Cached", value: row => row.cached?.text, cell: row => this.#side(row, row.cached) },
        ...(this.#both ? [{ name: "uncached", title: "Uncached", value: (/** @type {Api.RowShown} */ row) => row.uncached?.text, cell: (/** @type {Api.RowShown} */ row) => row.state === "done" ? this.#side(row, row.uncached, row.same_text) : "" }] : []),
        { name: "score", title: "Score", value: row => row.cached?.score ?? row.uncached?.score, greatest: true, about: "Your score of the answer, from 0 to 1", cell: row => this.#scores(row) },
        ...(this.#graded ? [{ name: "grade", title: "Grade", value: (/** @type {Api.RowShown} */ row) => row.cached?.grade?.score ?? row.uncached?.grade?.score, number: true, about: "The judge's grade of the answer, from 0 to 1", cell: (/** @type {Api.RowShown} */ row) => this.#grades(row) }] : []),
        { name: "time", title: "TTFT cached", value: row => row.cached?.ttft_ms, number: true, about: "Time to first token (TTFT), cached", cell: row => this.#cachedTime(row) },
        ...(this.#both ? [
          { name: "without", title: "TTFT uncached", value: (/** @type {Api.RowShown} */ row) => row.uncached?.ttft_ms, number: true, about: "Time to first token (TTFT), uncached", cell: (/** @type {Api.RowShown} */ row) => time(row.uncached?.ttft_ms) },
          { name: "speedup", title: "Speed-up", value: (/** @type {Api.RowShown} */ row) => row.speedup, number: true, cell: (/** @type {Api.RowShown} */ row) => row.speedup ? h("span", { class: uncachedTime(row.cached) ? "soft" : null, title: uncachedTime(row.cached)?.[1] }, times(row.speedup).join(" ")) : "" },
          { name: "kl", title: "KL", value: (/** @type {Api.RowShown} */ row) => row.kl_first_token, number: true, about: "How much caching changed the probabilities of the first token, in nats; 0 means no change", cell: (/** @type {Api.RowShown} */ row) => row.kl_first_token == null ? "" : h("span", {}, nats(row.kl_first_token), row.over_limit ? h("span", { class: "first-time", "data-mood": "bad", title: "A check found a mean KL of the answer above the limit" }, "over the limit") : null) },
        ] : []),
      ],
    })
    table.on("shown", () => this.#tell())
    return table
  }

  #regrade() {
    this.#graded = true
    this.#opened = null
    this.#table = this.#makeTable()
    this.#place.replaceChildren(this.#table.node)
  }

  /** @param {Api.RowShown} row */
  #grades({ same_text: same, ...row }) {
    const sides = /** @type {const} */ (["cached", "uncached"]).filter(side => row[side]?.grade && !(same && side === "uncached"))
    return sides.map(side => h("div", { title: row[side]?.grade?.reply }, sides.length > 1 ? h("span", { class: "soft" }, `${side} `) : null, row[side]?.grade?.score == null ? h("span", { "data-mood": "bad" }, "none") : String(row[side].grade.score)))
  }

  // Equal answers share one score.
  /** @param {Api.RowShown} row */
  #scores({ number, id, same_text: same, ...row }) {
    const sides = /** @type {const} */ (["cached", "uncached"]).filter(side => row[side] && !(same && side === "uncached"))
    return sides.map(side => h("div", { class: "scored" }, sides.length > 1 ? h("span", { class: "soft" }, side) : null, scoreOf(number, side, row[side]?.score ?? null, this.#rate, id)))
  }

  /** @type {import("./score.js").Rate} */
  #rate = async (number, side, score) => {
    const key = this.#key, answer = await this.#server.ask("batch_score", { key, number, side, score })
    if (this.#key !== key) return
    if (answer.away || answer.error != null) return this.emit("fault", `The score is not stored. ${answer.error ?? AWAY}`)
    this.#rows[number] = answer.row
    this.#showTiles(answer.summary)
    this.#showFilters()
    this.#table.fill([...this.#rows])
    for (const one of /** @type {const} */ (["cached", "uncached"])) for (const node of this.node.querySelectorAll(`[data-score="${number} ${one}"]`)) showScore(node, answer.row[one]?.score ?? null)
  }

  // A time that includes encoding, or without reuse, has another colour and a note.
  /** @param {Api.RowShown} row */
  #cachedTime({ cached, speedup }) {
    if (!cached) return ""
    const [label, why] = uncachedTime(cached) ?? []
    return label ? h("span", { title: why }, milliseconds(cached.ttft_ms), h("span", { class: "first-time soft" }, label, h("span", { class: "sr" }, `. ${why}`)))
      : h("span", { class: speedup != null && speedup < 1 ? null : "time-cached" }, milliseconds(cached.ttft_ms))
  }

  /** @param {Api.BatchSummary} found */
  #showTiles(found) {
    const of = (/** @type {number} */ part, /** @type {number} */ all) => all ? `${count(part)} of ${count(all)}` : "–"
    /** @type {[string, string, string, string?][]} */
    const tiles = [["Answered", of(found.answered, found.rows), found.failed ? `${plural(found.failed, "row")} failed` : ""]]
    if (found.checked) {
      tiles.push(["Passed, cached", of(found.passed_cached, found.checked), ""])
      if (this.#both) tiles.push(["Passed, uncached", of(found.passed_uncached, found.checked), found.verdicts_changed ? `caching changed ${plural(found.verdicts_changed, "result")}` : "caching changed no result"])
    }
    if (found.scored) tiles.push(["Mean score, cached", found.score_cached?.toFixed(2) ?? "–", [plural(found.scored, "row") + " scored", this.#both && found.score_uncached != null && `uncached ${found.score_uncached.toFixed(2)}`].filter(Boolean).join(", ")])
    if (found.graded) tiles.push(["Mean grade, cached", found.grade_cached?.toFixed(2) ?? "–", [plural(found.graded, "row") + " judged", found.ungraded && `${plural(found.ungraded, "answer")} not graded`, this.#both && found.grade_uncached != null && `uncached ${found.grade_uncached.toFixed(2)}`].filter(Boolean).join(", ")])
    if (this.#both) {
      tiles.push(["Same first token", of(found.same_first_token, found.compared), found.kl_mean == null ? "" : `mean KL ${nats(found.kl_mean)}`])
      const limit = found.kl_checked ? `${found.over_limit ? plural(found.over_limit, "row") : "no row"} over the KL limit` : ""
      tiles.push(["Same text", of(found.same_text, found.compared), limit, found.over_limit ? "bad" : ""])
    }
    const ratio = found.ttft_cached_ms && found.ttft_uncached_ms ? found.ttft_uncached_ms / found.ttft_cached_ms : null
    const unread = found.unread ? `${plural(found.unread, "row")} without reuse` : ""
    const basis = !found.timed ? "" : found.unread === found.answered ? unread : `${found.cold ? "encoding included" : `of ${plural(found.timed, "row")} fully cached`}${unread && `; excludes ${unread}`}`
    tiles.push(["First token, cached", milliseconds(found.ttft_cached_ms), basis])
    if (this.#both) tiles.push(["First token, uncached", milliseconds(found.ttft_uncached_ms), ratio ? `cached is ${times(ratio).join(" ")}` : ""])
    tiles.push(["Encoded once", plural(found.encoded, "token"), ""], ["Read from the cache", plural(found.reused, "token"), found.encoded ? `${(found.reused / found.encoded).toFixed(1)} times the encoded tokens` : ""])
    this.#tiles.replaceChildren(...tiles.map(([name, value, more, mood]) => h("div", {}, h("dt", {}, name), h("dd", {}, value), more ? h("dd", { class: "soft" }, mood ? h("span", { "data-mood": mood }, more) : more) : null)))
  }

  #showFilters() {
    refill(this.#filters, ...FILTERS.map(([name, words, has]) => {
      const found = this.#rows.filter(has).length
      if (name !== "all" && !found && name !== this.#filter) return null
      return h("button", { type: "button", "data-key": name, "aria-pressed": String(name === this.#filter), onclick: () => { this.#filter = name; this.#showFilters(); this.#list() } }, words, h("span", { class: "soft" }, count(found)))
    }))
  }

  #list() {
    this.#table.filter(this.#words.value, FILTERS.find(([name]) => name === this.#filter)?.[2])
    this.#tell()
  }

  #tell() { this.#found.textContent = this.#words.value.trim() ? `${count(this.#table.shown.length)} of ${plural(this.#rows.length, "row")}` : "" }

  /** @param {Api.RowShown} row */
  #opener({ number, state, id }) {
    const open = this.#opened === number
    return h("button", { type: "button", class: "quiet row-opener", "data-key": `row ${number}`, "aria-expanded": String(open), disabled: state === "waiting", onclick: () => this.#toggle(number) }, h("span", { class: "arrow", "aria-hidden": "true" }), id)
  }

  /** @param {Api.RowShown} row @param {Api.SideShown | undefined} side @param {boolean} [same] */
  #side({ state, fault }, side, same) {
    if (state === "failed") return h("div", { "data-mood": "bad" }, fault?.column ? `Column ${fault.column}: ${fault.message}` : fault?.message ?? "")
    if (!side) return h("span", { class: "soft" }, state === "waiting" ? "waits" : "–")
    const { passed, text } = side
    const mark = passed == null ? null : h("span", { class: "mark", "data-mood": passed ? "good" : "bad", role: "img", "aria-label": passed ? "passed" : "failed" }, passed ? "✓" : "✕")
    return h("div", { class: "said" }, mark, same ? h("span", { class: "soft" }, "the same") : text || h("span", { class: "soft" }, "nothing"))
  }

  /** @param {number} number @param {import("../base/dom.js").Child} detail */
  #expand(number, detail) {
    const button = (/** @type {number | null} */ row) => this.#table.node.querySelector(`[data-key="row ${row}"]`)
    button(this.#opened)?.setAttribute("aria-expanded", "false")
    this.#opened = detail ? number : null
    button(this.#opened)?.setAttribute("aria-expanded", "true")
    this.#table.expand(String(number), detail)
  }

  /** @param {number} number */
  async #toggle(number) {
    if (this.#opened === number) return this.#expand(number, null)
    this.#expand(number, h("p", { class: "soft" }, "Reading…"))
    const key = this.#key, answer = await this.#server.ask("batch_row", { key, number })
    if (this.#opened !== number || this.#key !== key) return
    this.#expand(number, answer.away || answer.error != null ? h("p", { "data-mood": "bad" }, answer.error ?? "The studio's server does not answer. Open the row again when it is back.")
      : rowDetail(answer, this.#rate, () => this.emit("open", number)))
  }
}
