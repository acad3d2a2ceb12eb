// API requests, newest first, and the cached share of each.
import { Chart } from "../base/chart.js"
import { count, h, milliseconds, moment, plural } from "../base/dom.js"
import { downloadCsv } from "../base/download.js"
import { Table } from "../base/table.js"

const MOST = 500  // the server's limit
const KEY = "The key of the request"
const A_DAY_MS = 86_400_000
const EMPTY = "No requests yet."
const STEPS = ["Copy the program, or only the base URL into one of yours.", "Run it. Its request appears here at once.", "Run it again: shared text is read from the cache."]
const hours = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" })

/** @typedef {Api.ServedRequest} Row */

/** @type {Record<Row["outcome"], string>} */
const OUTCOMES = { waiting: "waiting", answering: "answering", done: "done", ended: "stopped early", refused: "refused" }
/** @type {Record<string, string>} */
const STOPPED = { stop: "at a stop text", length: "at its token limit" }
/** @type {Record<string, string>} */
const DIALECTS = { openai: "OpenAI", anthropic: "Anthropic", typesafe: "TypeSafe" }

const NO_LOSS = ["new", "cold"]  // reasons that need no advice

const time = (/** @type {number} */ at) => Date.now() - at * 1000 < A_DAY_MS ? hours.format(at * 1000) : moment(at * 1000)
const since = (/** @type {number} */ at) => `for ${Math.max(0, Math.round(Date.now() / 1000 - at))} s`
const short = (/** @type {string} */ path) => path.replace(/^\/v1\//, "")
const brief = (/** @type {string} */ model) => model.split("/").findLast(part => part) ?? ""
const share = (/** @type {number} */ read, /** @type {number} */ prompt) => `${Math.round(100 * read / prompt)}%`

export class Requests {
  #server
  #shell
  /** @type {Map<number, Row>} */
  #rows = new Map()
  #held = false
  #drawn = ""
  /** @type {Table<Row>} */
  #table
  #sums = h("p", { class: "soft sums" })
  #count = h("p", { class: "soft count" })
  #kept = h("p", { class: "soft kept-since" })
  #unseen = 0
  #hold = h("button", { type: "button", class: "hold", title: "Pauses the list while you read it", onclick: () => this.#turn() }, "Pause")
  #make = h("button", { type: "button", title: "Makes a schema of the latest request and those like it: equal text becomes modules, short differences parameters", onclick: () => this.#record() }, "Make a schema")
  #made_of = h("p", { class: "soft", role: "status" })
  #csv = h("button", { type: "button", onclick: () => downloadCsv("requests.csv", this.#table.lines()) }, "Save as CSV")
  #chart = new Chart()
  #legend = h("ul", { class: "legend", "aria-label": "Colours of the chart" })
  #steps = h("div", { class: "steps" }, h("p", {}, EMPTY), h("ol", {}, ...STEPS.map(step => h("li", {}, step))))
  #none = h("div", { class: "empty" })
  /** @type {Api.ServedNow["state"]} */
  #state = "ok"

  /** @param {import("../base/server.js").Server} server @param {import("../shell/shell.js").Shell} shell */
  constructor(server, shell) {
    this.#server = server
    this.#shell = shell
    this.#table = this.#made()
    this.rate = h("section", { class: "card hits", "aria-label": "Read from the cache" },
      h("header", { class: "serve-row" }, h("h3", {}, "Read from the cache, request by request"), this.#sums),
      h("div", { class: "hits-place" }, this.#legend, this.#chart.node, this.#none))
    this.node = h("section", { class: "serve-requests", "aria-label": "Requests" },
      h("header", { class: "serve-row" }, h("h3", {}, "Requests"), this.#count, this.#hold, this.#make, this.#csv), this.#made_of, this.#kept, this.#table.node)
    new ResizeObserver(() => this.#fit()).observe(this.node)
    this.#show()
  }

  /** Sets the API's state, and the start of the list. @param {Api.ServedNow["state"]} state @param {number | null} started */
  of(state, started) {
    this.#kept.textContent = started ? `Since the server started, ${moment(started * 1000)}. A restart empties this list; save it as CSV before.` : ""
    if (state === this.#state) return
    this.#state = state
    this.#draw()
  }

  /** Clears the list after a restart of the studio. */
  clear() {
    this.#rows.clear()
    this.#drawn = ""
  }

  /** Adds changed requests. @param {Row[]} changed */
  take(changed) {
    changed = changed.filter(row => JSON.stringify(row) !== JSON.stringify(this.#rows.get(row.number)))  // unchanged rows stay in place
    if (this.#held) this.#unseen += changed.filter(({ number }) => !this.#rows.has(number)).length
    for (const row of changed) this.#rows.set(row.number, row)
    const numbers = [...this.#rows.keys()].sort((one, other) => one - other)
    for (const number of numbers.slice(0, Math.max(0, numbers.length - MOST))) this.#rows.delete(number)
    if (changed.length || !this.#rows.size) this.#show()
    for (const node of this.node.querySelectorAll("[data-since]")) if (node instanceof HTMLElement) node.textContent = since(Number(node.dataset.since))
  }

  /** Redraws the chart for the page's size. */
  shown() {
    this.#fit()
    this.#draw()
  }

  #show() {
    if (!this.#held) {
      this.#table.fill([...this.#rows.values()])
      this.#sum()
    }
    this.#fit()
    this.#hold.textContent = this.#held ? `Resume${this.#unseen ? ` (${count(this.#unseen)} new)` : ""}` : "Pause"
    this.#hold.disabled = this.#csv.disabled = this.#make.disabled = !this.#rows.size
    this.#draw()
  }

  // Hides the button to expand sentences that fit.
  #fit() {
    if (!this.node.offsetWidth) return
    const cut = [...this.node.querySelectorAll(".sentence[data-short]")].map(sentence => /** @type {const} */ ([sentence, sentence.scrollHeight > sentence.clientHeight]))
    for (const [sentence, some] of cut) sentence.parentElement?.querySelector(".more")?.toggleAttribute("hidden", !some)
  }

  #sum() {
    const rows = [...this.#rows.values()], refused = rows.filter(({ outcome }) => outcome === "refused" || outcome === "ended").length
    const sum = (/** @type {"read" | "prompt"} */ of) => rows.reduce((all, { tokens }) => all + (tokens?.[of] ?? 0), 0), read = sum("read"), prompt = sum("prompt")
    const all = rows.length === MOST ? `the latest ${count(MOST)} requests` : plural(rows.length, "request")
    this.#count.textContent = rows.length ? `${all}${refused ? ` · ${count(refused)} unfinished` : ""}` : ""
    this.#sums.textContent = prompt ? `${count(read)} of ${count(prompt)} tokens read, ${share(read, prompt)}` : ""
  }

  // Opens a schema of the recorded requests on the Author page.
  async #record() {
    const { error, notes, requests, ...made } = await this.#server.ask("record_schema", {})
    this.#made_of.textContent = error ?? ""
    if (error != null || made.away) return
    await this.#shell.open("open_imported", { name: made.name ?? "", schema: made.schema ?? "", prompt: made.prompt ?? "" })
    this.#made_of.textContent = [`The schema was made of ${plural(requests ?? 0, "request")}.`, ...notes ?? []].join(" ")
  }

  #turn() {
    this.#held = !this.#held
    this.#unseen = 0
    this.#show()
  }

  // Redraws only if a request's tokens changed.
  async #draw() {
    const counted = [...this.#rows.values()].filter(({ tokens }) => tokens?.prompt), wanted = counted.map(({ number }) => number).join()
    this.#none.hidden = counted.length > 0
    this.#legend.hidden = !counted.length
    this.#none.replaceChildren(this.#state === "off" ? h("p", {}, "The API is off and rejects requests. Switch it on above.")
      : this.#rows.size ? "Cache hits of each request appear here when its answer begins." : this.#steps)
    this.#chart.shown(counted.length > 0)
    if (wanted === this.#drawn || !counted.length || !this.node.offsetWidth) return
    this.#drawn = wanted
    const { figure } = await this.#server.ask("draw_hits", {})
    if (!figure) this.#drawn = ""
    else if (wanted === this.#drawn) {
      this.#legend.replaceChildren(...figure.data.map(mark))
      this.#chart.draw(figure, `Chart of the share of each prompt that was read from the cache, for ${plural(counted.length, "request")}; the table below has its numbers.`)
    }
  }

  /** @returns {Table<Row>} */
  #made() {
    const tokens = (/** @type {string} */ name, /** @type {string} */ title, /** @type {(one: NonNullable<Row["tokens"]>) => number} */ of, /** @type {string} */ about) => ({
      name, title, about, number: true, value: (/** @type {Row} */ row) => row.tokens ? of(row.tokens) : null, cell: (/** @type {Row} */ row) => row.tokens ? count(of(row.tokens)) : "–",
    })
    return new Table({
      label: "Latest requests", key: row => String(row.number), sort: ["at", -1], state: row => row.outcome,
      empty: () => this.#state === "off" ? "Rejected requests appear here." : "Requests appear here as they arrive.",
      columns: [
        { name: "at", title: "Time", value: row => new Date(row.at * 1000).toISOString(), greatest: true, cell: row => this.#request(row) },
        { name: "path", title: "Endpoint", value: row => row.path, cell: row => h("span", { class: "two", title: row.path }, h("span", { class: "clip" }, short(row.path)), h("span", { class: "soft" }, DIALECTS[row.dialect] ?? row.dialect)) },
        { name: "model", title: "Model", value: row => row.model, cell: row => h("span", { class: "two" }, h("span", { class: "clip", title: row.model }, brief(row.model) || "–"), h("span", { class: "soft clip", title: KEY }, row.who)) },
        { name: "outcome", title: "Outcome", value: row => `${row.status ?? ""} ${OUTCOMES[row.outcome]} ${row.sentence}`, cell: row => this.#outcome(row) },
        tokens("read", "Read", one => one.read, "Prompt tokens read from the cache"),
        tokens("written", "Written", one => one.written, "Prompt tokens computed and stored on disk"),
        tokens("rest", "Computed", one => one.rest, "Prompt tokens computed and not stored on disk"),
        { name: "ttft", title: "First token", value: row => row.ttft_ms, number: true, cell: row => milliseconds(row.ttft_ms), about: "From the request's arrival to the first token, including waiting" },
        tokens("out", "Output", one => one.generated, "Answer tokens"),
        { name: "why", title: "Why not more", value: row => row.why?.reason ?? "" },
        { name: "who", title: "Key", value: row => row.who },
      ],
    })
  }

  // The time of a request; in narrow tables also its content.
  /** @param {Row} row */
  #request({ at, path, dialect, model, who }) {
    return h("span", { class: "two request" }, h("span", { class: "clip" }, time(at), h("span", { class: "narrow", title: path }, ` ${short(path)}`)),
      h("span", { class: "soft clip narrow", title: model }, [DIALECTS[dialect] ?? dialect, brief(model), who].filter(Boolean).join(" · ")))
  }

  /** @param {Row} row */
  #outcome({ at, status, outcome, stopped, sentence: fault, seconds, why }) {
    const advice = why && !NO_LOSS.includes(why.reason) ? [why.sentence, why.suggestion].filter(Boolean).join(" ") : "", sentence = fault || advice
    const word = outcome === "done" && STOPPED[stopped] ? `done ${STOPPED[stopped]}` : OUTCOMES[outcome], under = outcome === "waiting" || outcome === "answering"
    const head = h("span", { class: "outcome", "data-outcome": outcome }, [status, word].filter(Boolean).join(" "))
    if (!sentence) return h("span", { class: "two" }, head, h("span", { class: "soft", "data-since": under ? String(at) : null }, under ? since(at) : seconds ? `in ${milliseconds(seconds * 1000)}` : ""))
    const rest = h("span", { class: "sentence", "data-short": true }, sentence)
    const more = h("button", { type: "button", class: "quiet more", "aria-expanded": "false", "aria-label": "The whole sentence", onclick: () => {
      const open = rest.toggleAttribute("data-short")
      more.setAttribute("aria-expanded", String(!open))
      more.textContent = open ? "more" : "less"
    } }, "more")
    return h("span", { class: "two" }, h("span", { class: "told" }, head, more), rest)
  }
}

/** A chart colour's meaning. @param {{name: string, type: string, marker: {color: string}}} trace */
function mark({ name, type, marker }) {
  return h("li", {}, h("span", { class: "swatch", "data-type": type, style: type === "bar" ? `background: ${marker.color}` : null }), name)
}
