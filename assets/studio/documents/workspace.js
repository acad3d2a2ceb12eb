// The open schema and prompt: their editors, their checks, and the draft on the server.
import { createEditor } from "../editor.bundle.js"
import { debounce } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { recall, writable } from "./browser_files.js"
import { Unsaved } from "./unsaved.js"

const CHECK_AFTER_MS = 0
const MEASURE_AFTER_MS = 60
const SAVE_AFTER_MS = 400
const RETRY_AFTER_MS = 5000
const READS_FILES = /\bsrc\s*=/
/** @type {Kind[]} */
const KINDS = ["schema", "prompt"]
const fileName = (/** @type {string} */ origin) => origin.startsWith("file:") || writable(origin) ? origin.slice(origin.indexOf(":") + 1).split("/").at(-1) ?? "" : ""

/** Whether a text shares less than half of an old one, at its ends. @param {string} old @param {string} text */
function replaced(old, text) {
  const most = Math.min(old.length, text.length)
  let head = 0, tail = 0
  while (head < most && old[head] === text[head]) head++
  while (tail < most - head && old.at(-1 - tail) === text.at(-1 - tail)) tail++
  return 2 * (head + tail) < old.length
}

/**
 * @typedef {"schema" | "prompt"} Kind
 * @typedef {ReturnType<typeof createEditor>} Editor
 * @typedef {Partial<Api.Stamp> & {edited?: boolean}} FileStamp a file's state, and whether the document changed since
 * @typedef {Api.Mark & {kind: Kind, counted?: boolean}} PlacedFault `counted`: only a tokenizer finds it
 * @typedef {{schema: Api.Mark[], prompt: Api.Mark[]}} MarksOfBoth
 * @typedef {Required<Api.Page>} Page
 */

/**
 * A document's source for its editor.
 * @param {Pick<Api.Workspace, "name" | "origin" | "prompt_origin" | "files">} workspace
 * @param {Kind} kind
 */
function source({ name, origin, prompt_origin, files }, kind) {
  return { ...files?.[kind], ...(kind === "schema" ? { name, origin } : { origin: prompt_origin ?? "" }) }
}

/**
 * "problems": of one document; "unchecked": why the check failed, or ""; "unsaved": why the draft was not saved, "" without a server; "recovered": text of closed tabs; "written": a file changed; "settings": run settings changed; "countable": a model is loaded; "wanted": a place in a document to show; "notice": a sentence.
 * @extends {Emitter<{
 *   checked: Api.CheckedTexts, measured: Api.Measured, problems: {kind: Kind, list: Api.Mark[]}, saving: void, saved: string, unsaved: string,
 *   conflict: {conflict: Api.Workspace, message: string}, recovered: {restored: boolean, keys: string[]}, written: void, typing: void,
 *   opened: void, notice: string, unchecked: string, settings: void, countable: void, wanted: Kind,
 *   choice: {kind: Kind, mark: Api.Mark},
 * }>}
 */
export class Workspace extends Emitter {
  /** @type {Record<Kind, Editor>} */
  editors
  /** @type {Record<string, any>} */
  settings = {}
  /** The workspace that is being opened, or null. @type {Promise<void> | null} */
  opening = null
  /** The documents' names, or "". @type {Record<Kind, string>} */
  names = { schema: "", prompt: "" }
  #server
  #revision = 0
  #version = 0
  #checked = -1
  /** @type {string | null} */
  #goodSchema = null
  /** @type {string | null} */
  #known = null
  #stale = false
  /** The last schema without errors, and its name; null after another workspace is opened. @type {{name: string, text: string, origin: string} | null} */
  #former = null
  /** @type {{version: number, diagnostics: MarksOfBoth, texts: Partial<Record<Kind, string>>}} */
  #measured = { version: -1, diagnostics: { schema: [], prompt: [] }, texts: {} }
  /** @type {MarksOfBoth} */
  #plain = { schema: [], prompt: [] }
  #dirty = false
  /** Sources of open documents that this page has saved. @type {Set<string>} */
  #written = new Set()
  #conflict = false
  #countable = false
  /** @type {Promise<void> | null} */
  #saving = null
  #unsaved = new Unsaved()
  #claimed = Promise.all([this.#unsaved.claim(), recall()])
  /** @type {Promise<unknown>} */
  #edits = Promise.resolve()
  /** @type {Promise<unknown>} */
  #checking = Promise.resolve()
  #checksAgain = false
  #checkSoon = debounce(CHECK_AFTER_MS, () => this.#checkNext())
  #measureSoon = debounce(MEASURE_AFTER_MS, () => this.#measure())
  #saveSoon = debounce(SAVE_AFTER_MS, () => this.save())

  /** @param {import("../base/server.js").Server} server */
  constructor(server) {
    super()
    this.editors = /** @type {Record<Kind, Editor>} */ ({})
    this.#server = server
    server.on("away", () => { this.#countable = false })
    server.on("back", () => { this.save(); this.#checkSoon() })
    addEventListener("pagehide", () => this.#backUp())
    addEventListener("beforeunload", event => { if ((this.#dirty || this.#saving) && !this.keepHere()) event.preventDefault() })
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.save() })
    addEventListener("focus", () => { if (READS_FILES.test(this.editors.schema?.text() ?? "")) this.#checkSoon() })  // files that the schema reads may have changed
  }

  /** @param {Kind} kind @param {HTMLElement} host @param {Record<string, () => unknown>} keys */
  mount(kind, host, keys) {
    const label = kind === "schema" ? "Schema document" : "Prompt document"
    const onChange = () => this.#changed(), say = "Tab indents. To leave the editor, press Escape, then Tab. F8 goes to the next problem."
    this.editors[kind] = createEditor(host, { label, keys, onChange, onLeave: () => this.save(), onFix: (/** @type {Api.Mark} */ mark, /** @type {string} */ fix) => this.fix(kind, mark, fix), onChoice: (/** @type {Api.Mark} */ mark) => this.emit("choice", { kind, mark }) })
    const { reveal } = this.editors[kind]
    this.editors[kind].reveal = (/** @type {number} */ at) => { this.emit("wanted", kind); reveal(at) }
    this.editors[kind].view.contentDOM.setAttribute("aria-description", say)
  }

  /** Loads the first texts: the server's draft, or this tab's unsaved text. @param {Api.Workspace} workspace */
  async start(workspace) {
    await this.#claimed
    const other = (/** @type {Pick<Page, Kind>} */ page) => KINDS.some(kind => page[kind] !== workspace[kind])
    const left = await this.#unsaved.left()
    // Only this tab's text goes into the editors, and only if no newer draft exists.
    const own = this.#unsaved.own(), next = left.findLast(([, page]) => page.base === workspace.revision && other(page))
    const restored = !own && next !== undefined && this.#unsaved.keep(next[1])
    const unsaved = own ?? (restored && next ? next[1] : null)
    const settings = unsaved?.base === workspace.revision && unsaved.settings ? unsaved.settings : workspace.settings
    const reset = JSON.stringify(settings) !== JSON.stringify(workspace.settings)
    this.#take({ ...workspace, settings })
    for (const kind of KINDS) this.editors[kind].load(workspace[kind], source(workspace, kind))
    if (unsaved && !other(unsaved) && !reset) this.#unsaved.forget()
    else if (unsaved) {
      if (other(unsaved)) for (const kind of KINDS) this.editors[kind].replace(unsaved[kind], { from: source(unsaved, kind) })
      this.#revision = unsaved.base
      this.#dirty = true
      this.#saveSoon()
    }
    this.#version++
    this.emit("opened")
    await this.#recover(left, page => other(page) && !(restored && page === next?.[1]), restored)
    return this.#check()
  }

  // Saves texts of closed tabs as versions; saved or open ones are removed from the browser.
  /** @param {[string, Page][]} left @param {(page: Page) => boolean} wanted @param {boolean} restored */
  async #recover(left, wanted, restored) {
    /** @type {string[]} */
    const keys = []
    for (const [key, page] of left) {
      /** @type {import("../base/server.js").Reply<Api.Shelved>} */
      const answer = wanted(page) ? await this.#server.ask("shelve", { page }) : {}
      if (answer.away || answer.error != null) { if (answer.error) this.#say(answer.error); continue }
      if (answer.key) keys.push(answer.key)
      this.#unsaved.forget(key)
    }
    if (restored || keys.length) this.emit("recovered", { restored, keys })
  }

  /** Saves the current texts as a version; returns whether it worked. */
  async shelve() {
    const answer = await this.#server.ask("shelve", { page: this.page() })
    if (answer.error) this.#say(answer.error)
    return !answer.away && !answer.error
  }

  /** Stores the current texts in this browser; false if there is no room. */
  keepHere() { return this.#unsaved.keep(this.page()) }

  /** Opens another workspace in the same editors; one undo step restores the previous texts. @param {Api.Workspace} workspace */
  open(workspace) {
    this.#saveSoon.cancel()
    this.#take(workspace)
    for (const kind of KINDS) {
      this.editors[kind].replace(workspace[kind], { from: source(workspace, kind), quiet: true })
      this.editors[kind].view.scrollDOM.scrollTop = 0
    }
    this.#goodSchema = this.#known = this.#former = null
    this.#written.clear()
    this.#dirty = false
    this.#conflict = false
    this.#version++
    this.#unsaved.forget()
    this.emit("opened")
    return this.#check()
  }

  /** The current texts for the server to save before it opens others. @returns {Page} */
  page() {
    const { name, origin, promptOrigin, settings } = this, files = Object.fromEntries(KINDS.map(kind => [kind, this.stamp(kind)]))
    return { name, origin, prompt_origin: promptOrigin, files, settings, base: this.#revision, ...this.texts() }
  }

  texts() { return { schema: this.editors.schema.text(), prompt: this.editors.prompt.text() } }

  get name() { return this.editors.schema.source().name ?? "" }

  get origin() { return this.originOf("schema") }

  get promptOrigin() { return this.originOf("prompt") }

  /** The stamp of a document's file when it was read or written. @param {Kind} kind @returns {FileStamp} */
  stamp(kind) {
    const { name: _name, origin: _origin, ...stamp } = this.editors[kind].source()
    return stamp
  }

  /** @param {Kind} kind @returns {string} */
  originOf(kind) { return this.editors[kind].source().origin ?? "" }

  /** The name of a document's file; "" if it has none that can be written. @param {Kind} kind */
  fileOf(kind) {
    return fileName(this.originOf(kind))
  }

  /** Documents with a file that can be written. */
  filed() { return KINDS.filter(kind => this.fileOf(kind)) }

  /** Documents with changes that are not in their file. */
  unwritten() { return this.filed().filter(kind => this.stamp(kind).edited) }

  /** Whether the file was saved since it was opened here; else it was only read. @param {Kind} kind */
  wrote(kind) { return this.#written.has(this.originOf(kind)) }

  /** Records a file's content: `text`, or something else if missing. @param {Kind} kind @param {{origin?: string, stamp?: FileStamp, text?: string}} written */
  noteFile(kind, { origin, stamp = {}, text }) {
    const editor = this.editors[kind], moved = origin && origin !== this.originOf(kind) ? { origin, name: fileName(origin) } : {}
    editor.setSource({ ...editor.source(), ...stamp, ...moved, edited: editor.text() !== text })
    if (text !== undefined) this.#written.add(this.originOf(kind))
    this.#dirty = true
    this.emit("written")
    return this.save()
  }

  /** Records a renamed file. @param {Kind} kind @param {string} origin */
  noteMoved(kind, origin) {
    const editor = this.editors[kind], was = editor.source()
    if (this.wrote(kind)) this.#written.add(origin)
    editor.setSource({ ...was, origin, ...(was.name === fileName(was.origin ?? "") ? { name: fileName(origin) } : {}) })
    this.#dirty = true
    this.emit("written")
    return this.save()
  }

  /** Renames the workspace, but not its files. @param {string} name */
  rename(name) {
    const editor = this.editors.schema
    editor.setSource({ ...editor.source(), name })
    this.#dirty = true
    this.emit("written")
    return this.save()
  }

  /** The schema for checking the prompt: the current one, or the last one without errors. */
  basis() { return this.#goodSchema ?? this.editors.schema.text() }

  /** Whether that schema has no errors. */
  get sound() { return this.#goodSchema !== null }

  /** Whether it is an earlier text than the editor's. */
  get stale() { return this.#stale }

  /** @param {Record<string, unknown>} settings */
  change(settings) {
    this.settings = { ...this.settings, ...settings }
    this.#dirty = true
    this.#saveSoon()
    this.#measureSoon()
    this.emit("settings")
  }

  remeasure() { this.#measureSoon() }

  /** Whether a model is loaded to count tokens. */
  get countsTokens() { return this.#countable }

  /** Notes that a model is loaded. */
  countable() {
    this.#countable = true
    this.emit("countable")
    this.#measured.version = -1
    this.#measureSoon()
  }

  /** Applies a pick or an argument to the prompt, merged with concurrent typing. @param {Api.EditPrompt["edit"]} edit */
  edit(edit) {
    this.#edits = this.#edits.then(() => this.#edit(edit))
    return this.#edits
  }

  /** @param {Api.EditPrompt["edit"]} edit */
  async #edit(edit) {
    const mark = this.editors.prompt.mark()
    const answer = await this.#server.ask("edit_prompt", { schema: this.basis(), prompt: mark.text, origin: this.origin, edit })
    this.editors.prompt.apply(mark, answer.prompt)
    if (answer.error) this.#say(answer.error)
    if (answer.prompt == null || answer.prompt === mark.text) this.#checkSoon()
  }

  /** Applies a quick fix; the server rejects fixes that would add more errors than they remove. @param {Kind} kind @param {Api.Mark} fault @param {string} fix the fix's title */
  async fix(kind, { code, from }, fix) {
    const marks = { schema: this.editors.schema.mark(), prompt: this.editors.prompt.mark() }
    const texts = { schema: this.basis(), prompt: marks.prompt.text, [kind]: marks[kind].text }
    const answer = await this.#server.ask("fix_document", { ...texts, origin: this.origin, kind, code, at: from, fix }), changed = answer.kind ?? kind
    const same = texts[changed] === marks[changed].text
    for (const one of KINDS) this.editors[one].apply(marks[one], one === changed && same ? answer.text : null)
    if (!same) this.#say("The schema has an error now. Fix it first.")
    this.editors[kind].view.focus()
    if (answer.error) this.#say(answer.error)
  }

  /** Returns the effect of a quick fix; null if it is refused. @param {Kind} kind @param {Api.Mark} fault @param {string} fix the fix's title */
  async preview(kind, { code, from }, fix) {
    const texts = { ...this.texts(), schema: this.basis() }
    const answer = await this.#server.ask("preview_fix", { ...texts, [kind]: this.texts()[kind], origin: this.origin, kind, code, at: from, fix })
    return "reads" in answer ? /** @type {Api.FixPreview} */ (answer) : null
  }

  /**
   * Changes the name at the caret in both documents, each as one step of undo; without a new name only finds it.
   * @param {Kind} kind @param {string} name
   */
  async changeName(kind, name = "") {
    const schema = this.editors.schema.mark(), prompt = this.editors.prompt.mark(), at = this.editors[kind].view.state.selection.main.head
    const answer = await this.#server.ask("rename_name", { schema: schema.text, prompt: prompt.text, origin: this.origin, kind, at, name })
    this.editors.schema.apply(schema, answer.schema)
    this.editors.prompt.apply(prompt, answer.prompt)
    return answer
  }

  /** Formats a document, merged with concurrent typing. @param {Kind} kind */
  async format(kind) {
    const mark = this.editors[kind].mark()
    const answer = await this.#server.ask("format_document", { text: mark.text })
    this.editors[kind].apply(mark, answer.text)
    if (answer.error) this.#say(answer.error)
  }

  /** Adds a scaffold of modules to the schema; returns a message. @param {string[]} modules */
  async addScaffold(modules) {
    const mark = this.editors.schema.mark()
    const answer = await this.#server.ask("add_scaffold", { schema: mark.text, modules, origin: this.origin })
    this.editors.schema.apply(mark, answer.text)
    return answer.error ?? (answer.text ? "The scaffold was added at the end of the schema. Run again to use it." : "The studio's server does not answer.")
  }

  /** All diagnostics of the current texts, schema first; null without a server. @returns {Promise<PlacedFault[] | null>} */
  async faults() {
    this.#checkSoon.cancel()
    this.#measureSoon.cancel()
    for (let attempt = 0; attempt < 5 && !(this.#checked === this.#version && this.#measured.version === this.#version); attempt++) {
      if (!await this.#check() || !await this.#measure()) { if (this.#server.away) return null }
    }
    return KINDS.flatMap(kind => this.#diagnostics(kind).map(diagnostic => ({ ...diagnostic, kind })))
  }

  /** Documents with an error that prevents a run. */
  faulty() { return KINDS.filter(kind => this.#diagnostics(kind).some(({ severity, counted }) => severity === "error" && !(kind === "schema" && counted))) }

  /** Saves the texts on the server; `force` overwrites another tab's version. */
  async save({ force = false } = {}) {
    this.#saveSoon.cancel()
    this.#backUp()
    if (this.#saving) { await this.#saving; if (!this.#dirty) return }
    if (!this.#dirty || (this.#conflict && !force)) return
    this.#saving = this.#save(force)
    await this.#saving
    this.#saving = null
  }

  /** @param {boolean} force */
  async #save(force) {
    const version = this.#version
    this.emit("saving")
    this.#dirty = false
    const answer = await this.#server.ask("save_draft", { ...this.page(), force })
    if (answer.away || answer.error != null) {
      this.#dirty = true
      this.emit("unsaved", answer.error ?? "")
      if (answer.error) setTimeout(() => this.#saveSoon(), RETRY_AFTER_MS)
    } else if (answer.conflict) {
      this.#dirty = this.#conflict = true
      this.emit("conflict", { conflict: answer.conflict, message: answer.message ?? "" })
    } else {
      this.#conflict = false
      this.#revision = answer.revision ?? this.#revision
      if (version === this.#version) this.#unsaved.forget()
      this.emit("saved", answer.saved ?? "")
    }
    if (this.#dirty && !this.#conflict && !answer.away && !answer.error) this.#saveSoon()
  }

  /** @param {Api.Workspace} workspace */
  #take({ settings, revision }) {
    this.settings = { ...settings }
    this.#revision = revision
  }

  #backUp() {
    if (this.#dirty) this.keepHere()
  }

  #changed() {
    this.#version++
    this.#dirty = true
    this.#checkSoon()
    this.#saveSoon()
    this.emit("typing")
  }

  // One check at a time: keys that are typed meanwhile share the next one.
  async #checkNext() {
    if (this.#checksAgain) return
    this.#checksAgain = true
    await Promise.allSettled([this.#checking])
    this.#checksAgain = false
    this.#checking = this.#check()
  }

  async #check() {
    const version = this.#version, texts = this.texts()
    const request = { ...texts, origin: this.origin, fallback: this.#goodSchema, known: this.#known }
    const answer = await this.#server.ask("check", request)
    if (version !== this.#version) return false
    if (answer.away || answer.error != null) { this.#failed(answer.error, this.#checkSoon); return false }
    this.#checked = version
    if (answer.schema.ok) this.#goodSchema = texts.schema
    else if (!answer.basis.stale) this.#goodSchema = null  // it was another schema
    this.#known = answer.basis.digest
    this.#stale = answer.basis.stale
    this.names = { schema: answer.schema.name, prompt: answer.prompt.name }
    if (answer.basis.words) for (const kind of KINDS) this.editors[kind].setWords(answer.basis.words[kind])
    for (const kind of KINDS) {
      this.#plain[kind] = answer[kind].diagnostics
      this.#show(kind)
    }
    if (answer.schema.ok && answer.schema.name) this.#renamed({ name: answer.schema.name, text: texts.schema, origin: this.origin })
    this.emit("checked", answer)
    this.#measureSoon()
    return true
  }

  /** Shows an error of the server and tries again later. @param {string | undefined} error @param {() => void} again */
  #failed(error, again) {
    if (!error) return
    this.emit("unchecked", error)
    setTimeout(again, RETRY_AFTER_MS)
  }

  // The title and the prompt follow the schema's name, unless they have files, or names of their own for the same schema.
  /** @param {{name: string, text: string, origin: string}} schema */
  async #renamed(schema) {
    const former = this.#former
    this.#former = schema
    if (!former || former.name === schema.name || former.origin !== schema.origin) return
    if (!this.fileOf("schema") && (this.origin.startsWith("sample:") || ["", "Untitled", former.name].includes(this.name) || replaced(former.text, schema.text))) this.rename(schema.name)
    if (this.fileOf("prompt") || this.names.prompt !== former.name) return
    const mark = this.editors.prompt.mark()
    const answer = await this.#server.ask("follow_schema", { schema: schema.text, prompt: mark.text, former: former.text })
    this.editors.prompt.apply(mark, answer.prompt)
  }

  /** Turns plain text into a prompt of the schema. */
  async wrap() {
    const mark = this.editors.prompt.mark()
    const answer = await this.#server.ask("wrap_prompt", { schema: this.basis(), prompt: mark.text })
    this.editors.prompt.apply(mark, answer.prompt)
    this.editors.prompt.view.focus()
    if (answer.error) this.#say(answer.error)
  }

  async #measure() {
    if (!this.#countable) return false
    const version = this.#version, texts = { schema: this.basis(), prompt: this.editors.prompt.text() }
    const answer = await this.#server.ask("measure", { ...texts, origin: this.origin, settings: this.settings })
    if (version !== this.#version) return false
    if (answer.away || answer.error != null) { this.#failed(answer.error, this.#measureSoon); return false }
    this.emit("unchecked", "")
    this.#measured = { version, diagnostics: answer.diagnostics, texts }
    for (const kind of KINDS) this.#show(kind)
    this.emit("measured", answer)
    return true
  }

  /** @param {Kind} kind @returns {(Api.Mark & {counted?: boolean})[]} */
  #diagnostics(kind) {
    // Diagnostics counted with an earlier schema would be duplicates.
    const current = this.#measured.texts[kind] === this.editors[kind].text() && !(kind === "prompt" && this.#stale)
    const counted = current ? this.#measured.diagnostics[kind] : []
    const plain = this.#plain[kind]
    const seen = new Set(plain.map(d => `${d.code} ${d.from} ${d.message}`))
    const further = counted.filter(d => !seen.has(`${d.code} ${d.from} ${d.message}`)).map(d => ({ ...d, counted: true }))
    return [...plain, ...further].sort((a, b) => a.from - b.from)
  }

  /** @param {Kind} kind */
  #show(kind) {
    const list = this.#diagnostics(kind)
    this.editors[kind].setDiagnostics(list)
    this.emit("problems", { kind, list })
  }

  /** @param {string} sentence */
  #say(sentence) { this.emit("notice", sentence) }
}
