// A form of questions with the job that answers them. After a reload the latest result is back.
import { h, tally } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"
import { forgotten, remembered } from "../base/layout_settings.js"
import { QuestionForm } from "./question_form.js"
import { ReadoutForm } from "./readout_form.js"

/**
 * @template Result
 * @typedef {import("../base/jobs.js").JobReply<Result>} Reply
 */

/**
 * "begun": the work; "decided": the result, and whether this page began the work.
 * @template Result
 * @extends {Emitter<{begun: void, decided: {result: Result, own: boolean, key: string}}>}
 */
export class Asking extends Emitter {
  #server
  #name
  #ask
  /** @type {Job<Result> | null} */
  #job = null
  #sending = false
  #status = h("p", { class: "decide-status", role: "status" })
  #start = h("button", { type: "submit", class: "primary" }, "Decide")
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#halt() }, "Stop")
  form
  readout

  /**
   * @param {import("../base/server.js").Server} server
   * @param {import("../documents/workspace.js").Workspace} workspace has the settings of the readout
   * @param {string} name key of what the browser stores
   * @param {(key: string, questions: Api.PageQuestion[]) => Promise<import("../base/server.js").Reply<{job: Api.JobState<Result> | null, faults: Api.QuestionFault[]}>>} ask starts the job
   * @param {() => string} [refusal] why the job cannot start; "" if it can
   */
  constructor(server, workspace, name, ask, refusal = () => "") {
    super()
    this.#server = server
    this.#name = name
    this.#ask = ask
    this.refusal = refusal
    this.form = new QuestionForm(name)
    this.readout = new ReadoutForm(workspace, name)
    this.node = h("form", { class: "decide-form", novalidate: true, onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.#begin() } },
      this.form.node, this.readout.node, h("div", { class: "decide-foot" }, this.#status, this.#stop, this.#start))
    this.node.addEventListener("keydown", event => { if (event.key === "Escape" && this.#job && !event.defaultPrevented) { event.preventDefault(); this.#halt() } })
  }

  /** Shows the latest result of an earlier page, and follows the job that was begun after it, or shows its error. */
  async restore() {
    for (const key of new Set([remembered(`${this.#name}-job`), remembered(`${this.#name}-begun`)])) if (key) await this.follow(key)
  }

  /** Follows a job of an earlier page. @param {string} key */
  async follow(key) {
    if (!this.#job) await this.#follow(new Job(this.#server, key), /** @type {Promise<Reply<Result>>} */ (this.#server.ask("job_state", { key })), false)
  }

  /** Whether the form has other questions than the latest job. */
  get asksOthers() { return (remembered(`${this.#name}-asked`) ?? JSON.stringify(this.form.questions)) !== JSON.stringify(this.form.questions) }

  /** @param {string} sentence */
  say(sentence, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = sentence
  }

  async #begin() {
    if (this.#job || this.#sending) return this.say("Wait for the decisions, or stop them.")
    const refusal = this.refusal() || this.readout.refusal()
    if (refusal) return this.say(refusal, "bad")
    /** @type {Job<Result>} */
    const job = new Job(this.#server)
    this.#sending = true
    this.say("")
    const questions = this.form.questions, asked = JSON.stringify(questions)
    const begun = await this.#ask(job.key, questions)
    this.#sending = false
    if (begun.away || begun.error != null) return this.say(begun.away ? `${AWAY} Your questions are not lost.` : begun.error ?? "", "bad")
    this.form.refuse(begun.faults)
    if (!begun.job) return
    remembered(`${this.#name}-begun`, job.key)
    remembered(`${this.#name}-asked`, asked)
    this.emit("begun", undefined)
    await this.#follow(job, Promise.resolve(begun.job), true)
  }

  /** @param {Job<Result>} job @param {Promise<Reply<Result>>} begun @param {boolean} own whether this page began it */
  async #follow(job, begun, own) {
    this.#job = job
    this.#buttons()
    job.on("state", ({ what, done, total }) => { if (what) this.say(total > 1 ? `${tally(what, done, total)}: ${what}…` : `${what[0].toUpperCase()}${what.slice(1)}…`) })
    const end = await job.asked(begun)
    this.#job = null
    this.#buttons()
    this.say("")
    if (end.result) {
      remembered(`${this.#name}-job`, job.key)
      return this.emit("decided", { result: end.result, own, key: job.key })
    }
    if (end.fault === STOPPED) return this.say(STOPPED)
    if (own || end.fault) return this.say((end.fault || end.error) ?? AWAY, "bad")
    if (!end.away) for (const name of ["job", "begun"]) if (remembered(`${this.#name}-${name}`) === job.key) forgotten(`${this.#name}-${name}`)
  }

  #halt() {
    this.say("Stopping…")
    if (document.activeElement === this.#stop) this.#start.focus()
    this.#job?.stop()
  }

  #buttons() {
    this.#stop.hidden = !this.#job
    this.#start.setAttribute("aria-disabled", String(this.#job !== null))
  }
}
