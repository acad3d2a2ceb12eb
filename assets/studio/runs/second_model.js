// Runs the prompt of a stored run on another model, or on a server of this machine, and shows both runs as a comparison.
import { bytes, debounce, h, refill } from "../base/dom.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"
import { distinct, shortName } from "../shell/model_facts.js"

const LOOK_AFTER_MS = 300

/** @type {Record<Api.ModelLook["verdict"], string>} */
const MOODS = { fits: "good", tight: "warn", apart: "warn", unknown: "warn", refused: "bad" }

/** @typedef {Api.WantedModel} Choice */

class SecondModel {
  #studio
  #server
  #id
  #question = 0
  /** @type {Choice} */
  #choice = { name: "" }
  /** @type {Api.ModelLook | null} */
  #look = null
  #loaded = ""
  /** @type {Job<Api.ComparedModels> | null} */
  #job = null
  #quick = h("div", { class: "second-choices" })
  #name = h("input", { type: "text", id: "second-name", spellcheck: "false", autocomplete: "off", placeholder: "/path/to/model.gguf  or  OWNER/NAME", "aria-describedby": "second-verdict" })
  #verdict = h("p", { id: "second-verdict", role: "status", class: "verdict" })
  #url = h("input", { type: "text", id: "second-url", spellcheck: "false", autocomplete: "off", placeholder: "http://127.0.0.1:8080/v1" })
  #key = h("input", { type: "password", id: "second-key", autocomplete: "off" })
  #model = h("input", { type: "text", id: "second-model", spellcheck: "false", autocomplete: "off", list: "second-models" })
  #models = h("datalist", { id: "second-models" })
  #local = h("div", { class: "second-fields" }, this.#quick, field("A folder or a GGUF file on this machine, or a downloaded Hugging Face id", this.#name), this.#verdict)
  #remote = h("div", { class: "second-fields", hidden: true },
    field("Base URL of its OpenAI-compatible API", this.#url),
    field("API key, if it needs one. The studio does not store it.", this.#key),
    field("Model", this.#model), this.#models, h("p", { class: "soft" }, "The studio sends the prompt twice: the second request may use the server's own cache."))
  #status = h("p", { role: "status", class: "second-status" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress" })
  #begin = h("button", { type: "submit", class: "primary", disabled: true }, "Compare")
  #stop = h("button", { type: "button", hidden: true, onclick: () => { this.#say("Stopping…"); this.#job?.stop() } }, "Stop")
  #cancel = h("button", { type: "button", onclick: () => this.#dialog.close() }, "Cancel")
  #fields
  #dialog

  /** @param {import("../studio.js").Studio} studio @param {string} id the first run @param {string} title */
  constructor(studio, id, title) {
    this.#studio = studio
    this.#server = studio.server
    this.#id = id
    const kind = (/** @type {string} */ value, /** @type {string} */ words) => h("label", { class: "check" }, h("input", { type: "radio", name: "second-kind", value, checked: value === "local", onchange: () => this.#offer(value === "local") }), words)
    this.#fields = h("fieldset", { class: "second-form" },
      h("div", { class: "second-kinds", role: "radiogroup", "aria-label": "Where the other model runs" }, kind("local", "A model in the studio"), kind("server", "A server on this machine")),
      this.#local, this.#remote)
    this.#dialog = h("dialog", { class: "question second-model", "aria-label": "Compare with another model", onclose: () => this.#dialog.remove(), oncancel: (/** @type {Event} */ event) => { if (this.#job) { event.preventDefault(); this.#job.stop() } } },
      h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.#start() } },
        h("h2", {}, "Compare with another model"),
        h("p", {}, `The other model answers the prompt of ${title} with the same settings. The result is stored as a run.`),
        this.#fields, this.#status, this.#meter,
        h("div", { class: "buttons" }, this.#begin, this.#stop, this.#cancel)))
    const soon = debounce(LOOK_AFTER_MS, () => this.#judge())
    this.#name.addEventListener("input", () => { this.#choice = { name: this.#name.value.trim() }; this.#unjudged(); soon() })
    for (const input of [this.#url, this.#model]) input.addEventListener("input", () => this.#ready())
    for (const input of [this.#url, this.#key]) input.addEventListener("change", () => this.#list())
    studio.hosts.shell.append(this.#dialog)
    this.#dialog.showModal()
    this.#open()
  }

  async #open() {
    const state = await this.#server.ask("models_state", {})
    if (state.away || state.error != null) return this.#say(state.error ?? AWAY, "bad")
    this.#loaded = state.loaded?.model ?? ""
    const titles = distinct(state.recent.map(({ name }) => name))
    /** @type {[Choice, string][]} */
    const choices = [[{ name: "demo" }, "demo (bundled)"],
      ...state.catalogue.filter(({ here }) => here).map(({ name, title }) => /** @type {[Choice, string]} */ ([{ name }, title])),
      ...state.recent.map((choice, at) => /** @type {[Choice, string]} */ ([/** @type {Choice} */ (choice), titles[at]]))]
    const loaded = state.wanted.name
    refill(this.#quick, h("span", { class: "soft" }, "Choose a model"), ...choices.map(([choice, title]) => h("button", { type: "button", class: "choice", "data-key": choice.name, title: choice.name, "aria-pressed": "false", onclick: () => this.#choose(choice) }, choice.name === loaded ? `${title} (loaded)` : title)))
  }

  /** @param {Choice} choice */
  #choose(choice) {
    this.#choice = choice
    this.#name.value = choice.name
    this.#unjudged()
    this.#judge()
  }

  /** @param {boolean} local */
  #offer(local) {
    this.#local.hidden = !local
    this.#remote.hidden = local
    this.#say("")
    this.#ready()
  }

  get #isLocal() { return !this.#local.hidden }

  #ready() {
    this.#begin.disabled = this.#job !== null || (this.#isLocal ? !this.#look || this.#look.verdict === "refused" || this.#look.fetch_bytes > 0 : !this.#url.value.trim() || !this.#model.value.trim())
  }

  #unjudged() {
    this.#question++
    this.#look = null
    this.#verdict.textContent = ""
    this.#ready()
  }

  async #judge() {
    const question = this.#question
    for (const button of this.#quick.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.key === this.#choice.name))
    if (!this.#choice.name) return
    const answer = await this.#server.ask("look_at_model", { ...this.#choice })
    if (question !== this.#question) return
    const { look = null, sentence = answer.error ?? AWAY } = answer
    this.#look = look
    this.#verdict.dataset.mood = look ? MOODS[look.verdict] : "bad"
    this.#verdict.textContent = look?.fetch_bytes ? `Download it first on the Models page (${bytes(look.fetch_bytes)}).`
      : look?.verdict === "apart" ? `Both models do not fit into memory together. ${shortName(this.#loaded)} is unloaded for the run, and loaded again afterwards.`
        : sentence
    this.#ready()
  }

  // Offers the names of the server's models.
  async #list() {
    if (!this.#url.value.trim()) return
    const { models, error } = await this.#server.ask("server_models", { base_url: this.#url.value, api_key: this.#key.value })
    this.#say(error ?? "", error ? "bad" : "")
    this.#models.replaceChildren(...(models ?? []).map(name => h("option", { value: name })))
    if (models?.length && !this.#model.value) this.#model.value = models[0]
    this.#ready()
  }

  async #start() {
    if (this.#begin.disabled) return
    /** @type {Job<Api.ComparedModels>} */
    const job = new Job(this.#server), local = this.#isLocal, { name, ...options } = this.#choice
    this.#job = job
    this.#ready()
    this.#fields.disabled = this.#cancel.hidden = true
    this.#stop.hidden = false
    this.#stop.focus()
    job.on("state", ({ what, done, total, result }) => this.#progress(what, done, total, result?.run ?? null))
    const begun = local
      ? this.#server.ask("compare_model", { key: job.key, run: this.#id, name, ...options, apart: this.#look?.verdict === "apart" })
      : this.#server.ask("compare_server", { key: job.key, run: this.#id, base_url: this.#url.value, api_key: this.#key.value, model: this.#model.value })
    const end = await job.asked(begun)
    this.#job = null
    if (local) dispatchEvent(new Event("studio-model"))
    this.#studio.emit("stored")
    const { result } = end
    if (result?.second && !end.fault) {
      this.#dialog.close()
      return this.#studio.shell.go("runs", [result.first, result.second].join("+"))
    }
    this.#fields.disabled = this.#cancel.hidden = false
    this.#stop.hidden = this.#meter.hidden = true
    this.#ready()
    const staying = local && this.#loaded ? ` ${shortName(this.#loaded)} answers as before.` : ""
    if (end.fault === STOPPED) this.#say(`Stopped.${staying}`)
    else this.#say(`${(end.fault || end.error || AWAY).replace(/[^.!?]$/, "$&.")}${end.away ? "" : staying}`, "bad")
    this.#begin.focus()
  }

  /** @param {string} what @param {number} done @param {number} total @param {Api.RunFrame | null} run */
  #progress(what, done, total, run) {
    const side = run?.order.find(name => ["working", "streaming"].includes(run.sides[name].state)), again = run && run.state !== "working"
    this.#meter.hidden = !total
    if (total) Object.assign(this.#meter, { max: total, value: done })
    const loading = what && (!run || again)
    if (loading) this.#say(`${what[0].toUpperCase()}${what.slice(1)}${total ? `: ${bytes(done)} of ${bytes(total)}` : "…"}`)
    else if (run?.encoding.state === "working") this.#say("Encoding the modules…")
    else this.#say(side && run ? `Running the ${side} side${run.sides[side].tokens.generated || run.sides[side].text ? `: ${run.sides[side].text.slice(-80)}` : "…"}` : "Running…")
    if (run && !again) this.#meter.hidden = true
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
  }
}

/** @param {string} label @param {HTMLElement} input */
const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input)

/** Opens the dialog for a stored run. @param {import("../studio.js").Studio} studio @param {string} id @param {string} title */
export const compareWithModel = (studio, id, title) => new SecondModel(studio, id, title)
