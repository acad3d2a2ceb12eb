// The import dialog: other formats as a schema and a prompt, with a preview.
import { bytes, count, debounce, h, plural } from "../base/dom.js"
import { Job } from "../base/jobs.js"

const MOST_BYTES = 20 * 1024 * 1024
const MOST_FILES = 10_000
const LONGEST_TEXT = 5 * 1024 * 1024
const SURELY_SMALL = 65_536
const HEAD = 8192
const TELL_EVERY = 100  // files
const FEWER = "Choose a folder inside it, or use pml import on the command line."
const ASK_AFTER_MS = 250
const AWAY = "The studio's server does not answer. Nothing was changed; try again when it is back."
const KINDS = [
  ["", "Detect"], ["messages", "Conversation (messages in JSON)"], ["jinja", "Jinja template"], ["text", "Text or Markdown"],
  ["python", "Python program (compiled, never run)"], ["prompty", "Prompty"], ["langchain", "LangChain prompt"], ["langfuse", "Langfuse prompt"],
  ["promptfoo", "promptfoo configuration"], ["folder", "Folder of documents"],
]

/** @typedef {{path: string, file: File}} Chosen a file with its path in the chosen folder */

/** @param {File} file @returns {Promise<string>} */
async function base64(file) {
  const read = new FileReader()
  return new Promise((resolve, reject) => {
    read.onload = () => resolve(String(read.result).replace(/^[^,]*,?/, ""))
    read.onerror = () => reject(read.error)
    read.readAsDataURL(file)
  })
}

/**
 * Drops content that no import reads: all but the head of a binary file, and texts that are too long.
 * @param {File} file
 */
async function lean(file) {
  if (file.size <= SURELY_SMALL) return file
  const head = new Uint8Array(await file.slice(0, HEAD).arrayBuffer()), wide = (head[0] ^ head[1]) === 1 && head[0] >= 0xfe
  if (head.includes(0) && !wide) return new File([head], file.name)
  return file.size > LONGEST_TEXT ? null : file
}

/** @param {string[]} paths */
function tooLong(paths) {
  const more = paths.length > 3 ? ` and ${count(paths.length - 3)} more` : ""
  return `${plural(paths.length, "file")} left out (larger than ${LONGEST_TEXT >> 20} MB): ${paths.slice(0, 3).join(", ")}${more}.`
}

export class Importer {
  #server
  #shell
  /** @type {Api.ImportFile[]} */
  #files = []
  /** Files that the page left out. @type {string[]} */
  #left = []
  #work = new AbortController()
  /** Restarts a stopped import. */
  #retry = () => {}
  /** @type {NonNullable<Api.ImportFiles["encoding"]>} */
  #encoding = "utf-8"
  /** @type {Api.ImportPreview | null} */
  #found = null
  #what = h("p", { class: "soft" })
  #kind = h("select", { id: "import-kind" }, ...KINDS.map(([value, words]) => h("option", { value }, words)))
  #name = h("input", { type: "text", id: "import-name", autocomplete: "off", spellcheck: "false", placeholder: "name of the source" })
  #row = h("input", { type: "number", id: "import-row", min: "1", step: "1", value: "1" })
  #length = h("input", { type: "number", id: "import-length", min: "1", step: "1", value: "32" })
  #split = h("select", { id: "import-split" }, ...[["whole", "by format"], ["headings", "at headings"], ["tokens", "by tokens"]].map(([value, words]) => h("option", { value }, words)))
  #tokens = h("input", { type: "number", id: "import-tokens", min: "16", step: "1", value: "512" })
  #titles = h("input", { type: "checkbox", id: "import-titles", checked: true })
  #said = h("p", { role: "status" })
  #meter = h("progress", { hidden: true, "aria-label": "Progress of the import" })
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#stopped() }, "Stop")
  #again = h("button", { type: "button", hidden: true })
  #notes = h("ul", { class: "notes", "aria-label": "Lost or changed content" })
  #schema = h("pre", { tabindex: "0", "aria-label": "The imported schema" })
  #prompt = h("pre", { tabindex: "0", "aria-label": "The imported prompt" })
  #texts = h("div", { class: "import-texts", hidden: true },
    h("section", {}, h("h3", {}, "Schema"), this.#schema), h("section", {}, h("h3", {}, "Prompt"), this.#prompt))
  #open = h("button", { type: "button", class: "primary", disabled: true, onclick: () => this.#take() }, "Open")
  /** @type {[string, HTMLElement][]} */
  #fields
  #dialog
  #askSoon = debounce(ASK_AFTER_MS, () => this.#ask())

  /**
   * @param {HTMLElement} host
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/shell.js").Shell} shell opens workspaces
   */
  constructor(host, server, shell) {
    this.#server = server
    this.#shell = shell
    const field = (/** @type {string} */ words, /** @type {HTMLElement} */ input) => h("div", { class: "import-field" }, h("label", { for: input.id }, words), input)
    this.#fields = [
      ["row", field("Conversation number", this.#row)], ["param_length", field("Tokens per parameter", this.#length)], ["split", field("Split long texts", this.#split)],
      ["tokens", field("Tokens per part", this.#tokens)], ["titles", field("Add title lines", this.#titles)],
    ]
    this.#dialog = h("dialog", { class: "import", "aria-labelledby": "import-title" },
      h("h2", { id: "import-title" }, "Import"), this.#what,
      h("div", { class: "import-fields" }, field("Kind", this.#kind), field("Name of the schema", this.#name), ...this.#fields.map(([, node]) => node)),
      h("div", { class: "import-said" }, this.#said, this.#meter, this.#stop, this.#again), this.#notes, this.#texts,
      h("div", { class: "buttons" }, this.#open, h("button", { type: "button", onclick: () => this.#dialog.close() }, "Cancel"),
        h("span", { class: "soft" }, "Your current documents are saved in Versions.")))
    for (const input of [this.#kind, this.#name, this.#row, this.#length, this.#split, this.#tokens, this.#titles]) {
      input.addEventListener("input", () => {
        if (!this.#files.length) return  // the browser is still reading them
        this.#begin()
        this.#found = null
        this.#open.disabled = true
        this.#askSoon()
      })
    }
    this.#dialog.addEventListener("close", () => { this.#begin(); this.#askSoon.cancel(); this.#files = []; this.#found = null })
    host.append(this.#dialog)
  }

  /**
   * Previews an import.
   * @param {Chosen[] | import("./file_drop.js").Walk} source files, or a function that finds them
   */
  async look(source) {
    const work = this.#begin()
    this.#reset()
    this.#retry = () => this.look(source)
    if (!this.#dialog.open) this.#dialog.showModal()
    const told = (/** @type {number} */ found) => { if (!work.signal.aborted) this.#tell(`Looking through the folder… ${plural(found, "file")}`) }
    const chosen = typeof source === "function" ? await source(work.signal, told) : source
    if (!work.signal.aborted) await this.#read(chosen, work)
  }

  /** Replaces the running work. */
  #begin() {
    this.#work.abort()
    this.#work = new AbortController()
    this.#busy(false)
    return this.#work
  }

  #stopped() {
    this.#begin()
    this.#fail("Stopped. Nothing was imported.")
    this.#offer("Start again", this.#retry)
  }

  /** Reads files in the browser, one by one. @param {Chosen[]} chosen @param {AbortController} work */
  async #read(chosen, { signal }) {
    if (!chosen.length) return this.#fail("There is no file to import. Choose one, or a folder with documents.")
    if (chosen.length > MOST_FILES) return this.#fail(`There are more than ${count(MOST_FILES)} files, the maximum of this page. ${FEWER}`)
    /** @type {Api.ImportFile[]} */
    const files = []
    /** @type {string[]} */
    const left = []
    let size = 0
    for (const [index, { path, file }] of chosen.entries()) {
      if (index % TELL_EVERY === 0) this.#tell(chosen.length > 1 ? `Reading ${count(index)} of ${plural(chosen.length, "file")}…` : "Reading…", index, chosen.length)
      const wanted = chosen.length > 1 ? await lean(file).catch(() => file) : file
      if (!wanted) { left.push(path); continue }
      size += wanted.size
      if (size > MOST_BYTES) {
        return this.#fail(chosen.length > 1 ? `These files have more than ${bytes(MOST_BYTES)} of text, the maximum of this page. ${FEWER}` : `${path} has ${bytes(file.size)}, but the maximum is ${bytes(MOST_BYTES)}. Choose a smaller file, or use pml import on the command line.`)
      }
      try { files.push({ path, data: await base64(wanted) }) } catch { return this.#fail(`The browser cannot read ${path}. It may be missing or unreadable.`) }
      if (signal.aborted) return
    }
    this.#what.textContent = chosen.length === 1 ? chosen[0].path : `${plural(chosen.length, "file")}, ${bytes(chosen.reduce((sum, { file }) => sum + file.size, 0))}`
    this.#left = left.length ? [tooLong(left)] : []
    if (!files.length) return this.#fail(`No file is left to import: ${this.#left[0]}`)
    this.#files = files
    await this.#ask()
  }

  #reset() {
    this.#encoding = "utf-8"
    this.#files = []
    this.#left = []
    this.#what.textContent = ""
    this.#again.hidden = true
    this.#kind.value = this.#name.value = ""
    this.#row.value = "1"
    this.#length.value = "32"
    this.#split.value = "whole"
    this.#tokens.value = "512"
    this.#titles.checked = true
    this.#fill(null)
    this.#tell("Reading…")
  }

  async #ask() {
    if (!this.#files.length) return
    const { signal } = this.#begin()
    this.#retry = () => this.#ask()
    this.#tell("Sending the files…")
    const whole = (/** @type {HTMLInputElement} */ input) => Math.max(0, Math.trunc(Number(input.value) || 0))
    /** @type {Job<Api.ImportPreview>} */
    const job = new Job(this.#server)
    const stop = () => job.stop()
    signal.addEventListener("abort", stop)
    job.on("state", ({ what, done, total }) => { if (!signal.aborted) this.#tell(`${what[0].toUpperCase()}${what.slice(1)}…${total > 2 ? ` ${count(done)} of ${count(total)}` : ""}`, done, total) })
    const end = await job.asked(this.#server.ask("preview_import", {
      key: job.key, files: this.#files, kind: this.#kind.value, name: this.#name.value.trim(), row: whole(this.#row), param_length: whole(this.#length),
      split: /** @type {"whole" | "headings" | "tokens"} */ (this.#split.value), tokens: whole(this.#tokens), titles: this.#titles.checked, encoding: this.#encoding,
    }))
    signal.removeEventListener("abort", stop)
    if (signal.aborted) return
    const answer = end.result
    if (!answer) {
      this.#fail((end.fault || end.error) ?? AWAY)
      if (end.away) this.#offer("Try again", this.#retry)
      return
    }
    this.#busy(false)
    const { encoding, message } = answer
    if (encoding) {
      this.#fail(message ?? "")
      return this.#offer(encoding === "utf-16" ? "Read it as UTF-16" : "Read it as Windows-1252", () => { this.#encoding = encoding; this.#ask() })
    }
    const notes = [...this.#left, ...answer.notes ?? []]
    this.#fill({ ...answer, notes })
    const kind = KINDS.find(([value]) => value === answer.kind)?.[1] ?? ""
    this.#say(`${kind}: ${plural(answer.modules ?? 0, "module")}${notes.length ? "; lost or changed content is listed here." : ", nothing is lost."}`, notes.length ? "warn" : "good")
  }

  /** @param {string} sentence */
  #fail(sentence) {
    this.#busy(false)
    this.#fill(null)
    this.#say(sentence, "bad")
  }

  /** Shows progress. @param {string} words */
  #tell(words, done = 0, total = 0) {
    this.#busy(true)
    this.#say(words)
    this.#meter.hidden = total < 2
    this.#meter.max = Math.max(1, total)
    this.#meter.value = done
  }

  /** @param {boolean} busy */
  #busy(busy) {
    const focused = this.#stop === document.activeElement
    this.#stop.hidden = !busy
    if (!busy) this.#meter.hidden = true
    else this.#again.hidden = true
    if (!busy && focused) this.#kind.focus()
  }

  /** @param {string} words @param {() => unknown} action */
  #offer(words, action) {
    this.#again.textContent = words
    this.#again.onclick = action
    this.#again.hidden = false
  }

  /** @param {string} sentence @param {string} [mood] */
  #say(sentence, mood = "") {
    this.#said.textContent = sentence
    this.#said.dataset.mood = mood
  }

  /** @param {Api.ImportPreview | null} found */
  #fill(found) {
    this.#found = found
    this.#open.disabled = !found
    this.#texts.hidden = !found
    this.#schema.textContent = found?.schema ?? ""
    this.#prompt.textContent = found?.prompt ?? ""
    this.#notes.replaceChildren(...(found?.notes ?? []).map(note => h("li", {}, note)))
    if (!found) return
    for (const [name, node] of this.#fields) node.hidden = name === "tokens" ? this.#split.value !== "tokens" || !found.options?.includes("split") : !found.options?.includes(name)
  }

  async #take() {
    const found = this.#found
    if (!found) return
    this.#dialog.close()
    await this.#shell.open("open_imported", { name: found.name ?? "", schema: found.schema ?? "", prompt: found.prompt ?? "" })
  }
}
