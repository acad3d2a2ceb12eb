// The loaded model, and the switch to another: facts, memory, loading progress, and the schema's size.
import { bytes, count, debounce, h, plural, refill } from "../base/dom.js"
import { AWAY, Job, STOPPED } from "../base/jobs.js"
import { distinct, knownTable, loadedFacts, lookFacts, schemaFacts, shortName } from "../shell/model_facts.js"
import { confirmed } from "../base/confirm.js"

const LOOK_AFTER_MS = 300
const WINDOW_MS = 10_000  // window for measuring a rate

/**
 * @typedef {Omit<Required<Api.WantedModel>, "name">} Options
 * @typedef {keyof Options} OptionName
 */

/** @type {[OptionName, string][]} */
const OPTIONS = [["device", "Device"], ["dtype", "Number format"], ["quantize", "Rounding"], ["weights", "Weights in memory"]]

/** @type {Record<Api.ModelLook["verdict"], string>} */
const MOODS = { fits: "good", tight: "warn", apart: "warn", unknown: "warn", refused: "bad" }

class ModelsPage {
  #studio
  #server
  /** @type {Api.ModelsState | null} */
  #state = null
  /** @type {Api.KnownRow[]} */
  #known = []
  /** @type {Map<string, string>} */
  #tiers = new Map()
  /** @type {Job<Api.Switched> | null} */
  #job = null
  #question = 0
  /** @type {Api.ModelLook | null} */
  #found = null
  #status = h("p", { class: "models-status", role: "status", "aria-live": "polite" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress of the loading" })
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#job?.stop() }, "Stop")
  #loaded = h("div", { class: "loaded" }, h("p", { class: "empty" }, "The model is loading…"))
  #quick = h("div", { class: "quick" })
  #name = h("input", { type: "text", id: "model-name", spellcheck: "false", autocomplete: "off", autocapitalize: "off", placeholder: "/path/to/model.gguf  or  OWNER/NAME  or  OWNER/NAME:FILE.gguf", "aria-describedby": "model-verdict" })
  /** @type {Map<OptionName, HTMLSelectElement>} */
  #selects = new Map()
  #options = h("div", { class: "model-options" })
  #verdict = h("p", { class: "verdict", id: "model-verdict", role: "status" })
  #look = h("div", { class: "look" })
  #ask = h("button", { type: "button", hidden: true, onclick: () => this.#judge(true) }, "Look up on huggingface.co")
  #running = h("fieldset", { class: "running", hidden: true })
  #load = h("button", { type: "submit", class: "primary", disabled: true }, "Load")
  #table = h("div", {})
  #schema = h("div", { class: "schema-sizes" })
  #tokens = 0

  /** @param {import("../studio.js").Studio} studio */
  constructor(studio) {
    this.#studio = studio
    this.#server = studio.server
    const soon = debounce(LOOK_AFTER_MS, () => this.#judge())
    this.#name.addEventListener("input", () => { this.#unjudged(); soon() })
    const choice = (/** @type {string} */ value, /** @type {string} */ words) => h("label", { class: "check" }, h("input", { type: "radio", name: "model-running", value, checked: value === "finish" }), words)
    this.#running.append(h("legend", {}), choice("finish", "let them finish on the old model"), choice("stop", "stop them"))
    studio.hosts.models.append(
      h("header", { class: "models-head" }, h("h2", {}, "Models"), this.#status, this.#meter, this.#stop),
      h("section", { class: "card", "aria-label": "Loaded model" }, h("h3", {}, "Loaded model"), this.#loaded),
      h("section", { class: "card", "aria-label": "Another model" }, h("h3", {}, "Another model"),
        h("form", { class: "choose", novalidate: true, onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.#begin() } },
          this.#quick,
          h("div", { class: "field" }, h("label", { for: this.#name.id }, "A folder or GGUF file on this machine, or a Hugging Face id"), this.#name),
          this.#options, h("div", { class: "judged" }, this.#verdict, this.#ask), this.#look, this.#running, h("div", { class: "load-row" }, this.#load))),
      h("section", { class: "card", "aria-label": "Size of the open schema" }, h("h3", {}, "The open schema in this model"), this.#schema),
      h("section", { class: "card", "aria-label": "Size of one token" }, h("h3", {}, "Size of one token"),
        h("p", { class: "soft" }, "Keys and values of one token in all layers, computed from the models' configurations: in fp16, or in the loaded model's own format. The paper's table 2 counts keys and values for every head. Models with shared heads need less, except Falcon, whose code repeats them."),
        this.#table))
  }

  /** @param {Api.Start} start */
  begin({ tiers }) { this.#tiers = new Map(tiers.map(({ name, label }) => [name, label])) }

  async refresh() {
    const answer = await this.#server.ask("models_state", {})
    if (answer.away || answer.error != null) return this.#say(answer.error ?? AWAY, "bad")
    this.#state = answer
    if (answer.loaded) this.#loaded.replaceChildren(...loadedFacts(answer.loaded))
    if (answer.options && !this.#selects.size) this.#offer(answer.options, answer.wanted)
    this.#offerQuick()
    this.#sayRunning()
    const { switching } = answer
    if (switching && !this.#job) this.#follow(new Job(this.#server, switching.key), Promise.resolve(switching))
    if (this.#name.value && !this.#job) this.#judge()
    await this.#measure()
  }

  // The schema's tokens, and their size in well-known models.
  async #measure() {
    const { workspace } = this.#studio
    if (!this.#state?.loaded) return
    const sizes = await this.#server.ask("schema_sizes", { schema: workspace.basis(), origin: workspace.origin })
    if (sizes.away) return
    this.#tokens = sizes.error == null ? sizes.tokens : 0
    this.#schema.replaceChildren(...(sizes.error == null ? schemaFacts(sizes, this.#tiers) : [h("p", { class: "empty" }, sizes.error)]))
    if (!this.#known.length) this.#known = (await this.#server.ask("known_models", {})).models ?? []
    this.#table.replaceChildren(knownTable(this.#known, this.#state.loaded, this.#tokens))
  }

  /** @param {Api.ModelOptions} options @param {Api.ModelChoice} wanted */
  #offer(options, wanted) {
    for (const [name, label] of OPTIONS) {
      const select = h("select", { id: `model-${name}` }, ...options[name].map(({ value, meaning, why_not: whyNot }) =>
        h("option", { value, disabled: whyNot !== "", title: whyNot || meaning, selected: wanted[name] === value }, whyNot ? `${value} (not here)` : value)))
      const hint = h("p", { class: "hint", id: `model-${name}-hint` })
      const tell = () => { hint.textContent = options[name].find(({ value }) => value === select.value)?.meaning ?? "" }
      select.setAttribute("aria-describedby", hint.id)
      select.addEventListener("change", () => { tell(); this.#judge() })
      select.addEventListener("set", tell)
      tell()
      this.#selects.set(name, select)
      this.#options.append(h("div", { class: "field" }, h("label", { for: select.id }, label), select, hint))
    }
    const absent = options.device.filter(({ why_not: whyNot }) => whyNot).map(({ value, why_not: whyNot }) => `${value}: ${whyNot}.`)
    if (absent.length) this.#options.after(h("p", { class: "soft devices" }, absent.join(" ")))
  }

  // Choices without typing: the catalogue, the bundled model, recent models, random weights.
  #offerQuick() {
    const { recent = [], shapes = [], catalogue = [] } = this.#state ?? {}
    const titles = distinct(recent.map(({ name }) => name))
    const button = (/** @type {Api.ModelChoice | {name: string}} */ choice, title = shortName(choice.name)) => h("button", { type: "button", class: "choice", "data-key": choice.name, title: choice.name,
      "aria-pressed": String(this.#name.value.trim() === choice.name), onclick: () => this.#choose(choice) }, title)
    const group = (/** @type {string} */ title, /** @type {Node[]} */ buttons) => buttons.length ? h("div", { class: "quick-group", role: "group", "aria-label": title }, h("span", { class: "soft" }, title), ...buttons) : null
    refill(this.#quick,
      group("Real", catalogue.map(({ name, title, about, licence, format, bytes: all, here }) =>
        h("span", {}, button({ name }, title), h("span", { class: "soft" }, ` ${about} · ${format} · ${licence} `),
          here ? null : h("button", { type: "button", "data-key": `fetch ${name}`, onclick: () => this.#fetch(name) }, `Download ${bytes(all)} and load`)))),
      group("Bundled", [button({ name: "demo" })]),
      group("Recent", recent.map((choice, at) => h("span", { class: "recent" }, button(choice, specialName(choice, titles[at])),
        h("button", { type: "button", class: "quiet", "aria-label": `Forget ${choice.name}`, title: "Remove it from this list; its files remain", onclick: () => this.#forget(choice.name) }, "✕")))),
      group("Random weights, for timing", shapes.map(name => button({ name }, name.replace("random:", "")))))
  }

  /** @param {Api.ModelChoice | {name: string}} choice */
  #choose(choice) {
    this.#name.value = choice.name
    for (const [name, select] of this.#selects) {
      if (name in choice) select.value = /** @type {Api.ModelChoice} */ (choice)[name]
      select.dispatchEvent(new Event("set"))
    }
    this.#offerQuick()
    return this.#judge()
  }

  /** Chooses a model of the catalogue and downloads it. @param {string} name */
  async #fetch(name) {
    await this.#choose({ name })
    return this.#begin()
  }

  /** @param {string} name */
  async #forget(name) {
    const { recent } = await this.#server.ask("forget_model", { name })
    if (!recent || !this.#state) return
    this.#state = { ...this.#state, recent }
    this.#offerQuick()
    this.#name.focus()
  }

  /** @returns {Api.WantedModel} */
  get #wanted() {
    const chosen = Object.fromEntries([...this.#selects].map(([name, select]) => [name, select.value]))
    return { name: this.#name.value.trim(), .../** @type {Partial<Options>} */ (chosen) }
  }

  // Removes facts about another name or other options.
  #unjudged() {
    this.#question++
    this.#found = null
    this.#load.disabled = true
    this.#load.textContent = "Load"
    this.#ask.hidden = true
    this.#look.replaceChildren()
    this.#verdict.textContent = ""
  }

  /** Looks up the model's name. @param {boolean} ask whether to query the hub */
  async #judge(ask = false) {
    const wanted = this.#wanted
    this.#unjudged()
    const question = this.#question
    if (!wanted.name || !this.#selects.size) return
    if (ask) this.#verdict.textContent = "Asking huggingface.co…"
    const answer = await this.#server.ask("look_at_model", { ...wanted, ask })
    if (question !== this.#question) return
    if (answer.away || answer.error != null) return this.#found = null, this.#tell(answer.error ?? AWAY, "bad")
    const { look, absent, sentence } = answer
    this.#found = look
    this.#tell(sentence, look ? MOODS[look.verdict] : absent ? "" : "bad")
    this.#ask.hidden = !absent
    if (look) this.#look.replaceChildren(...lookFacts(look))
    this.#load.disabled = !look || look.verdict === "refused" || this.#job !== null
    this.#load.textContent = look?.fetch_bytes ? `Download ${bytes(look.fetch_bytes)} and load` : "Load"
    for (const button of this.#quick.querySelectorAll("button.choice")) button.setAttribute("aria-pressed", String(button.getAttribute("data-key") === wanted.name))
  }

  /** @param {string} sentence @param {string} mood */
  #tell(sentence, mood) {
    this.#verdict.textContent = sentence
    this.#verdict.dataset.mood = mood
  }

  #sayRunning() {
    const running = this.#state?.running ?? 0
    this.#running.hidden = running === 0
    const legend = this.#running.querySelector("legend")
    if (legend) legend.textContent = `${plural(running, "run")} in progress`
  }

  async #begin() {
    const found = this.#found
    if (this.#load.disabled || !found) return
    const apart = found.verdict === "apart"
    if (apart && !await confirmed(this.#studio.hosts.models, this.#verdict.textContent ?? "", "Load it")) return
    const chosen = this.#running.querySelector("input:checked"), running = chosen instanceof HTMLInputElement && chosen.value === "stop" ? "stop" : "finish"
    const job = new Job(this.#server)
    this.#follow(job, this.#server.ask("switch_model", { key: job.key, ...this.#wanted, running, apart, fetch: found.kind === "hub" }))
  }

  /** @param {Job<Api.Switched>} job @param {Promise<import("../base/jobs.js").JobReply<Api.Switched>>} begun */
  async #follow(job, begun) {
    const focused = document.activeElement === this.#load
    this.#job = job
    this.#load.disabled = true
    this.#stop.hidden = false
    if (focused) this.#stop.focus()
    this.#say("Checking its files…")
    /** Received data: [milliseconds, bytes]. @type {[number, number][]} */
    let came = []
    let last = ""
    job.on("state", ({ what, done, total }) => {
      if (what !== last) came = []
      last = what
      came = [...came, /** @type {[number, number]} */ ([performance.now(), done])].filter(([at], place, all) => place === all.length - 1 || at > performance.now() - WINDOW_MS)
      this.#meter.hidden = !total
      if (total) Object.assign(this.#meter, { max: total, value: done })
      const words = `${what.slice(0, 1).toUpperCase()}${what.slice(1)}`
      this.#say(total ? `${words}: ${bytes(done)} of ${bytes(total)}${what.startsWith("fetching") ? pace(came, total) : ""}` : `${words}…`)
    })
    const end = await job.asked(begun)
    this.#job = null
    if (document.activeElement === this.#stop) this.#name.focus()
    this.#stop.hidden = this.#meter.hidden = true
    const { result, fault } = end
    if (result) this.#say(`${shortName(result.model)} is loaded, after ${result.seconds.toFixed(1)} s.`, "good")
    else if (fault === STOPPED) this.#say(`Stopped. ${this.#staying()}`)
    else this.#say(fault ? `${fault.slice(0, 1).toUpperCase()}${fault.slice(1)} ${this.#staying()}` : end.error ?? AWAY, "bad")
    if (result) { this.#name.value = ""; this.#unjudged() }
    dispatchEvent(new Event("studio-model"))
    await this.refresh()
  }

  /** @param {string} words */
  #say(words, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = words
    if (mood) this.#status.scrollIntoView({ block: "nearest" })
  }

  #staying() { return this.#state?.loaded ? `${shortName(this.#state.loaded.model)} stays loaded.` : "" }
}

/** The rate of a download, and the time left; "" at first. @param {[number, number][]} came @param {number} total */
function pace(came, total) {
  const [[since, before], [now, done]] = [came[0], came[came.length - 1]]
  if (now - since < 1000 || done <= before) return ""
  const rate = 1000 * (done - before) / (now - since), seconds = (total - done) / rate
  return `, ${bytes(rate)}/s, ${seconds < 90 ? `${count(seconds)} s` : `${count(seconds / 60)} min`} left`
}

/** A recent model's name with its non-default options. @param {Api.ModelChoice} choice @param {string} title */
function specialName({ device, dtype, quantize, weights }, title) {
  const special = [device, dtype, weights].filter(one => one !== "auto").concat(quantize === "none" ? [] : [quantize])
  return [title, ...special].join(" · ")
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const page = new ModelsPage(studio)
  studio.on("model", () => { if (studio.shell.page === "models") page.refresh() })
  return { begin: start => page.begin(start), shown: () => page.refresh() }
}
