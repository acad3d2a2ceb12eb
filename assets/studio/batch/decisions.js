// Decisions about the rows of a batch: questions, the answers of each row, and their accuracy where a right answer is known.
import { Chart } from "../base/chart.js"
import { count, h, moment, plural } from "../base/dom.js"
import { download, fileName } from "../base/download.js"
import { Emitter } from "../base/events.js"
import { AWAY } from "../base/jobs.js"
import { Table } from "../base/table.js"
import { Asking } from "../decide/asking.js"
import { SIDES, percent } from "../decide/decided.js"

const ABOUT = "Asks the same questions about each row. The right answers are in a column “gold”, or “gold question 2” for the second of several questions."

/** @type {Partial<Record<Api.DecidedBatch["state"], string>>} */
const STATES = {
  stopped: "Stopped",
  left: "Unfinished: its studio was closed",
  elsewhere: "Another studio runs it. Open it again to see further rows",
}

/** "changed": a batch began, or ended. @extends {Emitter<{changed: void}>} */
export class RowDecisions extends Emitter {
  #server
  #workspace
  /** @type {Asking<unknown>} */
  #asking
  /** @type {Api.PageQuestion[]} */
  #own = []
  #rows
  readout
  #result = h("div", { class: "decide-result" })

  /**
   * @param {import("../base/server.js").Server} server
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("./source.js").Rows} rows
   * @param {() => {mode: Api.DecideRows["mode"], refusal: string}} state the sides, and why the rows cannot run
   */
  constructor(server, workspace, rows, state) {
    super()
    this.#server = server
    this.#workspace = workspace
    this.#rows = rows
    this.#asking = new Asking(server, workspace, "batch-decide", (key, questions) => server.ask("batch_decide", { ...rows.wanted(), key, mode: state().mode, questions }), () => state().refusal)
    this.readout = this.#asking.readout
    this.node = h("details", { class: "batch-part" }, h("summary", {}, "Decide about each row"), h("p", { class: "soft decide-about" }, ABOUT), this.#asking.node, this.#result)
    this.#asking.on("begun", () => this.emit("changed", undefined))
    this.#asking.on("decided", ({ key }) => { this.open(key); this.emit("changed", undefined) })
    rows.on("changed", () => this.take(this.#own))
    this.open("")
  }

  /** Sets the questions of the open prompt. @param {Api.PageQuestion[]} own */
  take(own) {
    this.#own = own
    this.#asking.form.take(this.#rows.wanted().alone ? [] : own)
  }

  /** Shows a batch of decisions; "" for the latest one. @param {string} key */
  async open(key) {
    const answer = await this.#server.ask("batch_decided", { key })
    if (answer.away || answer.error != null) return this.#asking.say(answer.error ?? AWAY, "bad")
    const { batch } = answer
    if (!batch) return
    if (batch.state === "working") this.#asking.follow(batch.key)
    this.#show(batch)
    if (key) this.node.open = true
  }

  /** Leaves deleted batches. @param {string[]} keys */
  forget(keys) { if (keys.includes(this.#result.dataset.key ?? "")) { this.#result.replaceChildren(); this.open("") } }

  /** @param {Api.DecidedBatch} batch */
  #show(batch) {
    const { key, rows, total, figures, permutations, state, fault, unkept, name, schema, model, started } = batch
    const failed = rows.filter(one => one.fault).length, columns = columnsOf(figures), rest = total - rows.length
    const words = `${count(rows.length - failed)} of ${plural(total, "row")} decided${failed ? `, ${count(failed)} failed` : ""}.`
    /** @type {Table<Api.DecidedRow>} */
    const table = new Table({ label: "Decisions of the rows", columns, key: ({ line }) => String(line), sort: ["line", 1] })
    table.fill(rows)
    const save = (/** @type {"csv" | "json"} */ form) => h("button", { type: "button", onclick: () => this.#save(batch, form) }, `Save as ${form.toUpperCase()}`)
    const resume = rest && state !== "working" && state !== "elsewhere" ? h("button", { type: "button", onclick: () => this.#resume(key) }, `Decide the other ${plural(rest, "row")}`) : null
    this.#result.dataset.key = key
    this.#result.replaceChildren(
      h("p", { class: "soft" }, [name, schema, model.split("/").at(-1), moment(started)].filter(Boolean).join(" · ")),
      h("div", { class: "decide-foot" }, h("p", { class: "decide-status", role: "status" }, [fault || STATES[state], words].filter(Boolean).join(": ")), resume, save("csv"), save("json")),
      ...(unkept ? [h("p", { "data-mood": "warn" }, `Some rows are not on disk yet. ${unkept}`)] : []),
      ...figures.flatMap((one, at) => [...figuresOf(one, permutations), ...(one.labelled > 1 ? [new Fitting(this.#server, this.#workspace, key, at).node] : [])]), table.node)
  }

  /** @param {string} key */
  async #resume(key) {
    const answer = await this.#server.ask("batch_resume", { key })
    if (answer.away || answer.error != null) return this.#asking.say(answer.error ?? AWAY, "bad")
    this.emit("changed", undefined)
    this.#asking.follow(key)
  }

  /** @param {Api.DecidedBatch} batch @param {"csv" | "json"} form */
  async #save({ key, name }, form) {
    const answer = await this.#server.ask("batch_files", { key, form })
    if (answer.away || answer.error != null) return this.#asking.say(answer.error ?? AWAY, "bad")
    for (const { text, media_type, notes } of answer.files) {
      download(fileName(name || "decisions", form), text, media_type)
      this.#asking.say(notes.join(" "))
    }
  }
}

/** Fits a temperature on every other labelled row, and offers it for the readout. */
class Fitting {
  #said = h("div", { role: "status" })

  /** @param {import("../base/server.js").Server} server @param {import("../documents/workspace.js").Workspace} workspace @param {string} key of the batch @param {number} question */
  constructor(server, workspace, key, question) {
    const fit = async () => {
      const answer = await server.ask("batch_fit", { key, question })
      if (answer.away || answer.error != null) return this.#said.replaceChildren(h("p", { "data-mood": "bad" }, answer.error ?? AWAY))
      this.#said.replaceChildren(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Fitted temperature" }, h("table", { class: "decide-sides" },
        h("thead", {}, h("tr", {}, ...["Side", "Temperature", "Calibration error before", "after", ""].map((name, at) => at < 4 ? h("th", { scope: "col" }, name) : h("td", {})))),
        h("tbody", {}, ...SIDES.flatMap(side => { const found = answer[side]; return found ? [this.#row(workspace, side, found)] : [] })))),
      h("p", { class: "soft" }, `Fitted on ${plural((answer.cached ?? answer.uncached)?.fitted_on ?? 0, "labelled row")}. The errors are of the other ${count((answer.cached ?? answer.uncached)?.held_out ?? 0)}.`))
    }
    this.node = h("div", { class: "decide-fit" }, h("button", { type: "button", title: "Fits a temperature of the readout on every other labelled row", onclick: fit }, "Fit temperature"), this.#said)
  }

  /** @param {import("../documents/workspace.js").Workspace} workspace @param {"cached" | "uncached"} side @param {Api.SideFit} found */
  #row(workspace, side, { temperature, ece_before: before, ece_after: after }) {
    const value = Number(temperature.toPrecision(3))
    const use = h("button", { type: "button", class: "quiet", "aria-label": `Use the temperature ${value} of the ${side} side`, onclick: () => workspace.change({ decide_temperature: value }) }, "Use it")
    return h("tr", {}, h("th", { scope: "row" }, side), h("td", {}, String(value)), h("td", {}, before.toFixed(3)), h("td", {}, after.toFixed(3)), h("td", {}, after < before ? use : "No temperature helps."))
  }
}

/** @param {Api.QuestionFigures[]} figures @returns {import("../base/table.js").Column<Api.DecidedRow>[]} */
function columnsOf(figures) {
  const of = (/** @type {Api.QuestionFigures} */ { title }, /** @type {string} */ what) => figures.length > 1 ? `${title}, ${what}` : what
  return [
    { name: "line", title: "Line", value: ({ line }) => line, number: true },
    { name: "id", title: "Id", value: ({ id }) => id },
    { name: "text", title: "Text", value: ({ text }) => text, cell: ({ text }) => h("span", { class: "decide-text", title: text }, text) },
    ...figures.flatMap((one, at) => [
      ...SIDES.flatMap(side => [
        { name: `${side} ${at}`, title: of(one, side), value: (/** @type {Api.DecidedRow} */ { decisions }) => decisions[at]?.[side]?.label },
        ...(one.kind === "score" ? [{ name: `${side} level ${at}`, title: of(one, `${side} average level`), number: true, value: (/** @type {Api.DecidedRow} */ { decisions }) => decisions[at]?.[side]?.expected, cell: (/** @type {Api.DecidedRow} */ { decisions }) => decisions[at]?.[side]?.expected.toFixed(2) }] : []),
        { name: `${side} share ${at}`, title: of(one, `${side} probability`), number: true, value: (/** @type {Api.DecidedRow} */ { decisions }) => decisions[at]?.[side]?.probability, cell: (/** @type {Api.DecidedRow} */ { decisions }) => decisions[at]?.[side] ? percent(decisions[at][side]?.probability ?? 0) : "" },
      ]),
      { name: `gold ${at}`, title: of(one, "gold"), value: (/** @type {Api.DecidedRow} */ { decisions }) => decisions[at]?.gold },
    ]),
    { name: "fault", title: "Error", value: ({ fault }) => fault },
  ]
}

const MOST_LINES = 5  // in a sentence

/** Accuracy, reliability and confusion of a question. @param {Api.QuestionFigures} figures @param {number} permutations */
function figuresOf({ question, labels, labelled, unknown, reliability, ...sides }, permutations) {
  const more = unknown.length - MOST_LINES, lines = unknown.slice(0, MOST_LINES).join(", ") + (more > 0 ? ` and ${count(more)} more` : "")
  const other = unknown.length ? h("p", { "data-mood": "warn" }, unknown.length === 1 ? `The right answer in line ${lines} is no option, so it is not counted.` : `The right answers in lines ${lines} are no options, so they are not counted.`) : null
  if (!labelled) return [h("h3", {}, question), other, h("p", { class: "soft" }, "No row has a right answer for this question, so there is no accuracy.")].filter(node => node !== null)
  const shown = SIDES.flatMap(side => { const found = sides[side]; return found ? [{ side, found }] : [] })
  const used = labels.map((_, at) => at).filter(at => shown.some(({ found }) => found.confusion[at].some(Boolean) || found.confusion.some(row => row[at])))
  return [h("h3", {}, question), other,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Figures of “${question}”` }, h("table", { class: "decide-sides" }, h("thead", {}, h("tr", {}, ...["Side", "Accuracy", "Macro F1", "Calibration error", ...(permutations > 1 ? ["Other orders that flip"] : [])].map(name => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...shown.map(({ side, found }) => h("tr", {}, h("th", { scope: "row" }, side), h("td", {}, `${percent(found.accuracy)} of ${plural(labelled, "row")}`), h("td", {}, found.macro_f1.toFixed(3)), h("td", {}, found.ece.toFixed(3)), permutations > 1 && h("td", {}, percent(found.order_flips))))))),
    reliability ? h("details", { open: true }, h("summary", {}, "Reliability plot"), plotOf(reliability, question, shown)) : null,
    ...shown.map(({ side, found }) => h("details", {}, h("summary", {}, `Confusion table, ${side}`),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Confusion table of “${question}”, ${side}` },
        h("table", { class: "decide-sides" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Right answer"), ...used.map(at => h("th", { scope: "col" }, `decided “${labels[at]}”`)))),
          h("tbody", {}, ...used.map(at => h("tr", {}, h("th", { scope: "row" }, labels[at]), ...used.map(to => h("td", {}, count(found.confusion[at][to])))))))))),
  ].filter(node => node !== null)
}

/** @param {Api.Figure} figure @param {string} question @param {{side: string, found: Api.SideFigures}[]} shown */
function plotOf(figure, question, shown) {
  const chart = new Chart(), errors = shown.map(({ side, found }) => `${side} ${found.ece.toFixed(3)}`).join(", ")
  chart.draw(figure, `Share of right answers by confidence for “${question}”. Calibration error: ${errors}`)
  return chart.node
}
