// The Batch page: rows over the open workspace, checks of their answers, and results.
import { Checks } from "../batch/checks.js"
import { RowDecisions } from "../batch/decisions.js"
import { Earlier } from "../batch/earlier.js"
import { Grid } from "../batch/grid.js"
import { Held } from "../batch/held.js"
import { Judge } from "../batch/judge.js"
import { Results } from "../batch/results.js"
import { Rows } from "../batch/source.js"
import { count, debounce, h, moment, newKey, pause, plural } from "../base/dom.js"
import { AWAY } from "../base/jobs.js"
import { ofDecisions } from "../shell/settings.js"
import { keysOf, pressed } from "../shell/shortcuts.js"
import { download, fileName } from "../base/download.js"

const KEEP_AFTER_MS = 400
const ASK_AGAIN_MS = 400
const ROWS_PER_MS = 8  // large batches are polled less often, because polling takes CPU time from them
const OLD = { texts: "the documents have changed", settings: "the settings have changed", model: "another model is loaded", schema: "another schema is open" }

/** @type {Partial<Record<Api.BatchState["state"], string>>} */
const UNENDED = {
  left: "Unfinished: its studio was closed. All finished rows are here.",
  elsewhere: "Another studio is running it. Open it again to see further rows.",
}

/** The progress of a batch in words. @param {Api.BatchSummary} summary */
function progress({ rows, answered, failed }) {
  return failed ? `${count(answered + failed)} of ${plural(rows, "row")}: ${count(answered)} answered, ${count(failed)} failed` : `${count(answered)} of ${plural(rows, "row")} answered`
}

/** A remaining time in words. @param {number} seconds */
function timeLeft(seconds) {
  if (seconds < 60) return `about ${Math.max(1, Math.round(seconds))} s left`
  return seconds < 3600 ? `about ${Math.round(seconds / 60)} min left` : `about ${(seconds / 3600).toFixed(1)} h left`
}

class BatchPage {
  #studio
  #server
  #workspace
  #grid = new Grid()
  #checks = new Checks()
  #rows
  #held
  #judge
  #results
  #earlier
  #decisions
  /** @type {Api.BatchState | null} */
  #batch = null
  #only = false  // whether an earlier batch is shown even if a newer one exists
  #asking = false
  #starting = false
  #halted = false  // whether the user stopped the batch with the focus on Stop
  /** @type {number | null} */
  #count = 0
  #refusal = "There are no rows yet."  // why the rows cannot run; "" if they can or nothing is known
  /** @type {Api.CheckedTexts["texts"] | null} */
  #texts = null
  #model = ""
  #kept = ""
  #filled = false
  #early = false  // whether the user edited the form before saved values arrived
  #sided = false  // whether the user chose the sides
  #keepSoon = debounce(KEEP_AFTER_MS, () => this.#keep())
  #mode = h("select", { "aria-label": "Sides", onchange: () => { this.#sided = true; this.#changed() } },
    h("option", { value: "both" }, "cached and uncached, in turns"), h("option", { value: "cached" }, "cached only, many rows at once"))
  #run = h("button", { type: "button", class: "primary", "aria-keyshortcuts": "Control+Enter", onclick: () => this.#start() }, "Run")
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#halt() }, "Stop")
  #resume = h("button", { type: "button", hidden: true, onclick: () => this.#goOn() }, "Resume")
  #status = h("span", { class: "batch-status", role: "status", "aria-live": "polite" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress of the batch" })
  #title = h("p", { class: "soft", tabindex: "-1" })
  #note = h("p", { "data-mood": "warn", role: "status" })
  #age = h("p", { class: "batch-age", role: "status" })
  #outcome

  /** @param {import("../studio.js").Studio} studio */
  constructor(studio) {
    const { hosts, server, workspace, shell } = studio
    this.#studio = studio
    this.#server = server
    this.#workspace = workspace
    this.#rows = new Rows(server, workspace, this.#grid)
    this.#held = new Held(this.#rows.alone)
    this.#judge = new Judge(server)
    this.#results = new Results(server)
    this.#earlier = new Earlier(server)
    this.#decisions = new RowDecisions(server, workspace, this.#rows, () => ({ mode: /** @type {Api.BatchWanted["mode"]} */ (this.#mode.value), refusal: this.#refusal }))
    const save = (/** @type {Api.BatchFile["form"]} */ form, /** @type {string} */ words, title = "") => h("button", { type: "button", title: title || null, onclick: () => this.#download(form) }, words)
    this.#outcome = h("section", { class: "batch-outcome", "aria-label": "Results", hidden: true },
      h("header", { class: "batch-head" }, h("h3", {}, "Results"), this.#title, h("span", { class: "grow" }), this.#resume, save("csv", "Save as CSV"), save("json", "Save as JSON"),
        save("promptfoo", "For promptfoo", "Saves a configuration for promptfoo eval, and the results for promptfoo import"), save("langfuse", "For Langfuse", "Saves dataset items as JSON Lines")), this.#note, this.#age, this.#judge.node, this.#results.node)
    hosts.batch.append(
      h("header", { class: "batch-head" }, h("h2", {}, "Batch"), h("p", { class: "soft" }, "Run many prompts against the open schema and check each answer.")),
      this.#rows.node, this.#held.node, this.#checks.node,
      h("div", { class: "batch-run" }, this.#run, this.#stop, h("label", { class: "sides" }, h("span", { class: "soft" }, "Answer "), this.#mode), this.#meter, this.#status),
      this.#decisions.node, this.#earlier.node, this.#outcome)
    this.#earlier.on("open", ({ key, decides }) => decides ? this.#openDecisions(key) : this.#open(key))
    this.#decisions.on("changed", () => { this.#earlier.refresh(); this.#studio.emit("stored") })
    this.#earlier.on("deleted", keys => this.#forget(keys))
    this.#earlier.on("named", ({ key, name }) => { if (this.#batch?.key === key) { this.#batch.name = name; this.#showTitle(this.#batch) } })
    this.#rows.on("changed", () => this.#changed())
    this.#rows.on("held", held => this.#held.show(held, this.#rows.wanted().alone))
    this.#rows.on("encoded", found => this.#held.cost(found, String(workspace.settings.scope)))
    this.#held.on("author", () => shell.go("author"))
    this.#held.on("settings", () => studio.drawer?.enter())
    this.#held.on("scope", scope => studio.drawer?.set("scope", scope))
    this.#judge.on("changed", () => this.#changed())
    this.#judge.on("graded", () => this.#again())
    this.#results.on("fault", sentence => this.#say(sentence, "bad"))
    this.#rows.on("read", ({ rows, refusal = "" }) => {
      if (this.#status.textContent === this.#refusal) this.#say("")
      if (rows && refusal && !this.#working) this.#say(refusal, "bad")
      this.#count = rows
      this.#refusal = refusal
      this.#buttons()
    })
    this.#checks.on("changed", () => { if (this.#status.dataset.mood === "bad") this.#say(""); this.#keepSoon() })
    this.#results.on("open", number => { if (this.#batch) shell.open("batch_open", { key: this.#batch.key, number }) })
    workspace.on("checked", checked => this.#hear(checked))
    workspace.on("settings", () => this.#showAge())
    // Before the header's Run, which has the same shortcut on other pages.
    document.addEventListener("keydown", event => {
      if (shell.page !== "batch" || event.defaultPrevented || !pressed(event, "run") || document.querySelector("dialog[open]")) return
      event.preventDefault()
      if (!event.repeat) this.#start()
    }, { capture: true })
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.#keep() })
    server.on("back", () => { this.#keep(); this.#follow() })
  }

  /** @param {Api.ModelFacts} model */
  model({ name }) {
    this.#model = name
    this.#showAge()
  }

  /** @param {Api.SettingForm[]} settings */
  async begin(settings) {
    const answer = await this.#server.ask("batch_form", {})
    if (answer.away || answer.error != null) { this.#server.once("back", () => this.begin(settings)); return }
    const { form, kinds, most, template } = answer
    await this.#look()
    this.#decisions.readout.offer(settings)
    this.#grid.fill({ settings, most, chosen: form.grid })
    this.#checks.fill(kinds, form)
    this.#judge.fill(template, form.judge)
    if (!this.#sided && form.mode === "cached") this.#mode.value = "cached"
    this.#rows.fill(form)
    this.#filled = true
    if (this.#early) this.#keepSoon()
    else this.#kept = JSON.stringify(this.#form())
    this.#buttons()
    this.#earlier.refresh()
    this.#follow()
  }

  // The texts were checked before this page was mounted.
  async #look() {
    const { origin } = this.#workspace
    const answer = await this.#server.ask("check", { ...this.#workspace.texts(), origin, fallback: this.#workspace.basis(), known: null })
    if (answer.away || answer.error != null) return
    this.#grid.over(answer.basis.tree ?? [])
    this.#hear(answer)
  }

  /** @param {Api.CheckedTexts} checked */
  #hear({ texts, prompt }) {
    this.#texts = texts
    this.#decisions.take(prompt.decides)
    this.#showAge()
  }

  shown() {
    this.#showAge()
    this.#earlier.refresh()
    this.#follow()
  }

  #changed() {
    this.#early ||= !this.#filled
    this.#keepSoon()
  }

  #form() { return { ...this.#rows.kept(), checks: this.#checks.checks, combine: this.#checks.combine, mode: this.#mode.value, judge: this.#judge.kept } }

  async #keep() {
    const form = this.#form(), spelled = JSON.stringify(form)
    if (!this.#filled || spelled === this.#kept) return
    const answer = await this.#server.ask("batch_keep", { form })
    if (answer.error) this.#say(answer.error, "bad")
    if (!answer.error && !answer.away) this.#kept = spelled
  }

  get #working() { return Boolean(this.#batch?.working) }

  async #start() {
    if (this.#starting || this.#working) return
    const refusal = this.#refusal || this.#checks.refusal()  // if unknown, the server checks
    if (refusal) return this.#say(`Nothing was run. ${refusal}`, "bad")
    this.#say("Starting…")
    this.#starting = true
    const key = newKey(), mode = /** @type {Api.BatchWanted["mode"]} */ (this.#mode.value)
    const answer = await this.#server.ask("batch_start", { ...this.#rows.wanted(), key, mode, checks: this.#checks.checks, combine: this.#checks.combine })
    this.#starting = false
    this.#buttons()
    if (answer.away || answer.error != null) return this.#say(answer.error ? `Nothing was run. ${answer.error}` : `${AWAY} Run again when it is back.`, "bad")
    this.#stop.disabled = this.#only = false
    this.#earlier.refresh()
    await this.#follow()
  }

  // Runs the rows of the shown batch that have no result.
  async #goOn() {
    const answer = await this.#server.ask("batch_resume", { key: this.#batch?.key ?? "" })
    if (answer.away || answer.error != null) return this.#say(answer.error ?? AWAY, "bad")
    this.#stop.disabled = this.#only = false
    this.#earlier.refresh()
    await this.#follow()
  }

  async #halt() {
    this.#say("Stopping…")
    this.#halted = document.activeElement === this.#stop
    this.#stop.disabled = true
    if (this.#batch?.working) await this.#server.ask("stop_job", { key: this.#batch.working })
  }

  /** @param {string} key */
  async #open(key) {
    const answer = await this.#server.ask("batch_state", { key, known: -1, only: true })
    if (answer.away || answer.error != null || !answer.batch) return this.#say(answer.error ?? AWAY, "bad")
    this.#only = true
    this.#show(answer.batch)
    this.#say("")
    this.#outcome.scrollIntoView({ block: "start" })
    this.#title.focus({ preventScroll: true })
    this.#follow()
  }

  /** @param {string} key */
  async #openDecisions(key) {
    await this.#decisions.open(key)
    this.#decisions.node.scrollIntoView({ block: "start" })
  }

  // Shows all rows of the same batch again, with new grades.
  async #again() {
    const { key = "" } = this.#batch ?? {}, answer = await this.#server.ask("batch_state", { key, known: -1, only: true })
    if (answer.batch && this.#batch?.key === key) this.#show(answer.batch)
  }

  /** @param {string[]} keys */
  #forget(keys) {
    this.#decisions.forget(keys)
    if (!this.#batch || !keys.includes(this.#batch.key)) return
    this.#batch = null
    this.#only = false
    this.#outcome.hidden = true
    this.#follow()
  }

  // Polls the latest batch until it ends, also one of another tab or an earlier page.
  async #follow() {
    if (this.#asking || !this.#filled) return
    this.#asking = true
    for (;;) {
      const { key = "", ended = -1 } = this.#batch ?? {}, only = this.#only
      const answer = await this.#server.ask("batch_state", { key, known: key ? ended : -1, only })
      if (answer.away || answer.error != null) { if (answer.error) this.#say(answer.error, "bad"); break }
      if (!answer.batch) break
      if (only !== this.#only || (only && this.#batch?.key !== key)) continue  // the user chose another batch meanwhile
      this.#show(answer.batch)
      if (!this.#working) break
      await pause(Math.max(ASK_AGAIN_MS, answer.batch.summary.rows / ROWS_PER_MS))
    }
    this.#asking = false
  }

  /** @param {Api.BatchState} batch */
  #show(batch) {
    const was = this.#batch
    this.#batch = batch
    this.#outcome.hidden = false
    this.#results.show(batch)
    this.#judge.of(batch.key, batch.state !== "working" && batch.state !== "elsewhere")
    const { key, state, fault, unkept, ended, left_s: left, summary, working } = batch
    this.#showTitle(batch)
    this.#note.textContent = [unkept && `Some rows are not on disk yet. ${unkept}`, UNENDED[state]].filter(Boolean).join(" ")
    Object.assign(this.#meter, { max: summary.rows || 1, value: ended, hidden: state !== "working" })
    this.#resume.hidden = state === "working" || state === "elsewhere" || ended === summary.rows
    const rows = progress(summary)
    if (working && working !== key) this.#say("Another batch is running.")
    else if (state === "working" && !this.#stop.disabled) this.#say(left == null ? `${rows}…` : `${rows}, ${timeLeft(left)}`)
    else if (was?.working && !working) {
      if (was.key !== key || was.working !== key) this.#say("The other batch has ended.")
      else if (state === "done") this.#say(`Done: ${plural(summary.answered, "row")} answered${summary.failed ? `, ${count(summary.failed)} failed` : ""}.`, summary.failed ? "warn" : "good")
      else this.#say(state === "stopped" ? `Stopped: ${rows}.` : fault, state === "stopped" ? "" : "bad")
    }
    if (was?.key !== key || was.working !== working) this.#earlier.refresh()
    if (was?.working && !working) this.#studio.emit("stored")
    this.#earlier.show(key)
    this.#buttons()
    this.#showAge()
  }

  /** @param {Api.BatchState} batch */
  #showTitle({ name, schema, model, started }) {
    this.#title.textContent = [name, schema, model.split("/").at(-1), moment(started)].filter(Boolean).join(" · ")
  }

  #buttons() {
    const working = this.#working, focused = document.activeElement
    this.#run.textContent = this.#count ? `Run ${plural(this.#count, "row")}` : "Run"
    this.#stop.hidden = !working
    if (!working) this.#stop.disabled = false
    if (focused === this.#run && working) this.#stop.focus()
    this.#run.disabled = working || !this.#count || Boolean(this.#refusal)
    this.#run.title = this.#refusal || `Run the rows (${keysOf("run")})`
    if (working) return
    if (focused === this.#stop || (this.#halted && focused === document.body)) this.#run.focus()
    this.#halted = false
  }

  // Outdated results stay with a note.
  #showAge() {
    const batch = this.#batch
    if (!batch) return
    const now = this.#texts, texts = now && (batch.texts.schema !== now.schema || (!batch.alone && batch.texts.prompt !== now.prompt))
    const settings = JSON.stringify(sorted(batch.settings)) !== JSON.stringify(sorted(this.#workspace.settings))
    const why = batch.schema !== this.#workspace.names.schema ? OLD.schema : texts ? OLD.texts : settings ? OLD.settings : this.#model && batch.model !== this.#model ? OLD.model : ""
    this.#outcome.toggleAttribute("data-old", Boolean(why))
    const words = why ? `Out of date: ${why}. Run again.` : ""
    if (this.#age.textContent !== words) this.#age.textContent = words
  }

  /** @param {Api.BatchFile["form"]} form */
  async #download(form) {
    if (!this.#batch) return
    const answer = await this.#server.ask("batch_files", { key: this.#batch.key, form })
    if (answer.away || answer.error != null) return this.#say(answer.error ?? AWAY, "bad")
    const { name } = this.#batch, named = form === "csv" || form === "json"
    const names = answer.files.map(({ filename, text, media_type }) => {
      const file = name && named ? fileName(name, form) : filename
      download(file, text, media_type)
      return file
    })
    this.#say([`${names.join(" and ")} ${names.length > 1 ? "are" : "is"} saved.`, ...answer.files[0].notes].join(" "))
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    if (this.#status.textContent !== words) this.#status.textContent = words
  }
}

/** @param {Record<string, any>} settings */
const sorted = settings => Object.entries(settings).filter(([name]) => name !== "repeats" && !ofDecisions(name)).sort(([a], [b]) => a < b ? -1 : 1)

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const page = new BatchPage(studio)
  if (studio.model) page.model(studio.model)
  studio.on("model", model => page.model(model))
  return { begin: start => page.begin(start.settings), shown: () => page.shown() }
}
