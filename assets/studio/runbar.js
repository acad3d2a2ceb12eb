// Run and stop, and what is said of a run.
import { h, times } from "./dom.js"
import { Emitter } from "./events.js"
import { AWAY, Job } from "./jobs.js"
import { WAITING } from "./panes.js"

const KINDS = { schema: "Schema", prompt: "Prompt" }

/**
 * "start": a run begins; "frame": there is more of it to show.
 * @extends {Emitter<{start: void, frame: Api.RunFrame}>}
 */
export class RunBar extends Emitter {
  #workspace
  #server
  #trigger
  /** @type {Job<Api.RunFrame> | null} */
  #job = null
  #run = h("button", { type: "button", class: "primary", id: "run", onclick: () => this.start() }, "Run", h("kbd", {}, "Ctrl ↵"))
  #stop = h("button", { type: "button", id: "stop", disabled: true, onclick: () => this.stop() }, "Stop", h("kbd", {}, "Esc"))
  #status = h("div", { class: "run-status", role: "status", "aria-live": "polite" })
  #drawer

  /**
   * @param {HTMLElement} host
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("./server.js").Server} server
   * @param {import("./drawer.js").Drawer} drawer
   * @param {(event: string, detail: unknown) => void} trigger tells the server of an event
   */
  constructor(host, workspace, server, drawer, trigger) {
    super()
    this.#workspace = workspace
    this.#server = server
    this.#trigger = trigger
    this.#drawer = drawer
    host.append(h("div", { class: "run-bar" }, this.#run, this.#stop, drawer.toggle, this.#status), drawer.form)
    drawer.on("changed", () => { if (this.#status.dataset.mood === "bad") this.#say("") })
    workspace.on("opened", () => { if (!this.#job) this.#say("") })  // it was said of another document
    workspace.on("typing", () => { if (this.#status.dataset.mood === "bad") this.#say("") })
    document.addEventListener("keydown", event => {
      if (event.defaultPrevented) return
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") { event.preventDefault(); this.start() }
      if (event.key === "Escape" && this.#job && !document.querySelector("dialog[open]")) this.stop()
    })
  }

  get running() { return this.#job !== null }

  async start() {
    if (this.#job) return
    const refusal = this.#drawer.refusal()
    if (refusal) return this.#say(`Nothing was run. ${refusal}`, "bad")
    /** @type {Job<Api.RunFrame>} */
    const job = this.#job = new Job(this.#server)
    this.#buttons()
    this.#say("Checking the documents…")
    const faults = await this.#workspace.faults()
    // A module that is too long for the model does not matter to a prompt that leaves it out.
    const fault = faults?.find(({ severity, kind, counted }) => severity === "error" && !(kind === "schema" && counted))
    if (!faults) return this.#refuse("The studio's server does not answer, so nothing was run. Your text is kept.")
    if (fault) return this.#refuseFor(fault)
    await this.#workspace.save()
    this.#say("Running…")
    const { origin, settings } = this.#workspace
    job.on("state", ({ result }) => { if (result) this.#progress(result) })
    job.on("late", () => this.#say("Waiting for a run in another tab to end…"))
    const request = { key: job.key, origin, settings, ...this.#workspace.texts() }
    const end = await job.followed(() => this.#trigger("run", { request }))
    if (end.away) this.#refuse("The studio's server went away during the run. What came is kept; run again when it is back.")
    else if (end.result) this.#finish(end.result)
    else this.#refuse(end.fault ?? end.error ?? AWAY)
  }

  stop() {
    if (!this.#job) return
    this.#say("Stopping…")
    this.#stop.disabled = true
    this.#job.stop()
  }

  /** One state of a run from the server. @param {Api.JobState<Api.RunFrame>} state */
  take(state) {
    if (state.key === this.#job?.key) this.#job.take(state)
    // What comes of a run that was given up is shown all the same.
    else if (state.result) this.emit("frame", state.result)
  }

  /** @param {Api.RunFrame} frame */
  #progress(frame) {
    this.emit("frame", frame)
    if (frame.state !== "working" || this.#stop.disabled) return
    const side = frame.order.find(name => ["working", "streaming"].includes(frame.sides[name].state))
    if (frame.order.some(name => frame.sides[name].waits)) return this.#say(WAITING)
    const of = frame.repeats > 1 && frame.repeat > 1 ? `Timing again, ${frame.repeat} of ${frame.repeats}…` : null
    this.#say(of ?? (side ? `Running the ${side} side…` : "Running…"))
  }

  /** @param {Api.RunFrame} frame */
  #finish(frame) {
    this.#job = null
    this.#buttons()
    const ratio = frame.comparison.ttft_speedup
    const encoded = frame.sides.cached.timeline_ms.encode
    const warnings = frame.warnings.join(" ")
    const summary = warnings || (encoded ? "Modules were computed in this run and are kept: run again to use them."
      : ratio ? `First token ${times(ratio).join(" ")} with the cache.` : "")
    if (frame.state === "failed") this.#say(frame.message, "bad")
    else this.#say(frame.state === "stopped" ? `Stopped${warnings ? "." : "; what was computed stays."} ${summary}` : `Done. ${summary}`, warnings ? "warn" : "")
    this.#workspace.remeasure()
  }

  /** @param {import("./workspace.js").PlacedFault} fault */
  #refuseFor({ kind, line, column, code, message, from }) {
    const show = () => this.#workspace.editors[kind].reveal(from)
    this.#refuse(h("span", {}, `${KINDS[kind]}, line ${line}, column ${column}: ${code}: ${message} `,
      h("button", { type: "button", class: "link", onclick: show }, "Go there")))
    show()
  }

  /** @param {string | Node} words */
  #refuse(words) {
    this.#job = null
    this.#buttons()
    this.#say(words, "bad")
  }

  /** @param {string | Node} words */
  #say(words, mood = "") {
    if (typeof words === "string" && this.#status.textContent === words) return
    this.#status.dataset.mood = mood
    this.#status.replaceChildren(words)
  }

  #buttons() {
    this.#run.disabled = this.#job !== null
    this.#stop.disabled = this.#job === null
  }
}
