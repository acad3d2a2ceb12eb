// Grades the answers of the shown batch with a model: the loaded one, or one of a server on this machine.
import { count, h, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"

const SHOWN_AFTER_MS = 2000  // all rows are read again to show new grades

/** @typedef {{by?: string, url?: string, model?: string, template?: string}} Kept */

/**
 * "changed": the form was edited; "graded": more answers have grades.
 * @extends {Emitter<{changed: void, graded: void}>}
 */
export class Judge extends Emitter {
  #server
  #key = ""
  #usual = ""
  /** @type {Job<unknown> | null} */
  #job = null
  #ready = false  // whether the batch has ended
  #by = h("select", { "aria-label": "Judge", onchange: () => this.#edited() }, h("option", { value: "model" }, "the loaded model"), h("option", { value: "server" }, "a server on this machine"))
  #url = h("input", { type: "text", autocomplete: "off", spellcheck: false, placeholder: `${location.protocol}//${location.hostname}:8000/v1`, "aria-label": "Base URL of the judge", oninput: () => this.#edited() })
  #model = h("input", { type: "text", autocomplete: "off", spellcheck: false, placeholder: "the server's first model", "aria-label": "Model of the judge", oninput: () => this.#edited() })
  #place = h("span", { class: "judge-place" }, this.#url, this.#model)
  #template = h("textarea", { rows: 8, "aria-label": "Prompt of the judge", "aria-describedby": "judge-hint", oninput: () => this.#edited() })
  #reset = h("button", { type: "button", class: "quiet", onclick: () => { this.#template.value = this.#usual; this.#edited() } }, "Reset the prompt")
  #run = h("button", { type: "button", onclick: () => this.#start() }, "Grade all answers")
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#job?.stop() }, "Stop")
  #status = h("span", { class: "judge-status", role: "status", "aria-live": "polite" })
  node = h("details", { class: "batch-part judge" }, h("summary", {}, "Grade the answers with a model"),
    h("div", { class: "judge-form" },
      h("div", { class: "table-tools" }, h("span", { class: "soft" }, "Judge"), this.#by, this.#place),
      this.#template,
      h("p", { class: "hint soft", id: "judge-hint" }, "{question}, {answer} and {prompt} stand for the texts of the row. The first number from 0 to 10 in the reply is the grade."),
      h("div", { class: "table-tools" }, this.#run, this.#stop, this.#reset, this.#status)))

  /** @param {import("../base/server.js").Server} server */
  constructor(server) {
    super()
    this.#server = server
    this.#show()
  }

  /** The form to save for the next visit, without the default prompt. @returns {Kept} */
  get kept() {
    const template = this.#template.value === this.#usual ? "" : this.#template.value
    return { by: this.#by.value, url: this.#url.value, model: this.#model.value, template }
  }

  /** @param {string} usual the default prompt @param {Kept | undefined} kept */
  fill(usual, kept) {
    const text = (/** @type {unknown} */ value, instead = "") => typeof value === "string" && value ? value : instead
    this.#usual = usual
    this.#by.value = kept?.by === "server" ? "server" : "model"
    this.#url.value = text(kept?.url)
    this.#model.value = text(kept?.model)
    this.#template.value = text(kept?.template, usual)
    this.#show()
  }

  /** Sets the batch to grade. @param {string} key @param {boolean} ready whether it has ended */
  of(key, ready) {
    if (key !== this.#key && !this.#job) this.#say("")
    this.#key = key
    this.#ready = ready
    this.#show()
  }

  #edited() {
    this.#show()
    this.emit("changed")
  }

  #show() {
    this.#place.hidden = this.#by.value !== "server"
    this.#reset.hidden = this.#template.value === this.#usual
    this.#run.disabled = Boolean(this.#job) || !this.#ready
    this.#run.title = this.#ready ? "" : "The batch is still running."
    this.#stop.hidden = !this.#job
  }

  async #start() {
    const job = this.#job = new Job(this.#server), by = this.#by.value === "server"
    if (by && !this.#url.value.trim()) this.#url.value = this.#url.placeholder
    this.#show()
    this.#say("Starting…")
    let done = 0, shown = Date.now()
    job.on("state", state => {
      this.#say(`${count(state.done)} of ${plural(state.total, "answer")} judged…`)
      if (state.done === done || Date.now() - shown < SHOWN_AFTER_MS) return
      done = state.done
      shown = Date.now()
      this.emit("graded")
    })
    const url = by ? this.#url.value : "", model = by ? this.#model.value : ""
    const end = await job.asked(this.#server.ask("batch_grade", { key: this.#key, job: job.key, template: this.#template.value, url, model }))
    this.#job = null
    this.#show()
    this.emit("graded")
    if (end.away || end.error != null) return this.#say(end.error ?? AWAY, "bad")
    const judged = `${count(end.done)} of ${plural(end.total, "answer")} judged`
    if (end.fault === STOPPED) this.#say(`Stopped: ${judged}.`)
    else this.#say(end.fault ? `${judged}. ${end.fault}` : `Done: ${judged}.`, end.fault ? "bad" : "good")
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }
}
