// All runs of this user: finds, names, compares, shares and opens them.
import { besideTable, called, ratioWords, when } from "../runs/compare.js"
import { Chart } from "../base/chart.js"
import { bytes, count, debounce, h, milliseconds, nats, plural } from "../base/dom.js"
import { AWAY } from "../base/jobs.js"
import { confirmed } from "../base/confirm.js"
import { kept } from "../runs/run_files.js"
import { download, downloadCsv } from "../base/download.js"
import { Rating, ratingWords, thumbs } from "../runs/rating.js"
import { compareWithModel } from "../runs/second_model.js"
import { Table } from "../base/table.js"

const FIND_AFTER_MS = 200
const DRAW_AFTER_MS = 150
const MOST_BESIDE = 8
const BETWEEN = "+"  // ids in the URL of a comparison
const RATED = { "": "All ratings", up: "Rated good", down: "Rated bad", none: "Not rated" }
/** @type {[Api.ShareRuns["form"], string, string][]} */
const FORMS = [
  ["promptfoo", "promptfoo configuration", "A configuration for promptfoo eval, which sends the prompts to this studio. The tests expect answers rated good, and reject those rated bad."],
  ["promptfoo results", "promptfoo results", "Results for promptfoo import"],
  ["langfuse dataset", "Langfuse dataset", "JSON Lines: one body of POST /api/public/dataset-items per prompt. An answer rated good is the expected output."],
  ["langfuse traces", "Langfuse traces", "A body of POST /api/public/ingestion with traces, generations and scores. Langfuse takes at most 3.5 MB."],
]
const EMPTY = "No runs yet. Run a prompt on the Author page: each run is saved here with its texts, settings, answers and times."

/** Further elements that the page fills. */
export const hosts = ["runslist"]

/**
 * @typedef {Api.RunSummary} Row
 * @typedef {"name" | "note"} Label
 * @typedef {Event & {target: HTMLInputElement}} ChangeEvent
 */

const day = (/** @type {string} */ iso) => {
  const at = new Date(iso)
  return Number.isNaN(at.getTime()) ? "" : [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(part => String(part).padStart(2, "0")).join("-")
}

/** @param {Row} row */
function asked({ prompt }) {
  const cut = prompt.lastIndexOf(" · "), last = prompt.slice(cut < 0 ? 0 : cut + 3), picks = last.split(" + ").some(name => /\s/.test(name)) ? "" : last
  const words = picks ? prompt.slice(0, Math.max(0, cut)) : prompt
  return h("div", { class: "asked", title: prompt }, words || !picks ? h("span", { class: "clip" }, words || "–") : null, picks ? h("span", { class: "clip soft" }, picks) : null)
}

class RunsPage {
  #studio
  #server
  #shell
  #host
  #place
  /** @type {Row[]} */
  #rows = []
  /** @type {Set<string>} */
  #found = new Set()
  /** @type {Map<string, string>} */
  #labels = new Map()
  #status = h("span", { class: "soft", role: "status", "aria-live": "polite" })
  #held = h("p", { class: "soft held" })
  #warnings = h("div", { class: "warnings", "data-mood": "warn" })
  #words = h("input", { type: "search", placeholder: "Find in names, notes, texts and answers…", "aria-label": "Find runs" })
  #selects = { schema: this.#choice("Runs of schema", "All schemas"), model: this.#choice("Runs of model", "All models"), state: this.#choice("Runs in state", "All states") }
  #rated = h("select", { "aria-label": "Runs by rating" }, ...Object.entries(RATED).map(([value, words]) => h("option", { value }, words)))
  #from = h("input", { type: "date", "aria-label": "Runs from" })
  #to = h("input", { type: "date", "aria-label": "Runs until" })
  #chooser = h("input", { type: "file", accept: ".json,.html,application/json,text/html", hidden: true, "aria-label": "Import a file of runs" })
  #compare = h("button", { type: "button", onclick: () => this.#goBeside(this.#table.chosen.map(({ id }) => id)) })
  #share = h("button", { type: "button", onclick: () => this.#offerShare(this.#table.chosen) }, "Share…")
  #delete = h("button", { type: "button", onclick: () => this.#remove() }, "Delete")
  #csv = h("button", { type: "button", onclick: () => downloadCsv("runs.csv", this.#table.lines()) }, "Save as CSV")
  /** @type {Table<Row>} */
  #table
  #list
  #beside = h("section", { class: "beside-page", "aria-label": "Runs side by side", hidden: true })
  #search = debounce(FIND_AFTER_MS, () => this.#find())
  #draw = debounce(DRAW_AFTER_MS, () => this.#drawChart())
  #chart = new Chart()
  #drawn = ""

  /** @param {import("../studio.js").Studio} studio */
  constructor(studio) {
    this.#studio = studio
    this.#server = studio.server
    this.#shell = studio.shell
    this.#host = studio.hosts.runs
    this.#place = studio.hosts.runslist
    this.#table = this.#makeTable()
    this.#words.addEventListener("input", () => { this.#filter(); this.#search() })
    for (const field of [...Object.values(this.#selects), this.#rated, this.#from, this.#to]) field.addEventListener("change", () => this.#filter())
    this.#chooser.addEventListener("change", () => this.#import())
    this.#table.on("chosen", () => this.#buttons())
    this.#table.on("shown", () => { this.#buttons(); this.#draw() })
    this.#chart.on("chosen", id => this.#goBeside([id]))
    this.#host.append(
      h("header", { class: "runs-head" }, h("h2", {}, "Runs"), this.#status, h("span", { class: "grow" }), this.#chooser,
        h("button", { type: "button", onclick: () => this.#chooser.click() }, "Import…")),
      this.#warnings,
      h("div", { class: "runs-tools" }, this.#words, ...Object.values(this.#selects), this.#rated, h("span", { class: "dates" }, this.#from, "–", this.#to)),
      this.#chart.node)
    this.#list = h("div", { class: "runs-list" }, h("div", { class: "runs-actions" }, this.#compare, this.#share, this.#delete, h("span", { class: "grow" }), this.#csv), this.#table.node, this.#held)
    this.#beside.addEventListener("keydown", event => {
      if (event.key !== "Escape" || event.defaultPrevented) return
      event.preventDefault()
      this.#shell.go("runs")
    })
    studio.hosts.runslist.append(this.#list, this.#beside)
    this.#buttons()
  }

  /** @param {Api.Start} start */
  begin(start) { this.#labels = new Map(start.settings.map(({ name, label }) => [name, label])) }

  async refresh() {
    const answer = await this.#server.ask("list_runs", {})
    if (answer.away) return this.#say(`${AWAY} This list may be out of date.`, "bad")
    if (answer.error != null) return this.#say(answer.error, "bad")
    // An unchanged row keeps its object, so that text being typed in it survives.
    const known = new Map(this.#rows.map(row => [row.id, row]))
    this.#rows = answer.runs.map(row => {
      const old = known.get(row.id)
      return old && JSON.stringify(old) === JSON.stringify(row) ? old : row
    })
    this.#warnings.replaceChildren(...answer.held.warnings.map(sentence => h("p", {}, sentence)))
    this.#tell(answer.held)
    this.#offer()
    this.#table.fill(this.#rows)
    this.#buttons()
  }

  /** @param {Api.RunsHeld} held */
  #tell({ runs, bytes: used, most_runs: mostRuns, most_bytes: mostBytes, file }) {
    this.#held.textContent = `${plural(runs, "run")}, ${bytes(used)}, in ${file}. ${count(mostRuns)} runs and ${count(mostBytes / 1024 ** 2)} MiB are stored at most. Beyond that the oldest runs are deleted, those without name, note and rating first.`
  }

  /** @param {string} label @param {string} all */
  #choice(label, all) { return h("select", { "aria-label": label }, h("option", { value: "" }, all)) }

  // Filter options come from the runs; a selected one stays.
  #offer() {
    for (const [name, select] of Object.entries(this.#selects)) {
      const field = /** @type {"schema" | "model" | "state"} */ (name), taken = select.value
      const values = [...new Set([...this.#rows.map(row => row[field]), taken])].filter(Boolean).sort()
      select.replaceChildren(select.options[0], ...values.map(value => h("option", { value, selected: value === taken }, value)))
    }
  }

  #makeTable() {
    /** @type {Table<Row>} */
    const table = new Table({
      label: "Runs", key: row => row.id, sort: ["started", -1], choice: called,
      words: row => [row.scope, row.repair, row.reuse].join(" "),
      empty: all => all ? "No runs match." : EMPTY,
      columns: [
        { name: "started", title: "Started", value: row => Date.parse(row.started) || null, greatest: true, cell: row => h("button", { type: "button", class: "quiet when", "data-key": `show ${row.id}`, "aria-label": `Show ${called(row)}`, onclick: () => this.#goBeside([row.id]) }, when(row.started)) },
        { name: "name", title: "Name", value: row => row.name, cell: row => this.#field(row, "name") },
        { name: "schema", title: "Schema", value: row => row.schema, cell: row => h("span", { class: "clip short", title: row.schema }, row.schema) },
        { name: "prompt", title: "Prompt", value: row => row.prompt, cell: row => asked(row) },
        { name: "model", title: "Model", value: row => row.model, cell: row => h("span", { class: "clip short", title: row.model }, row.model.split("/").findLast(part => part) ?? "–") },
        { name: "state", title: "State", value: row => row.state },
        { name: "first", title: "First time", value: row => row.first_ms, number: true, cell: row => milliseconds(row.first_ms), about: "Time to first token including encoding" },
        { name: "cached", title: "Cached", value: row => row.cached_ms, number: true, cell: row => milliseconds(row.cached_ms), about: "Time to first token, cached" },
        { name: "uncached", title: "Uncached", value: row => row.uncached_ms, number: true, cell: row => milliseconds(row.uncached_ms), about: "Time to first token, uncached" },
        { name: "speedup", title: "Speed-up", value: row => row.speedup, number: true, cell: row => h("span", { "data-verdict": row.speedup && row.clear ? (row.speedup >= 1 ? "good" : "warn") : null }, ratioWords(row)) },
        { name: "kl", title: "Mean KL", value: row => row.kl, number: true, cell: row => row.kl == null ? "–" : h("span", { title: row.fidelity?.advice ?? `${row.reuse}.` }, nats(row.kl)), about: "How much caching changed the answer: mean KL divergence per token, in nats; 0 means no change" },
        { name: "rating", title: "Rating", value: row => ratingWords(row.ratings), cell: row => thumbs(row.ratings), about: "Your rating of the answers, and whether they have notes" },
        { name: "note", title: "Note", value: row => row.note, cell: row => this.#field(row, "note") },
      ],
    })
    return table
  }

  /** @param {Row} row @param {Label} label */
  #field(row, label) {
    const field = h("input", {
      type: "text", class: "in-place", "data-key": `${label} ${row.id}`, value: row[label], maxlength: label === "name" ? 200 : 4000, autocomplete: "off",
      placeholder: label === "name" ? "Name it" : "Add a note", "aria-label": `${label === "name" ? "Name" : "Note"} of ${called(row)}`, title: row[label],
      onchange: async () => {
        if (field.value === row[label]) return
        const answer = await this.#server.ask("label_run", { id: row.id, [label]: field.value })
        if (!answer.run) return this.#say(`The ${label} is not saved yet. ${answer.error ?? AWAY}`, "bad")
        Object.assign(row, answer.run)
        field.title = row[label]
        this.#say(`The ${label} is saved.`)
      },
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter") field.dispatchEvent(new Event("change"))
        if (event.key === "Escape") { field.value = row[label]; event.stopPropagation() }
      },
    })
    return field
  }

  #filter() {
    const words = this.#words.value.toLowerCase().split(/\s+/).filter(Boolean), { schema, model, state } = this.#selects
    const [from, to] = [this.#from.value, this.#to.value]
    this.#table.filter("", row => {
      const own = [row.name, row.note, row.schema, row.model, row.state, row.scope, row.repair, row.reuse, row.prompt, ratingWords(row.ratings)].join(" ").toLowerCase(), at = day(row.started)
      const given = [row.ratings.cached.thumb, row.ratings.uncached.thumb].filter(Boolean), rated = this.#rated.value
      return (!words.length || words.every(word => own.includes(word)) || this.#found.has(row.id))
        && (!schema.value || row.schema === schema.value) && (!model.value || row.model === model.value) && (!state.value || row.state === state.value)
        && (!rated || (rated === "none" ? !given.length : given.some(thumb => thumb === rated)))
        && (!from || at >= from) && (!to || at <= to)
    })
  }

  // The chart shows the filtered runs, in chronological order.
  async #drawChart() {
    const ids = this.#table.shown.map(({ id }) => id).sort(), wanted = ids.join()
    this.#chart.shown(ids.length > 0)
    if (wanted === this.#drawn || !ids.length) return
    this.#drawn = wanted
    const { figure } = await this.#server.ask("draw_runs", { ids })
    if (!figure) this.#drawn = ""
    else if (wanted === this.#drawn) this.#chart.draw(figure, `Chart of the times to first token of ${plural(ids.length, "run")}; the table below has its numbers.`)
  }

  // The server searches the texts; its matches are added to the local ones.
  async #find() {
    const words = this.#words.value
    const { ids = [] } = words.trim() ? await this.#server.ask("find_runs", { words }) : {}
    if (words !== this.#words.value) return
    this.#found = new Set(ids)
    this.#filter()
  }

  #buttons() {
    const chosen = this.#table.chosen.length
    this.#compare.disabled = chosen === 0 || chosen > MOST_BESIDE
    this.#compare.textContent = chosen > MOST_BESIDE ? `At most ${MOST_BESIDE} side by side` : chosen > 1 ? `Compare ${chosen} side by side` : "Show"
    this.#share.disabled = this.#delete.disabled = chosen === 0
    this.#delete.textContent = chosen ? `Delete ${plural(chosen, "run")}` : "Delete"
    this.#csv.disabled = this.#table.shown.length === 0
  }

  /** Shows the runs in the URL, or the list. */
  show() {
    const { place } = this.#shell
    if (place) this.#showBeside(place)
    else if (!this.#beside.hidden) this.#back()
    this.refresh()
  }

  /** @param {string[]} ids */
  #goBeside(ids) { this.#shell.go("runs", ids.join(BETWEEN)) }

  /** @param {string} place their ids */
  async #showBeside(place) {
    const ids = place.split(BETWEEN), answer = await this.#server.ask("compare_runs", { ids })
    if (this.#shell.page !== "runs" || this.#shell.place !== place) return
    if (!answer.runs) {
      this.#say(answer.error ?? AWAY, "bad")
      return location.replace("#/runs")
    }
    const title = h("h2", { tabindex: "-1" }, answer.runs.length > 1 ? `${answer.runs.length} runs side by side` : called(answer.runs[0].summary))
    this.#beside.replaceChildren(
      h("header", { class: "runs-head" }, h("button", { type: "button", onclick: () => this.#shell.go("runs") }, "← All runs"), title),
      besideTable(answer.runs, this.#labels, ({ summary }) => [
        h("button", { type: "button", onclick: () => this.#restore(summary.id), "aria-label": `Open ${called(summary)} in the editors` }, "Open in the editors"),
        ...this.#others(summary, ids),
        h("button", { type: "button", onclick: () => this.#offerShare([summary]), "aria-label": `Share ${called(summary)}` }, "Share…"),
        ids.length > 1 ? h("button", { type: "button", onclick: () => this.#goBeside(ids.filter(id => id !== summary.id)), "aria-label": `Remove ${called(summary)}` }, "Remove") : null],
      ({ summary }, side) => {
        const rating = new Rating(this.#server, side, `${side} answer of ${called(summary)}`)
        rating.show(summary.id, summary.ratings[side])
        return rating.node
      }))
    this.#view(true)
    title.focus()
    scrollTo(0, 0)
  }

  /** Buttons that compare a run with its prompt's run on another model, or make one. @param {Row} run @param {string[]} shown ids of the compared runs */
  #others(run, shown) {
    const others = this.#rows.filter(({ id, linked }) => !shown.includes(id) && (id === run.linked || linked === run.id))
    const compare = others.map(other => h("button", { type: "button", onclick: () => this.#goBeside([...shown, other.id].slice(-MOST_BESIDE)) }, `Compare with ${other.model.split("/").findLast(part => part)}`))
    return [...compare, h("button", { type: "button", onclick: () => compareWithModel(this.#studio, run.id, called(run)), "aria-label": `Compare ${called(run)} with another model` }, "Another model…")]
  }

  /** @param {string} id */
  async #restore(id) {
    await this.#shell.open("restore_run", { id })
    if (this.#shell.page === "author") this.#studio.emit("restored", id)
  }

  #back() {
    this.#view(false)
    if (this.#compare.disabled) this.#table.focus()
    else this.#compare.focus()
  }

  /** @param {boolean} beside */
  #view(beside) {
    document.documentElement.toggleAttribute("data-runs-beside", beside)
    this.#host.hidden = this.#list.hidden = beside
    this.#beside.hidden = !beside
  }

  /** @param {Row[]} rows */
  #offerShare(rows) {
    const share = async (/** @type {Api.ShareRuns["form"]} */ form) => {
      const answer = await this.#server.ask("share_runs", { ids: rows.map(({ id }) => id), form, base_url: `${location.origin}/v1` })
      if (answer.text == null) return said.replaceChildren(answer.error ?? AWAY)
      download(answer.filename, answer.text, answer.media_type)
      dialog.close()
      this.#say(`Downloaded as ${answer.filename}.`)
    }
    const said = h("p", { "data-mood": "bad", role: "status" })
    const dialog = h("dialog", { class: "question", "aria-label": "Share", onclose: () => dialog.remove() },
      h("h2", {}, `Share ${rows.length === 1 ? called(rows[0]) : plural(rows.length, "run")}`),
      h("p", {}, "One file with schemas, prompts, answers, times, names, notes and ratings. The web page opens in any browser, without the studio. Import on this page reads both formats."),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "primary", onclick: () => share("html") }, "Web page"),
        h("button", { type: "button", onclick: () => share("json") }, "JSON")),
      h("p", {}, "Files for other programs, with prompts, answers, times and ratings."),
      h("div", { class: "buttons" }, ...FORMS.map(([form, words, about]) => h("button", { type: "button", title: about, onclick: () => share(form) }, words))),
      said,
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")))
    this.#place.append(dialog)
    dialog.showModal()
  }

  async #import() {
    const file = this.#chooser.files?.[0]
    this.#chooser.value = ""
    if (!file) return
    this.#say(`Reading ${file.name}…`)
    const { words, done } = await kept(file, this.#server)
    this.#say(words, done ? "good" : "bad")
    if (done) this.refresh()
  }

  async #remove() {
    const rows = this.#table.chosen, labelled = rows.filter(({ name, note, ratings }) => name || note || ratingWords(ratings)).length
    const sentence = `Delete ${rows.length === 1 ? called(rows[0]) : plural(rows.length, "run")} permanently?${labelled ? ` ${count(labelled)} of them ${labelled === 1 ? "has" : "have"} a name, a note or a rating.` : ""} This cannot be undone.`
    if (!await confirmed(this.#place, sentence, `Delete ${plural(rows.length, "run")}`)) return this.#say("Nothing was deleted.")
    const { deleted, error } = await this.#server.ask("delete_runs", { ids: rows.map(({ id }) => id) })
    this.#say(deleted == null ? error ?? AWAY : `Deleted ${plural(deleted, "run")}.`, deleted == null ? "bad" : "")
    await this.refresh()
    this.#words.focus()
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const page = new RunsPage(studio)
  studio.on("stored", () => { if (studio.shell.page === "runs") page.refresh() })
  return { begin: start => page.begin(start), shown: () => page.show() }
}
