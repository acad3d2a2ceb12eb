// Run and stop buttons, and a run's status.
import { count, h, milliseconds, overlapping, plural, tally, times } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"
import { Pace } from "../base/pace.js"
import { WAITING } from "./panes.js"
import { CHOICES, RunMenu } from "./run_menu.js"
import { keysOf, pressed } from "../shell/shortcuts.js"

const GONE = `${AWAY} Nothing was run. Your text is not lost.`
const WENT = "Stopped: the studio's server does not answer."
const KINDS = { schema: "Schema", prompt: "Prompt" }

/** The result of a run that nobody follows any more. @param {Api.RunFrame} frame @returns {Api.RunFrame} */
export function cutOff(frame) {
  /** @param {Api.SideFrame} side @returns {Api.SideFrame} */
  const cut = side => side.state === "done" ? side : { ...side, waits: false, working: "", state: side.ttft_ms == null ? "not run" : "stopped" }
  const { encoding, sides } = frame
  return {
    ...frame, state: "stopped", message: WENT, sides: { cached: cut(sides.cached), uncached: cut(sides.uncached) },
    encoding: encoding.state === "done" ? encoding : { ...encoding, waits: false, state: encoding.state === "waiting" ? "not run" : "stopped" },
  }
}

/**
 * "start": a run begins; "frame": its progress, where the last may come twice; "ended": its job ended; "fault": an error to show; "encoded": all modules are encoded.
 * @extends {Emitter<{start: void, frame: Api.RunFrame, ended: Api.RunFrame, fault: import("../documents/workspace.js").PlacedFault, encoded: void}>}
 */
export class RunBar extends Emitter {
  #workspace
  #server
  /** @type {Job<any> | null} */
  #job = null
  /** Cancels waiting for the model; null if not waiting. @type {(() => void) | null} */
  #unwait = null
  #menu = new RunMenu()
  #title = h("span", {}, CHOICES[this.#menu.choice].button)
  #run = h("button", { type: "button", class: "primary", id: "run", onclick: () => this.start() }, this.#title, h("kbd", {}, keysOf("run").replace("Enter", "↵")))
  #stop = h("button", { type: "button", id: "stop", disabled: true, onclick: () => this.stop() }, "Stop", h("kbd", {}, keysOf("stop")))
  #status = h("div", { class: "run-status", role: "status", "aria-live": "polite" })
  /** A run's status element. @type {HTMLElement} */
  status = this.#status
  pace = new Pace(" of this step")
  #drawer
  #awaits = false  // a workspace is being opened

  /**
   * @param {HTMLElement} host of the buttons
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/settings_drawer.js").Drawer} drawer
   */
  constructor(host, workspace, server, drawer) {
    super()
    this.#workspace = workspace
    this.#server = server
    this.#drawer = drawer
    host.append(h("div", { class: "run-bar", role: "group", "aria-label": "Run" }, h("div", { class: "run-split" }, this.#run, this.#menu.node), this.#stop, drawer.toggle))
    this.#menu.on("chosen", choice => { this.#title.textContent = CHOICES[choice].button; this.start() })
    this.#menu.on("encode", () => this.encode())
    drawer.on("changed", () => { if (this.#status.dataset.mood === "bad") this.#say("") })
    workspace.on("opened", () => { if (!this.#job) this.#say("") })  // the message was about another document
    workspace.on("typing", () => { if (this.#status.dataset.mood === "bad") this.#say("") })
    document.addEventListener("keydown", event => {
      if (event.defaultPrevented) return
      if (pressed(event, "run")) { event.preventDefault(); this.start() }
      if (!pressed(event, "stop") || document.querySelector("dialog[open]")) return
      if (this.#job) this.stop()
      else if (drawer.isOpen) drawer.close()
    })
  }

  get running() { return this.#job !== null }

  /** Sets the saved choice of what to run. @param {import("./run_menu.js").Choice} choice */
  choose(choice) { if (!this.#job) this.#menu.choose(choice) }

  /** Answers the prompt by the current choice. */
  start() { return this.#begin(() => this.#answer(this.#menu.choice)) }

  /** Encodes every module of the schema; the button still answers. */
  encode() { return this.#begin(() => this.#encode()) }

  /** @param {() => Promise<unknown>} work */
  async #begin(work) {
    if (this.#job || this.#awaits) return
    // Wait for the workspace that is being opened.
    this.#awaits = true
    while (this.#workspace.opening) await this.#workspace.opening
    this.#awaits = false
    this.emit("start")
    const refusal = this.#drawer.refusal()
    return refusal ? this.#say(`Nothing was run. ${refusal}`, "bad") : work()
  }

  /** Times the first token of a run again. @param {number} number */
  timeAgain(number) { return this.#begin(() => this.#follow(job => this.#server.ask("time_again", { ...this.#request(job.key), mode: "both", number }))) }

  /** @param {Api.RunFrame["mode"]} mode */
  #answer(mode) { return this.#follow(job => this.#server.ask("run_prompt", { ...this.#request(job.key), mode })) }

  /** @param {(job: Job<Api.RunFrame>) => Promise<import("../base/jobs.js").JobReply<Api.RunFrame>>} ask */
  async #follow(ask) {
    /** @type {Job<Api.RunFrame>} */
    const job = new Job(this.#server)
    this.#job = job
    if (!await this.#sound(["schema", "prompt"])) return
    this.#say("Running…")
    /** @type {Api.RunFrame | null} */
    let last = null
    job.on("state", ({ result }) => {
      if (!result) return
      if (last?.encoding.state === "working" && result.encoding.state === "done") this.#workspace.remeasure()
      this.#progress(last = result)
    })
    const end = await job.followed(ask(job))
    if (end.result) return this.#finish(end.result)
    if (last) this.emit("frame", cutOff(last))
    if (end.away) this.#refuse(last ? `${WENT} The partial answer is shown; run again when it is back.` : GONE)
    else this.#refuse((end.fault || end.error) ?? AWAY)
  }

  async #encode() {
    /** @type {Job<Api.EncodeReport>} */
    const job = new Job(this.#server)
    this.#job = job
    if (!await this.#sound(["schema"])) return
    job.on("state", ({ what, done, total }) => { if (!this.#stop.disabled) this.#encoding(what, done, total) })
    const end = await job.asked(this.#server.ask("encode_all", this.#request(job.key)))
    this.emit("encoded")
    if (end.result) this.#encoded(end.result)
    else if (end.fault === STOPPED) { this.#refuse("Stopped. Encoded modules are stored.", "") }
    else this.#refuse((end.fault || end.error) ?? `${AWAY} Encoded modules are stored; encode again when it is back.`)
  }

  /** @param {string} key */
  #request(key) {
    const { origin, settings } = this.#workspace
    return { key, origin, settings, ...this.#workspace.texts() }
  }

  /** Whether documents can run; shows the reason if not. @param {import("../documents/workspace.js").Kind[]} kinds */
  async #sound(kinds) {
    this.#buttons()
    if (this.#server.away) return this.#refuse(GONE)
    if (!this.#workspace.countsTokens && !await this.#model()) return false
    this.#say("Checking the documents…")
    const faults = await this.#workspace.faults()
    // A module that is too long for the model does not matter if the prompt omits it.
    const fault = faults?.find(({ severity, kind, counted }) => severity === "error" && kinds.includes(kind) && !(kind === "schema" && counted && kinds.length > 1))
    if (!faults) this.#refuse(GONE)
    else if (fault) this.#refuseFor(fault)
    else await this.#workspace.save()
    return faults !== null && !fault
  }

  stop() {
    if (!this.#job) return
    if (this.#unwait) return this.#unwait()
    this.#say("Stopping…")
    if (document.activeElement === this.#stop) this.#run.focus()
    this.#stop.disabled = true
    this.#job.stop()
  }

  /** @param {Api.RunFrame} frame */
  #progress(frame) {
    this.emit("frame", frame)
    if (frame.state !== "working" || this.#stop.disabled) return
    const { encoding } = frame
    if (encoding.state === "working") return encoding.waits ? this.#say(WAITING) : this.#encoding(encoding.working, encoding.done, encoding.total)
    const side = frame.order.find(name => ["working", "streaming"].includes(frame.sides[name].state))
    if (frame.order.some(name => frame.sides[name].waits)) return this.#say(WAITING)
    if (frame.repeat > 1) {
      this.pace.note("timings", frame.repeat, frame.timings + 1)
      return this.#say(`Timing again, ${frame.repeat} of ${frame.timings}…`)
    }
    if (side) {
      const { state, done, total, tokens } = frame.sides[side], rival = frame.sides[side === "cached" ? "uncached" : "cached"]
      if (state !== "streaming") this.pace.note(side, done, total)
      else if (rival.state === "done") this.pace.note(`${side} answer`, tokens.generated ?? 0, Math.max(rival.tokens.generated ?? 0, tokens.generated ?? 0))
      else this.pace.note(`${side} answer`, tokens.generated ?? 0, frame.settings.max_new_tokens, "at most")
    }
    this.#say(side ? `Running the ${side} side…` : "Running…")
  }

  /** @param {Api.RunFrame} frame */
  #finish(frame) {
    this.#job = null
    this.#buttons()
    const ratio = frame.comparison.ttft_speedup
    const warnings = frame.warnings.join(" ")
    const drawn = frame.settings.temperature > 0, differing = drawn ? null : frame.difference?.differing
    const chance = ` At temperature ${frame.settings.temperature} texts are sampled and differ by chance: compare the first token.`
    const texts = drawn ? chance : differing == null ? "" : differing ? ` ${plural(differing, "word")} of the texts differ${differing === 1 ? "s" : ""}.` : " The texts are the same."
    const unclear = overlapping(frame.comparison), sooner = frame.reuse?.scope === "" ? "Not read from the cache this time." : unclear ? "No clear difference in time." : ratio ? `First token ${times(ratio).join(" ")} with the cache.` : ""
    const summary = warnings || (sooner && sooner + texts)
    if (frame.state === "failed") this.#say(frame.message, "bad")
    else this.#say(frame.state === "stopped" ? `Stopped${warnings ? "." : "; computed segments are stored."} ${summary}` : `Done. ${summary}`, warnings ? "warn" : "")
    this.#status.dataset.of = "run"
    this.emit("ended", frame)
  }

  /** Waits for the model; returns whether it loaded before the user cancelled. */
  async #model() {
    this.#say("The model is still loading: this starts once it is loaded.")
    /** @type {"came" | "stopped" | "gone"} */
    const end = await new Promise(resolve => {
      this.#unwait = () => resolve("stopped")
      this.#workspace.once("countable", () => resolve("came"))
      this.#server.once("away", () => resolve("gone"))
    })
    this.#unwait = null
    if (end === "stopped") this.#refuse("Stopped before the model was loaded; nothing was run.", "")
    if (end === "gone") this.#refuse(GONE)
    return end === "came"
  }

  /** @param {string} what @param {number} done @param {number} total */
  #encoding(what, done, total) {
    const words = what === "encoded" ? "Writing segments" : what ? `${what[0].toUpperCase()}${what.slice(1)}` : "Looking for encoded segments"
    this.pace.note(words.split(" ")[0], done, total)
    this.#say(`${words}…${total > 1 ? ` ${tally(what, done, total)}` : ""}`)
  }

  /** @param {Api.EncodeReport} report */
  #encoded({ encoded, reused, elsewhere, tokens, seconds, kept, total, warnings }) {
    const there = [reused && `${count(reused)} were stored already`, elsewhere && `${count(elsewhere)} came from another program`].filter(Boolean).join(", ")
    const made = encoded ? `${plural(encoded, "segment")}, ${plural(tokens, "token")}, encoded in ${milliseconds(1000 * seconds)}` : there ? "Nothing was left to encode" : "There is nothing to encode"
    const lacking = kept < total ? ` ${count(total - kept)} of ${plural(total, "segment")} are not on disk: the budget of the cache is too small, or the disk is full.` : ""
    const mood = warnings.length || lacking ? "warn" : ""
    const told = !encoded && !elsewhere && reused > 1 ? `All ${plural(reused, "segment")} were already stored` : `${made}${there ? `; ${there}` : ""}`
    this.#refuse(`Done. ${told}.${lacking} ${warnings.join(" ")}`.trim(), mood)
  }

  /** @param {import("../documents/workspace.js").PlacedFault} fault */
  #refuseFor(fault) {
    const { kind, line, column, code, message, from } = fault
    const show = () => { this.emit("fault", fault); this.#workspace.editors[kind].reveal(from) }
    this.#refuse(h("span", {}, `${KINDS[kind]}, line ${line}, column ${column}: ${code}: ${message} `,
      h("button", { type: "button", class: "link", onclick: show }, "Go there")))
    show()
  }

  /** @param {string | Node} words */
  #refuse(words, mood = "bad") {
    this.#job = null
    this.#buttons()
    this.#say(words, mood)
  }

  /** @param {string | Node} words */
  #say(words, mood = "") {
    if (typeof words === "string" && this.#status.textContent === words) return
    this.#status.dataset.mood = mood
    delete this.#status.dataset.of
    this.#status.replaceChildren(words)
  }

  #buttons() {
    // Disabled buttons lose the focus, so use aria-disabled.
    this.#run.setAttribute("aria-disabled", String(this.#job !== null))
    this.#menu.disabled = this.#job !== null
    if (!this.#job && document.activeElement === this.#stop) this.#run.focus()
    this.#stop.disabled = this.#job === null
    if (this.#job) this.pace.start()
    else this.pace.stop()
  }
}
