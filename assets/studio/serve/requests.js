// What other programs have asked, the newest first, and which share of it was read from the cache.
import { Chart } from "../chart.js"
import { count, h, milliseconds, moment, plural } from "../dom.js"
import { downloadCsv } from "../saving.js"
import { Table } from "../table.js"

const MOST = 500  // that the server keeps too
const SHORT = 90  // characters of a sentence that are shown without asking
const A_DAY_MS = 86_400_000
const EMPTY = "No program has asked yet. Copy the program above and run it: its request is listed here at once."
const seconds = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" })

/** @typedef {Api.ServedRequest} Row */

/** @type {Record<Row["outcome"], string>} */
const OUTCOMES = { waiting: "waiting", answering: "answering", done: "done", ended: "ended early", refused: "refused" }
/** @type {Record<string, string>} */
const STOPPED = { stop: "at a stop text", length: "at its token limit" }
/** @type {Record<string, string>} */
const DIALECTS = { openai: "OpenAI", anthropic: "Anthropic" }

const time = (/** @type {number} */ at) => Date.now() - at * 1000 < A_DAY_MS ? seconds.format(at * 1000) : moment(at * 1000)
const short = (/** @type {string} */ path) => path.replace(/^\/v1\//, "")
const share = (/** @type {number} */ read, /** @type {number} */ prompt) => `${Math.round(100 * read / prompt)}%`

export class Requests {
  #server
  /** @type {Map<number, Row>} */
  #rows = new Map()
  #held = false
  #drawn = ""
  /** @type {Table<Row>} */
  #table
  #sums = h("p", { class: "soft sums" })
  #unseen = 0
  #hold = h("button", { type: "button", class: "hold", title: "Keeps the list as it is while you read it", onclick: () => this.#turn() }, "Hold")
  #csv = h("button", { type: "button", onclick: () => downloadCsv("requests.csv", this.#table.lines()) }, "Save as CSV")
  #chart = new Chart()
  #none = h("p", { class: "empty" }, "Here is drawn which share of each prompt was read from the cache, once a program has asked.")

  /** @param {import("../server.js").Server} server */
  constructor(server) {
    this.#server = server
    this.#table = this.#made()
    this.rate = h("section", { class: "card hits", "aria-label": "Read from the cache" }, h("h3", {}, "Read from the cache"), h("div", { class: "hits-place" }, this.#chart.node, this.#none))
    this.node = h("section", { class: "serve-requests", "aria-label": "Requests" },
      h("header", { class: "serve-row" }, h("h3", {}, "Requests"), this.#sums, h("span", { class: "grow" }), this.#hold, this.#csv), this.#table.node)
    this.#show()
  }

  /** Who asked is told where the server knows keys. @param {boolean} keyed */
  keyed(keyed) { this.node.toggleAttribute("data-keyed", keyed) }

  /** Forgets all: another start of the studio answers. */
  clear() {
    this.#rows.clear()
    this.#drawn = ""
  }

  /** Takes in what has changed. @param {Row[]} changed */
  take(changed) {
    if (this.#held) this.#unseen += changed.filter(({ number }) => !this.#rows.has(number)).length
    for (const row of changed) this.#rows.set(row.number, row)
    const numbers = [...this.#rows.keys()].sort((one, other) => one - other)
    for (const number of numbers.slice(0, Math.max(0, numbers.length - MOST))) this.#rows.delete(number)
    if (changed.length || !this.#rows.size) this.#show()
  }

  /** What is drawn fits the page as it is now. */
  shown() { this.#draw() }

  #show() {
    if (!this.#held) {
      this.#table.fill([...this.#rows.values()])
      this.#sum()
    }
    this.#hold.textContent = this.#held ? `Go on${this.#unseen ? ` (${count(this.#unseen)} new)` : ""}` : "Hold"
    this.#hold.disabled = this.#csv.disabled = !this.#rows.size
    this.#draw()
  }

  #sum() {
    const rows = [...this.#rows.values()], refused = rows.filter(({ outcome }) => outcome === "refused" || outcome === "ended").length
    const sum = (/** @type {"read" | "prompt"} */ of) => rows.reduce((all, { tokens }) => all + (tokens?.[of] ?? 0), 0), read = sum("read"), prompt = sum("prompt")
    const all = rows.length === MOST ? `the latest ${count(MOST)} requests` : plural(rows.length, "request")
    this.#sums.textContent = rows.length ? [all, refused ? `${count(refused)} without a whole answer` : "", prompt ? `${count(read)} of ${count(prompt)} tokens read, ${share(read, prompt)}` : ""].filter(Boolean).join(" · ") : ""
  }

  #turn() {
    this.#held = !this.#held
    this.#unseen = 0
    this.#show()
  }

  // Drawn again only where the tokens of a request have come.
  async #draw() {
    const counted = [...this.#rows.values()].filter(({ tokens }) => tokens?.prompt), wanted = counted.map(({ number }) => number).join()
    this.#none.hidden = counted.length > 0
    this.#chart.shown(counted.length > 0)
    if (wanted === this.#drawn || !counted.length || !this.node.offsetWidth) return
    this.#drawn = wanted
    const { figure } = await this.#server.ask("draw_hits", {})
    if (!figure) this.#drawn = ""
    else if (wanted === this.#drawn) this.#chart.draw(figure, `Chart of the share of each prompt that was read from the cache, for ${plural(counted.length, "request")}; the table below has its numbers.`)
  }

  /** @returns {Table<Row>} */
  #made() {
    const tokens = (/** @type {string} */ name, /** @type {string} */ title, /** @type {(one: NonNullable<Row["tokens"]>) => number} */ of, /** @type {string} */ about) => ({
      name, title, about, number: true, value: (/** @type {Row} */ row) => row.tokens ? of(row.tokens) : null, cell: (/** @type {Row} */ row) => row.tokens ? count(of(row.tokens)) : "–",
    })
    return new Table({
      label: "Latest requests", key: row => String(row.number), sort: ["at", -1], state: row => row.outcome,
      empty: () => EMPTY,
      columns: [
        { name: "at", title: "Time", value: row => new Date(row.at * 1000).toISOString(), greatest: true, cell: row => time(row.at) },
        { name: "path", title: "Endpoint", value: row => row.path, cell: row => h("span", { class: "two", title: row.path }, h("span", { class: "clip" }, short(row.path)), h("span", { class: "soft" }, DIALECTS[row.dialect] ?? row.dialect)) },
        { name: "model", title: "Model", value: row => row.model, cell: row => h("span", { class: "clip", title: row.model }, row.model.split("/").findLast(part => part) ?? "–") },
        { name: "outcome", title: "Outcome", value: row => `${row.status ?? ""} ${OUTCOMES[row.outcome]} ${row.sentence}`, cell: row => this.#outcome(row) },
        tokens("read", "Read", one => one.read, "Tokens of the prompt that were read from the cache"),
        tokens("written", "Written", one => one.written, "Tokens of the prompt that were computed, and are kept on disk"),
        tokens("rest", "Computed", one => one.rest, "Tokens of the prompt that were computed, and are not kept on disk"),
        { name: "ttft", title: "First token", value: row => row.ttft_ms, number: true, cell: row => milliseconds(row.ttft_ms), about: "From the request's arrival to the first token, waiting included" },
        tokens("out", "Out", one => one.generated, "Tokens of the answer"),
        { name: "who", title: "Key", value: row => row.who, cell: row => row.who || "–", about: "Which of the server's keys the request brought, where it asks for one" },
      ],
    })
  }

  /** @param {Row} row */
  #outcome({ status, outcome, stopped, sentence }) {
    const word = outcome === "done" && STOPPED[stopped] ? `done ${STOPPED[stopped]}` : OUTCOMES[outcome]
    const head = h("span", { class: "outcome", "data-outcome": outcome }, [status, word].filter(Boolean).join(" "))
    if (!sentence) return head
    if (sentence.length <= SHORT) return h("span", { class: "two" }, head, h("span", { class: "sentence" }, sentence))
    const rest = h("span", { class: "sentence", "data-short": true }, sentence)
    const more = h("button", { type: "button", class: "quiet more", "aria-expanded": "false", "aria-label": "The whole sentence", onclick: () => {
      const open = rest.toggleAttribute("data-short")
      more.setAttribute("aria-expanded", String(!open))
      more.textContent = open ? "more" : "less"
    } }, "more")
    return h("span", { class: "two" }, head, rest, more)
  }
}
