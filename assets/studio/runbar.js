// Run, stop, and the settings of a run.
import { h } from "./dom.js"

const KINDS = { schema: "Schema", prompt: "Prompt" }
const SCOPES = {
  anchored: "anchored: a module sees the text that is always before it",
  isolated: "isolated: a module sees only itself",
  scaffold: "scaffold: a module sees all of this prompt that is before it",
}
const PLACEMENTS = { compact: "compact: without gaps", schema: "schema: as the schema reserves them" }
const CONVERSATION = { memory: "memory: held while the studio runs", disk: "disk: stored like the schema's text" }
const REPAIRS = ["none", "link:2", "link:8", "blend:0.15", "query:0.15"]
const DEFAULTS = {
  max_new_tokens: 128, temperature: 0, top_p: 1, top_k: 0, repetition_penalty: 1, stop: "", seed: 0, repeats: 1,
  scope: "anchored", repair: "none", placement: "compact", conversation: "memory",
}

/** Events: "start" (detail: what the server needs to run), "frame" (detail: one frame of a run). */
export class RunBar extends EventTarget {
  #workspace
  #server
  #trigger
  #key = null
  #latest = null
  #run = h("button", { type: "button", class: "primary", id: "run", onclick: () => this.start() }, "Run", h("kbd", {}, "Ctrl ↵"))
  #stop = h("button", { type: "button", id: "stop", disabled: true, onclick: () => this.stop() }, "Stop", h("kbd", {}, "Esc"))
  #status = h("div", { class: "run-status", role: "status", "aria-live": "polite" })
  #drawer
  #fields = {}

  constructor(host, workspace, server, trigger) {
    super()
    this.#workspace = workspace
    this.#server = server
    this.#trigger = trigger
    this.#drawer = h("form", { class: "drawer", id: "run-settings", hidden: true, onsubmit: event => event.preventDefault() })
    const toggle = h("button", { type: "button", "aria-expanded": "false", "aria-controls": "run-settings", onclick: () => {
      this.#drawer.hidden = !this.#drawer.hidden
      toggle.setAttribute("aria-expanded", String(!this.#drawer.hidden))
    } }, "Settings")
    host.append(h("div", { class: "run-bar" }, this.#run, this.#stop, toggle, this.#status), this.#drawer)
    workspace.addEventListener("opened", () => {
      this.#showSettings()
      if (!this.#key) this.#say("")  // it was said of another document
    })
    workspace.addEventListener("typing", () => { if (this.#status.dataset.mood === "bad") this.#say("") })
    document.addEventListener("keydown", event => {
      if (event.defaultPrevented) return
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") { event.preventDefault(); this.start() }
      if (event.key === "Escape" && this.#key && !document.querySelector("dialog[open]")) this.stop()
    })
  }

  limits({ limits, scopes, placements }) {
    const choice = (names, words) => h("select", {}, ...names.map(name => h("option", { value: name }, words[name] ?? name)))
    const repairs = h("datalist", { id: "repairs" }, ...REPAIRS.map(value => h("option", { value })))
    const number = (name, label, attributes) => this.#field(name, label, h("input", { type: "number", required: true, ...attributes }))
    this.#drawer.replaceChildren(
      number("max_new_tokens", "New tokens, at most", { min: "1", max: String(limits.max_new_tokens), step: "1" }),
      number("temperature", "Temperature", { min: "0", max: "5", step: "0.1" }),
      number("top_p", "Top-p", { min: "0.01", max: "1", step: "0.01" }),
      number("top_k", "Top-k (0 is all)", { min: "0", step: "1" }),
      number("repetition_penalty", "Repetition penalty", { min: "0.01", max: "10", step: "0.01" }),
      number("seed", "Seed", { min: "0", step: "1" }),
      this.#field("stop", "Stop before (\\n is a line break)", h("input", { type: "text" })),
      number("repeats", "Repeats (median)", { min: "1", max: String(limits.repeats), step: "1" }),
      this.#field("repair", "Repair", h("input", { type: "text", required: true, list: "repairs", title: "none, link:K, blend:R or query:R", pattern: "none|link:[0-9]+|(blend|query):(0|1|0?[.][0-9]+|1[.]0*)" })),
      this.#field("placement", "Placement", choice(placements, PLACEMENTS), "wide"),
      this.#field("scope", "Scope", choice(scopes, SCOPES), "wide"),
      this.#field("conversation", "Earlier turns of the prompt", choice(Object.keys(CONVERSATION), CONVERSATION), "wide"),
      repairs,
    )
    this.#showSettings()
  }

  get running() { return this.#key !== null }

  async start() {
    if (this.#key) return
    const key = crypto.getRandomValues(new Uint32Array(2)).join("-")
    this.#key = key
    this.#buttons()
    this.#say("Checking the documents…")
    const wrong = Object.entries(this.#fields).find(([, field]) => !field.checkValidity())
    const faults = await this.#workspace.faults()
    // A module that is too long for the model does not matter to a prompt that leaves it out.
    const fault = faults?.find(({ severity, kind, counted }) => severity === "error" && !(kind === "schema" && counted))
    if (!faults) return this.#refuse("The studio's server does not answer, so nothing was run. Your text is kept.")
    if (fault) return this.#refuseFor(fault)
    if (wrong) {
      this.#drawer.hidden = false
      wrong[1].reportValidity()
      return this.#refuse("A setting is out of its range, so nothing was run.")
    }
    await this.#workspace.save()
    this.#say("Running…")
    const { origin, settings } = this.#workspace
    this.#trigger("run", { key, origin, settings, ...this.#workspace.texts() })
    this.#watchStart(key)
  }

  stop() {
    if (!this.#key) return
    this.#say("Stopping…")
    this.#stop.disabled = true
    this.#server.ask("stop_run", { key: this.#key })
  }

  /** One frame from the server. */
  take(frame) {
    if (frame.key === this.#key) this.#latest = Date.now()
    if (frame.state === "refused") {
      if (frame.key === this.#key) this.#refuse(frame.message)
      return
    }
    this.dispatchEvent(new CustomEvent("frame", { detail: frame }))
    if (frame.key !== this.#key) return
    if (frame.state === "working") this.#sayProgress(frame)
    else this.#finish(frame)
  }

  #finish(frame) {
    this.#key = null
    this.#buttons()
    const ratio = frame.comparison.ttft_speedup
    const encoded = frame.sides.cached.timeline_ms.encode
    const summary = encoded ? "Modules were computed in this run and are kept: run again to use them."
      : ratio ? `First token ${ratio.toFixed(1)} times as fast with the cache.` : ""
    if (frame.state === "failed") this.#say(frame.message, "bad")
    else this.#say(frame.state === "stopped" ? `Stopped; what was computed stays. ${summary}` : `Done. ${summary}`)
    this.#workspace.remeasure()
  }

  #sayProgress(frame) {
    if (this.#stop.disabled) return
    const side = frame.order.find(name => ["working", "streaming"].includes(frame.sides[name].state))
    const of = frame.repeats > 1 && frame.repeat > 1 ? `Timing again, ${frame.repeat} of ${frame.repeats}…` : null
    this.#say(of ?? (side ? `Running the ${side} side…` : "Running…"))
  }

  // A queued run gets its first frame when the one before it ends; a server that went away never answers.
  #watchStart(key) {
    const started = Date.now()
    this.#latest = started
    const timer = setInterval(async () => {
      if (this.#key !== key) return clearInterval(timer)
      if (this.#latest === started && Date.now() - started > 2000) this.#say("Waiting for a run in another tab to end…")
      const lost = this.#server.away || (Date.now() - this.#latest > 5000 && (await this.#server.ask("count_tokens", { text: "" })).away)
      if (lost && this.#key === key) this.#refuse("The studio's server went away during the run. What came is kept; run again when it is back.")
    }, 1000)
  }

  #refuseFor({ kind, line, column, code, message, from }) {
    const show = () => this.#workspace.editors[kind].reveal(from)
    this.#refuse(h("span", {}, `${KINDS[kind]}, line ${line}, column ${column}: ${code}: ${message} `,
      h("button", { type: "button", class: "link", onclick: show }, "Go there")))
    show()
  }

  #refuse(words) {
    this.#key = null
    this.#buttons()
    this.#say(words, "bad")
  }

  #say(words, mood = "") {
    if (typeof words === "string" && this.#status.textContent === words) return
    this.#status.dataset.mood = mood
    this.#status.replaceChildren(words)
  }

  #buttons() {
    this.#run.disabled = this.#key !== null
    this.#stop.disabled = this.#key === null
  }

  /** Sets one setting from elsewhere on the page. */
  set(name, value) {
    this.#workspace.change({ [name]: value })
    this.#showSettings()
  }

  #field(name, label, input, size = "") {
    input.id = `setting-${name}`
    this.#fields[name] = input
    input.addEventListener("change", () => {
      if (input.checkValidity()) this.#workspace.change({ [name]: input.type === "number" ? Number(input.value) : input.value })
    })
    return h("div", { class: `field ${size}` }, h("label", { for: input.id }, label), input)
  }

  #showSettings() {
    for (const [name, input] of Object.entries(this.#fields)) input.value = this.#workspace.settings[name] ?? DEFAULTS[name]
  }
}
