// Sweeps: measures how one variable affects the time to first token.
import { Chart } from "../base/chart.js"
import { count, h, milliseconds, moment, nats, plural } from "../base/dom.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"
import { confirmed } from "../base/confirm.js"
import { download } from "../base/download.js"
import { Table } from "../base/table.js"

export const hosts = ["sweep-table"]

/**
 * @typedef {Api.ShownReport} Report
 * @typedef {Api.Result} Result
 * @typedef {Api.WantedSweep["axis"]} Axis
 * @typedef {"cached" | "modules" | "new" | "repeats"} Fixed
 * @typedef {Result & {key: string, order: number, base: number | undefined}} Row `base`: the uncached median at that point
 * @typedef {import("../base/table.js").Column<Row>} Column
 */

const ASK_MS = 400  // delay before an estimate
/** @type {[Fixed, string][]} */
const FIELDS = [["cached", "Cached tokens"], ["modules", "Modules"], ["new", "New tokens"], ["repeats", "Samples per point"]]
/** @type {Record<Axis, string>} */
const AXES = { cached: "Cached tokens", new: "New tokens", modules: "Modules", scope: "Scope", repair: "Repair", prompts: "Prompts at once" }
/** @type {Record<string, string>} */
const WAYS = {
  uncached: "without the cache", cached: "from the cache, in memory", files: "from the cache, read from files", floor: "lower bound: new tokens only",
  one_by_one: "one after the other", together: "together",
}
const COMPARED = new Set(["scope", "repair"])

/** Seconds in words. @param {number} seconds */
const about = seconds => seconds < 1.5 ? "about a second" : seconds < 90 ? `about ${Math.round(seconds)} s` : seconds < 5400 ? `about ${Math.round(seconds / 60)} minutes` : `about ${(seconds / 3600).toFixed(1)} hours`
const points = (/** @type {Report} */ report) => new Set(report.results.map(({ value }) => value)).size

/** @param {Report} report @param {Result["value"]} value @param {string} name */
const at = (report, value, name) => report.results.find(one => one.value === value && one.name === name)

/** Whether the samples of two ways overlap. @param {Result} one @param {Result} other */
const overlap = ({ samples_ms: one }, { samples_ms: other }) => Math.min(...one) <= Math.max(...other) && Math.min(...other) <= Math.max(...one)

/** The conclusion of a measurement in a sentence. @param {Report} report */
function conclusion(report) {
  const value = report.results.at(-1)?.value
  if (value === undefined) return ""
  const cached = at(report, value, "cached"), uncached = at(report, value, "uncached"), floor = at(report, value, "floor")
  const many = at(report, value, "together"), single = at(report, value, "one_by_one")
  const place = `${AXES[report.sweep.axis]}: ${typeof value === "number" ? count(value) : value}`
  if (many?.tokens_per_s && single?.tokens_per_s) {
    return `${place}. ${many.tokens_per_s.toFixed(1)} tokens per second together, ${single.tokens_per_s.toFixed(1)} one after the other: ${(many.tokens_per_s / single.tokens_per_s).toFixed(2)} times as many.`
  }
  if (!cached || !uncached) return ""
  if (COMPARED.has(report.sweep.axis)) {
    const each = [...new Set(report.results.map(one => one.value))].map(one => {
      const [from, without] = [at(report, one, "cached"), at(report, one, "uncached")]
      return from && without ? `${one} ${(without.median_ms / from.median_ms).toFixed(1)}×${overlap(from, without) ? " (ranges overlap)" : ""}` : `${one}`
    })
    return `As fast as without the cache: ${each.join(", ")}. Random words say little about answers: check the fidelity of your own prompts.`
  }
  const alone = floor ? ` Computing the new tokens alone takes ${milliseconds(floor.median_ms)}` : ""
  const least = !floor ? "" : floor.median_ms <= cached.median_ms ? `${alone}: no cache can be faster.` : `${alone}, about as long: no cache can be much faster.`
  return `${place}. ${milliseconds(cached.median_ms)} cached and ${milliseconds(uncached.median_ms)} uncached: ${(uncached.median_ms / cached.median_ms).toFixed(1)} times as fast${overlap(cached, uncached) ? ", but the ranges overlap: no clear difference" : ""}.${least}`
}

/** @param {Axis} axis @returns {Column[]} */
function columns(axis) {
  const least = (/** @type {Row} */ row) => Math.min(...row.samples_ms), most = (/** @type {Row} */ row) => Math.max(...row.samples_ms)
  /** @type {Column[]} */
  const times = [
    { name: "order", title: AXES[axis], value: row => row.order, cell: row => typeof row.value === "number" ? count(row.value) : row.value, number: !COMPARED.has(axis) },
    { name: "name", title: "Setup", value: row => WAYS[row.name] ?? row.name },
    { name: "median", title: "Median", value: row => row.median_ms, cell: row => milliseconds(row.median_ms), number: true },
    { name: "range", title: "Range", value: least, cell: row => `${milliseconds(least(row))} to ${milliseconds(most(row))}`, number: true },
  ]
  if (axis === "prompts") return [...times, { name: "rate", title: "Tokens per second", value: row => row.tokens_per_s, cell: row => row.tokens_per_s?.toFixed(1) ?? "–", number: true }]
  /** @type {(part: "load" | "repair" | "prefill", title: string) => Column} */
  const stage = (part, title) => ({ name: part, title, value: row => row.timeline_ms?.[part], cell: row => milliseconds(row.timeline_ms?.[part]), number: true })
  times.push({ name: "ratio", title: "Speed-up", about: "Time without the cache over this time", value: row => row.base && row.base / row.median_ms, cell: row => row.base ? `${(row.base / row.median_ms).toFixed(1)}×` : "–", number: true })
  if (!COMPARED.has(axis)) return [...times, stage("load", "Loading"), stage("prefill", "Prefill")]
  return [...times, ...axis === "repair" ? [stage("repair", "Choosing tokens")] : [], stage("prefill", "Prefill"),
    { name: "encode", title: "Encoding, once", value: row => row.encode_ms, cell: row => milliseconds(row.encode_ms), number: true },
    { name: "kl", title: "First-token KL", about: "How much caching changed the probabilities of the first token of random text, in nats; 0 means no change", value: row => row.kl_first_token, cell: row => row.kl_first_token == null ? "–" : nats(row.kl_first_token), number: true }]
}

class BenchmarkPage {
  #host
  #server
  /** @type {Api.Benchmarks | null} */
  #state = null
  /** @type {Job<Api.MeasuredSweep> | null} */
  #job = null
  /** @type {{name: string, report: Report} | null} */
  #shown = null
  #drawn = ""
  #asked = 0
  #timer = 0
  #status = h("span", { class: "soft", role: "status", "aria-live": "polite" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress of the measurement" })
  #axis = h("select", { id: "sweep-axis" })
  #model = h("select", { id: "sweep-model" })
  #values = h("input", { type: "text", id: "sweep-values", spellcheck: "false", autocomplete: "off", "aria-describedby": "sweep-values-hint" })
  #hint = h("p", { class: "hint", id: "sweep-values-hint" })
  /** @type {Map<Fixed, HTMLInputElement>} */
  #fields = new Map()
  #expected = h("p", { class: "expected soft", role: "status", "aria-live": "polite" })
  #start = h("button", { type: "submit", class: "primary" }, "Measure")
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#job?.stop() }, "Stop")
  #title = h("h3", {})
  #facts = h("p", { class: "soft" })
  #said = h("p", { class: "conclusion" })
  #kept = h("select", { "aria-label": "Earlier measurements", onchange: () => this.#open(this.#kept.value) })
  /** @type {Record<"times" | "stages", HTMLInputElement>} */
  #views
  #actions
  #results
  #empty = h("p", { class: "empty" }, "Nothing is measured yet. Choose what to vary and press Measure. The times appear here and are saved.")
  #list = h("div", {})
  #listed = ""
  /** @type {Table<Row> | null} */
  #table = null
  #machine = h("p", { class: "soft machine" })
  #chart = new Chart()

  /** @param {import("../studio.js").Studio} studio */
  constructor(studio) {
    this.#host = studio.hosts.benchmark
    this.#server = studio.server
    const view = (/** @type {"times" | "stages"} */ value, /** @type {string} */ title) => {
      const input = h("input", { type: "radio", name: "sweep-view", value, checked: value === "times", onchange: () => this.#redraw() })
      return { input, label: h("label", { class: "check" }, input, title) }
    }
    const times = view("times", "Times"), stages = view("stages", "Stages")
    this.#views = { times: times.input, stages: stages.input }
    this.#actions = h("div", { class: "result-actions" },
      h("fieldset", { class: "views" }, h("legend", {}, "Chart"), times.label, stages.label), h("span", { class: "grow" }),
      h("button", { type: "button", onclick: () => this.#save("csv") }, "Save as CSV"),
      h("button", { type: "button", onclick: () => this.#save("json") }, "Save as JSON"),
      h("button", { type: "button", onclick: () => this.#remove() }, "Delete"))
    this.#results = h("section", { class: "card result", "aria-label": "Measured", hidden: true },
      h("header", {}, this.#title, h("span", { class: "grow" }), this.#kept), this.#facts, this.#said, this.#actions)
    this.#host.append(
      h("header", { class: "page-head" }, h("h2", {}, "Benchmark"), this.#status, this.#meter, h("span", { class: "grow" }), this.#stop),
      this.#form(), this.#results, this.#empty, this.#chart.node)
    studio.hosts["sweep-table"].append(this.#list, this.#machine)
    this.#frameShown(false)
  }

  #form() {
    const field = (/** @type {HTMLElement} */ input, /** @type {string} */ label, /** @type {Node[]} */ ...more) => h("div", { class: "field" }, h("label", { for: input.id }, label), input, ...more)
    for (const [name] of FIELDS) this.#fields.set(name, h("input", { type: "number", id: `sweep-${name}`, min: "1", step: "1", required: true, disabled: true }))
    for (const input of [this.#axis, this.#model, this.#values]) input.disabled = true  // until the server's options arrive
    const form = h("form", { class: "sweep", novalidate: true, onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.#begin() } },
      h("div", { class: "asked" }, field(this.#axis, "Axis"), field(this.#model, "Model"), field(this.#values, "Points", this.#hint)),
      h("div", { class: "fixed" }, ...FIELDS.map(([name, label]) => field(this.#input(name), label))),
      h("div", { class: "start" }, this.#start, this.#expected))
    this.#axis.addEventListener("change", () => this.#offerPoints())
    form.addEventListener("input", () => this.#expectSoon())
    return h("section", { class: "card", "aria-label": "Measure" }, h("h3", {}, "Sweep"),
      h("p", { class: "soft" }, "Uses random text and a separate cache. Other work is paused, so the times stay clean."), form)
  }

  /** @param {Fixed} name */
  #input(name) { return /** @type {HTMLInputElement} */ (this.#fields.get(name)) }

  async refresh() {
    const answer = await this.#server.ask("benchmarks", {})
    if (answer.away) return this.#say(AWAY, "bad")
    if (answer.error != null) return this.#say(answer.error, "bad")
    const first = this.#state === null
    this.#state = answer
    this.#offerModels(answer.models)
    if (first) this.#offerAxes(answer.axes)
    this.#offerKept()
    if (answer.under_way && !this.#job) this.#follow(new Job(this.#server, answer.under_way), this.#resumed(answer.under_way))
    else if (!this.#shown && answer.kept.length) this.#open(answer.kept[0].name)
    this.#expect()
  }

  /** @param {string} key @returns {Promise<import("../base/jobs.js").JobReply<Api.MeasuredSweep>>} */
  async #resumed(key) {
    return /** @type {import("../base/jobs.js").JobReply<Api.MeasuredSweep>} */ (await this.#server.ask("job_state", { key }))
  }

  /** @param {Api.ShapeWords[]} models */
  #offerModels(models) {
    const chosen = this.#model.value
    this.#model.replaceChildren(...models.map(({ name, words }) => h("option", { value: name, selected: name === chosen },
      name === "loaded" ? `The loaded model${words ? `: ${words}` : ""}` : `Random weights, ${name.replace("random:", "")}: ${words}`)))
  }

  /** @param {Api.AxisWords[]} axes */
  #offerAxes(axes) {
    for (const input of [this.#axis, this.#model, this.#values]) input.disabled = false
    this.#axis.replaceChildren(...axes.map(({ name, meaning }) => h("option", { value: name }, `${AXES[name]}: ${meaning}`)))
    for (const [name, value] of Object.entries({ cached: 512, modules: 8, new: 32, repeats: 3 })) this.#input(/** @type {Fixed} */ (name)).value = String(value)
    this.#offerPoints()
  }

  #offerPoints() {
    const axis = this.#chosenAxis, named = COMPARED.has(axis)
    this.#values.value = this.#state?.axes.find(({ name }) => name === axis)?.values.join(" ") ?? ""
    this.#hint.textContent = named ? "Names, separated by spaces." : "Whole numbers, separated by spaces; 12 at most."
    for (const [name, input] of this.#fields) {
      input.disabled = name === axis
      input.title = name === axis ? "Varied: enter its values under Points" : ""
    }
    this.#expect()
  }

  get #chosenAxis() { return /** @type {Axis} */ (this.#axis.value) }

  get #points() { return this.#values.value.split(/[\s,;]+/).filter(Boolean) }

  /** The form as the server expects it. @returns {Api.WantedSweep} */
  #wanted() {
    /** @type {Partial<Record<Fixed, number>>} */
    const numbers = {}
    for (const [name, input] of this.#fields) if (!input.disabled) numbers[name] = Number(input.value)
    return { model: this.#model.value, axis: this.#chosenAxis, values: this.#points, ...numbers }
  }

  // Marks fields without a number; returns the first error.
  /** @returns {{input: HTMLInputElement, words: string} | null} */
  #wrong() {
    const odd = COMPARED.has(this.#chosenAxis) ? undefined : this.#points.find(word => !/^0*[1-9]\d*$/.test(word))
    const faults = [...odd === undefined ? [] : [{ input: this.#values, words: `“${odd}” in Points is not a whole number above 0.` }],
      ...FIELDS.map(([name, label]) => ({ input: this.#input(name), words: `${label} must be a whole number of 1 or more.` })).filter(({ input }) => !input.disabled && !input.checkValidity())]
    for (const input of [this.#values, ...this.#fields.values()]) {
      if (faults.some(fault => fault.input === input)) input.setAttribute("aria-invalid", "true")
      else input.removeAttribute("aria-invalid")
    }
    return faults[0] ?? null
  }

  #expectSoon() {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#expect(), ASK_MS)
  }

  async #expect() {
    clearTimeout(this.#timer)
    if (!this.#state || this.#job) return
    const wrong = this.#wrong(), asked = ++this.#asked
    if (wrong) return this.#expectWords(wrong.words, "bad")
    const { seconds, points: number, basis, error } = await this.#server.ask("expect_sweep", this.#wanted())
    if (asked !== this.#asked || this.#job) return
    if (error != null) this.#expectWords(error, "bad")
    else if (number !== undefined) this.#expectWords(seconds == null ? `${plural(number, "point")}; no estimate: ${basis}.` : `${plural(number, "point")}, ${about(seconds)} (${basis}).`)
  }

  /** @param {string} words */
  #expectWords(words, mood = "") {
    this.#expected.dataset.mood = mood
    this.#expected.textContent = words
  }

  #begin() {
    if (this.#job) return
    const wrong = this.#wrong()
    if (wrong) {
      this.#expectWords(`${wrong.words} Nothing was started.`, "bad")
      return wrong.input.focus()
    }
    const job = new Job(this.#server)
    if (this.#expected.dataset.mood) this.#expectWords("")  // the message was about the previous input
    this.#follow(job, this.#server.ask("start_sweep", { key: job.key, ...this.#wanted() }))
  }

  /** @param {Job<Api.MeasuredSweep>} job @param {Promise<import("../base/jobs.js").JobReply<Api.MeasuredSweep>>} begun */
  async #follow(job, begun) {
    const focused = document.activeElement === this.#start
    this.#job = job
    this.#start.disabled = true
    this.#stop.hidden = this.#meter.hidden = false
    if (focused) this.#stop.focus()
    job.on("state", state => this.#tell(state))
    const end = await job.asked(begun)
    this.#job = null
    this.#start.disabled = false
    if (document.activeElement === this.#stop) this.#start.focus()
    this.#stop.hidden = this.#meter.hidden = true
    const report = /** @type {Report | null | undefined} */ (end.result?.report), measured = report ? points(report) : 0
    const kept = measured ? ` ${plural(measured, "point")} of ${report?.sweep.values.length} ${measured === 1 ? "was" : "were"} measured and saved.` : " No point was measured yet."
    if (end.fault === STOPPED) this.#say(`Stopped.${kept}`)
    else if (end.fault || end.error) this.#say((end.fault || end.error) + (measured ? kept : ""), "bad")
    else if (end.away) this.#say(`${AWAY} Measured points are saved.`, "bad")
    else this.#say(`Measured in ${milliseconds(1000 * (report?.seconds ?? 0))}, and saved.`, "good")
    if (report && end.result?.name) this.#show(end.result.name, report)
    const state = await this.#server.ask("benchmarks", {})
    if (state.kept) {
      this.#state = state
      this.#offerKept()
    }
    this.#expect()
  }

  /** @param {Api.JobState<Api.MeasuredSweep>} state */
  #tell({ what, done, total, result }) {
    if (total) Object.assign(this.#meter, { max: total, value: done })
    else this.#meter.removeAttribute("value")
    const left = result?.left_seconds
    this.#say(`${what}${left ? `, ${about(left)} left` : "…"}`)
    if (result?.report && result.report.results.length) this.#show("", result.report)
  }

  /** @param {string} name */
  async #open(name) {
    const answer = await this.#server.ask("show_report", { name })
    if (answer.report) this.#show(name, answer.report)
    else this.#say(answer.error ?? AWAY, "bad")
  }

  /** @param {string} name a stored report; "" for the running measurement @param {Report} report */
  #show(name, report) {
    const { sweep, model, machine, results } = report
    this.#shown = { name, report }
    this.#results.hidden = false
    this.#empty.hidden = true
    this.#title.textContent = `By ${AXES[sweep.axis].toLowerCase()}`
    const stays = FIELDS.filter(([field]) => field !== sweep.axis && field !== "repeats").map(([field, title]) => `${title.toLowerCase()} ${count(sweep[/** @type {"cached" | "modules" | "new"} */ (field)])}`)
    this.#facts.textContent = `${model.name}, ${model.dtype}, on ${model.device} · ${stays.join(", ")} · ${plural(sweep.repeats, "sample")} of each · ${moment(report.started)}${name && report.ended !== "done" ? " · stopped early" : ""}`
    this.#said.textContent = conclusion(report)
    for (const button of this.#actions.querySelectorAll("button")) button.disabled = !name
    this.#views.stages.disabled = sweep.axis === "prompts"
    if (sweep.axis === "prompts") this.#views.times.checked = true
    this.#tableFor(sweep.axis).fill(results.map((one, index) => ({ ...one, key: `${one.value} ${one.name}`, order: typeof one.value === "number" ? one.value : index, base: at(report, one.value, "uncached")?.median_ms })))
    this.#machine.textContent = `Measured on ${machine.processor} with ${plural(Number(machine.cores), "core")} and ${plural(Number(machine.threads), "thread")} (${machine.system}, Python ${machine.python}, PyTorch ${machine.torch}).`
    this.#frameShown(true)
    this.#offerKept()
    const seen = `${name}/${name ? "" : results.length}`, drawn = this.#drawn
    this.#drawn = seen
    if (seen !== drawn) this.#redraw()
  }

  // Each kind of sweep has its own columns.
  /** @param {Axis} axis @returns {Table<Row>} */
  #tableFor(axis) {
    if (this.#table && this.#listed === axis) return this.#table
    this.#table = new Table({ label: "Measured times", sort: ["order", 1], key: row => row.key, columns: columns(axis) })
    this.#listed = axis
    this.#list.replaceChildren(this.#table.node)
    return this.#table
  }

  async #redraw() {
    const shown = this.#shown
    if (!shown) return
    const { figure } = await this.#server.ask("draw_sweep", { name: shown.name, view: this.#views.stages.checked ? "stages" : "times" })
    if (!figure) this.#drawn = ""
    else if (this.#shown?.name === shown.name) this.#chart.draw(figure, `Chart of the times by ${AXES[shown.report.sweep.axis].toLowerCase()}; the table below has its numbers.`)
  }

  #offerKept() {
    const kept = this.#state?.kept ?? [], shown = this.#shown?.name ?? ""
    this.#kept.hidden = kept.length === 0
    const lines = kept.map(({ name, axis, model, started, ended }) => h("option", { value: name, selected: name === shown },
      `${moment(started)} · ${AXES[/** @type {Axis} */ (axis)] ?? axis} · ${model}${ended === "done" ? "" : " · stopped"}`))
    if (!kept.some(({ name }) => name === shown)) lines.unshift(h("option", { value: shown, selected: true, disabled: true }, "running measurement"))
    this.#kept.replaceChildren(...lines)
    this.#kept.disabled = this.#job !== null
  }

  /** @param {boolean} shown */
  #frameShown(shown) {
    this.#chart.shown(shown)
    this.#list.hidden = this.#machine.hidden = !shown
  }

  /** @param {"csv" | "json"} form */
  async #save(form) {
    if (!this.#shown?.name) return
    const answer = await this.#server.ask("report_files", { name: this.#shown.name })
    if (answer.csv == null) return this.#say(answer.error ?? AWAY, "bad")
    download(`benchmark-${answer.name}.${form}`, answer[form] ?? "", form === "csv" ? "text/csv" : "application/json")
  }

  async #remove() {
    const shown = this.#shown
    if (!shown?.name || !await confirmed(this.#host, `Delete these times, measured ${moment(shown.report.started)}? There is no other copy.`, "Delete the times")) return
    const answer = await this.#server.ask("remove_report", { name: shown.name })
    if (!answer.kept || !this.#state) return this.#say(answer.error ?? AWAY, "bad")
    this.#state.kept = answer.kept
    this.#shown = null
    this.#drawn = ""
    this.#say("Deleted.")
    if (answer.kept.length) this.#open(answer.kept[0].name)
    else {
      this.#results.hidden = true
      this.#empty.hidden = false
      this.#frameShown(false)
      this.#start.focus()
    }
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const page = new BenchmarkPage(studio)
  studio.on("model", () => { if (studio.shell.page === "benchmark") page.refresh() })
  return { shown: () => page.refresh() }
}
