// Measures on demand how reuse changes an answer, by module, and how to fix it.
import { originOf } from "./staleness.js"
import { settingsWith } from "./verdict.js"
import { count, debounce, h, moment, nats, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"
import { Pace } from "../base/pace.js"

const percent = (/** @type {number} */ value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}%`
/** @type {[string, string, (m: Api.ModuleFidelity) => string][]} */
const COLUMNS = [
  ["Module", "", m => m.path || "fixed text"],
  ["Tokens", "Tokens of the module that are read from the cache", m => count(m.tokens)],
  ["Influence (nats)", "How much the answer depends on this module: KL per token if it is hidden", m => nats(m.dependence)],
  ["Key difference", "Difference of the stored keys from those computed without the cache, relative", m => percent(m.key_deviation)],
  ["Value difference", "Difference of the stored values from those computed without the cache, relative", m => percent(m.value_deviation)],
  ["KL (nats)", "Part of the answer's KL per token that this module causes; negative if it offsets another", m => nats(m.harm)],
  ["Flipped tokens", "Answer tokens that change because of this module; negative if it prevents changes", m => count(m.mends)],
]
/** @type {[string, string][]} */
const FLIPS = [["Token", "Place in the answer"], ["Uncached", "The answer's token"], ["Cached", "The token that the cached side prefers"], ["KL (nats)", "Difference between the probabilities of both sides for this token; 0 means none"], ["Text before", "The answer before this token"]]
/** @type {[string, string][]} */
const FIXES = [["Fix", ""], ["Flips left", "Answer tokens that still change"], ["Worst KL", "The largest KL of a token, in nats"], ["Mean KL", "KL per answer token, in nats"], ["Agreement", "Share of answer tokens that both sides prefer"], ["Computed tokens", "Tokens that each answer computes, compared with now"], ["", ""]]
/** @param {[string, string, ...unknown[]][]} columns */
const head = columns => h("thead", {}, h("tr", {}, ...columns.map(([name, title]) => h("th", { scope: "col", title: title || null, class: name === "Text before" ? "words" : null }, name))))
/** A difference in computed tokens. @param {number} tokens */
const compared = tokens => tokens ? `${count(Math.abs(tokens))} ${tokens > 0 ? "more" : "fewer"}` : "as now"
/** "link:2" in words. @param {string} repair */
const repairWords = repair => {
  const [kind, much] = repair.split(":")
  return kind === "link" ? `Recompute the first ${plural(Number(much), "token")} of each module` : `Recompute ${percent(Number(much))} of the tokens (${kind})`
}
const MOST_FLIPS = 8
const MEANING = "KL (Kullback-Leibler divergence, in nats) is the difference between the probabilities of both sides; 0 means none. A token flips if the cached side prefers another one."
const FIND_AFTER_MS = 200
const FIRST_MODULE = 2  // steps before the first module: both answers

/**
 * "setting": settings to set; "scaffold": modules to encode together; "found": a measurement.
 * @extends {Emitter<{setting: Record<string, string>, scaffold: string[], found: Api.MeasuredFidelity}>}
 */
export class Explanation extends Emitter {
  #host
  #workspace
  #server
  #drawer
  #belonging
  /** @type {Job<Api.MeasuredFidelity> | null} */
  #job = null
  /** @type {import("./staleness.js").Origin | null} */
  #origin = null
  /** The run on the page. @type {Api.RunFrame | null} */
  #run = null
  #age = ""
  /** The texts of the last rejected measurement. */
  #refused = ""
  #asked = 0
  #findSoon = debounce(FIND_AFTER_MS, () => this.#find())
  #measure = h("button", { type: "button", id: "explain", onclick: () => this.start() }, "Measure")
  #stop = h("button", { type: "button", hidden: true, title: "Stop with what is measured so far", onclick: () => this.stop() }, "Stop")
  #status = h("span", { class: "soft", role: "status", "aria-live": "polite" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress of the measurement" })
  #pace = new Pace()
  #body = h("div", { class: "explained" })

  /**
   * @param {HTMLElement} host
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/settings_drawer.js").Drawer} drawer
   * @param {import("./staleness.js").Belonging} belonging
   */
  constructor(host, workspace, server, drawer, belonging) {
    super()
    this.#host = host
    this.#workspace = workspace
    this.#server = server
    this.#drawer = drawer
    this.#belonging = belonging
    host.append(h("header", { class: "bar" }, h("h2", {}, "What reuse changed"), this.#status, this.#meter, this.#pace.node, h("span", { class: "grow" }), this.#stop, this.#measure), this.#body)
    this.#body.append(h("p", { class: "empty" }, "Measure whether caching changed the answer, which module causes it, and how to fix it."))
    belonging.on("changed", () => { this.#showAge(); this.#findSoon() })
    drawer.on("changed", () => { if (this.#status.dataset.mood === "bad") this.say("") })
  }

  async start() {
    const refusal = this.#drawer.refusal()
    if (refusal) return this.say(`Nothing was measured. ${refusal}`, "bad")
    /** @type {Job<Api.MeasuredFidelity>} */
    const job = new Job(this.#server), { origin, settings } = this.#workspace
    await this.#follow(job, this.#server.ask("measure_fidelity", { key: job.key, origin, settings, ...this.#workspace.texts() }))
    this.#host.scrollIntoView({ block: "nearest" })
  }

  // Shows the stored measurement of the open texts, settings and model, or follows a running one.
  async #find() {
    const { texts, modelDigest } = this.#belonging, { settings } = this.#workspace
    if (this.#job || !texts || !modelDigest || this.#holds()) return
    const number = ++this.#asked, known = await this.#server.ask("find_fidelity", { ...texts, settings })
    if (this.#job || number !== this.#asked || known.away || known.error != null) return
    if (known.kept) return this.#take(known.kept)
    if (!known.under_way) return this.#findOfRun(number)
    /** @type {Job<Api.MeasuredFidelity>} */
    const job = new Job(this.#server, known.under_way)
    return this.#follow(job, /** @type {Promise<import("../base/jobs.js").JobReply<Api.MeasuredFidelity>>} */ (this.#server.ask("job_state", { key: job.key })))
  }

  // After a reload with changed texts: the measurement of the shown run.
  async #findOfRun(/** @type {number} */ number) {
    const run = this.#run
    if (!run || this.#origin) return
    const { kept } = await this.#server.ask("find_fidelity", { schema: run.of.schema, prompt: run.of.prompt, settings: run.settings })
    if (kept && number === this.#asked && !this.#job && !this.#origin) this.#take(kept)
  }

  /** Notes the run on the page. @param {Api.RunFrame} run */
  of(run) { this.#run = run }

  /** Whether the shown measurement is up to date. */
  #holds() { return this.#origin !== null && this.#belonging.differences(this.#origin).length === 0 }

  /** @param {Job<Api.MeasuredFidelity>} job @param {Promise<import("../base/jobs.js").JobReply<Api.MeasuredFidelity>>} begun */
  async #follow(job, begun) {
    this.#job = job
    this.#buttons()
    const texts = JSON.stringify(this.#workspace.texts())
    job.on("state", state => this.#progress(state))
    const end = await job.asked(begun)
    this.#job = null
    this.#buttons()
    if (end.result) return this.#take(end.result)
    this.#refused = texts
    this.say(end.fault === STOPPED ? "Stopped before both answers were read: nothing was measured." : (end.fault || end.error) ?? `${AWAY} Measure again when it is back.`, end.fault === STOPPED ? "" : "bad")
  }

  /** @param {Api.MeasuredFidelity} result */
  #take(result) {
    this.#origin = originOf(result)
    this.#show(result.found, result.measured)
    this.#showAge()
    if (result.unkept) this.say(result.unkept, "bad")
    this.emit("found", result)
  }

  /** Shows the measurement of a stored run, if it has one. @param {Api.RunFrame} run */
  showStored({ fidelity, ...run }) {
    if (fidelity && !this.#job) this.#take({ ...run, ...fidelity, unkept: "" })
  }

  stop() {
    this.say("Stopping…")
    this.#job?.stop()
  }

  /** @param {Api.JobState<Api.MeasuredFidelity>} state */
  #progress({ what, done, total }) {
    this.#meter.hidden = !total
    Object.assign(this.#meter, { max: total || 1, value: done })
    if (done >= FIRST_MODULE) this.#pace.note("steps", done, total)
    if (what) this.say(total ? `Step ${count(done + 1)} of ${count(total)}: ${what}…` : `${what[0].toUpperCase()}${what.slice(1)}…`)
  }

  /** @param {Api.Fidelity} found @param {string} measured the time */
  #show(found, measured) {
    this.say("")
    const rows = found.modules.map(m => h("tr", { "data-worst": m.path === found.worst && found.remedies.length > 0 ? "yes" : null },
      ...COLUMNS.map(([, , cell], index) => h(index ? "td" : "th", index ? {} : { scope: "row" }, cell(m)))))
    const [, verdict, figures] = /^(.*?\.)(?: (.*))?$/s.exec(found.advice) ?? ["", found.advice, ""]
    const stuck = found.complete && found.worst !== null && found.remedies.length > 0 && !found.improvements.length && found.scope !== "scaffold"
    const exact = stuck ? h("button", { type: "button", onclick: () => this.emit("setting", settingsWith(found, "scope", "scaffold")) }, "Encode these modules together") : ""
    const agrees = found.first_token_agrees ? "the same first token" : "a different first token"
    this.#body.replaceChildren(
      h("p", { class: "advice" }, h("strong", {}, verdict, " "), figures, exact),
      h("p", { class: "soft", tabindex: "0", title: MEANING }, `The cached side predicts ${agrees} (KL ${nats(found.kl_first_token)} nats). It read the uncached answer ${found.read_to_end ? "to its end" : "up to the maximum length"}, ${plural(found.tokens_read, "token")}, and agrees on ${percent(found.answer_agreement)} of them (KL ${nats(found.kl_mean)} nats per token; ${nats(found.kl_worst)} at worst, at token ${count(found.worst_position + 1)}).${found.complete ? "" : " The measurement was stopped early."}`, measured ? ` Measured ${moment(measured)}.` : ""),
      found.flips.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Flipped tokens" }, this.#flips(found.flips)) : "",
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Fidelity by module" }, h("table", {},
        head(COLUMNS), h("tbody", {}, ...rows))),
      found.improvements.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Fixes" }, this.#fixes(found)) : "")
  }

  /** @param {Api.Flip[]} flips */
  #flips(flips) {
    const rows = flips.slice(0, MOST_FLIPS).map(f => h("tr", {},
      h("th", { scope: "row" }, count(f.position + 1)), h("td", {}, JSON.stringify(f.uncached)), h("td", {}, JSON.stringify(f.cached)),
      h("td", {}, nats(f.kl)), h("td", { class: "words" }, `…${f.before}`)))
    const more = flips.length - MOST_FLIPS
    return [
      h("table", {}, head(FLIPS), h("tbody", {}, ...rows)),
      more > 0 ? h("p", { class: "soft" }, `And ${plural(more, "token")} more.`) : "",
    ]
  }

  /** The fixes that help, after the present state. @param {Api.Fidelity} found */
  #fixes(found) {
    /** @param {string} name @param {Pick<Api.Remedy, "flips" | "kl_worst" | "kl_mean" | "answer_agreement" | "computed">} left @param {...Node} action */
    const row = (name, left, ...action) => h("tr", {}, h("th", { scope: "row" }, name),
      h("td", {}, count(left.flips)), h("td", {}, nats(left.kl_worst)), h("td", {}, nats(left.kl_mean)), h("td", {}, percent(left.answer_agreement)), h("td", {}, compared(left.computed)), h("td", {}, ...action))
    const rows = found.improvements.map(r => row(
      r.repair ? repairWords(r.repair) : r.scope ? `Scope ${r.scope}` : `Scaffold of ${r.scaffold.length > 3 ? `all ${r.scaffold.length} modules` : r.scaffold.join(", ")}`, r,
      h("button", { type: "button", onclick: () => this.#use(r, found) }, r.scaffold.length ? "Add to schema" : "Use")))
    return h("table", {}, head(FIXES), h("tbody", {}, row("As now", { ...found, flips: found.flips.length, computed: 0 }), ...rows))
  }

  /** @param {Api.Remedy} fix @param {Api.Fidelity} found */
  #use({ repair, scope, scaffold }, found) {
    if (scaffold.length) return this.emit("scaffold", scaffold)
    this.emit("setting", scope ? settingsWith(found, "scope", scope) : settingsWith(found, "repair", repair))
  }

  // An outdated measurement stays with a note; undo makes it current again.
  #showAge() {
    const differs = this.#origin ? this.#belonging.sentence(this.#origin) : "", before = this.#age
    this.#body.toggleAttribute("data-old", differs !== "")
    if (this.#job) return
    this.#age = differs && `Measured ${differs}. Measure again.`
    const bad = this.#status.dataset.mood === "bad"
    if (bad && this.#refused === JSON.stringify(this.#workspace.texts())) return
    if (this.#age) this.say(this.#age)
    else if (bad || this.#status.textContent === before) this.say("")
  }

  /** @param {string} words */
  say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }

  #buttons() {
    this.#measure.disabled = this.#job !== null
    this.#stop.hidden = this.#job === null
    if (this.#job) return this.#pace.start()
    this.#pace.stop()
    this.#meter.hidden = true
  }
}
