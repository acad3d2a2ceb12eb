// Saving: each open document goes to the file it came from, or the page says that it did not, and why.
import { h } from "./dom.js"
import { download } from "./exporter.js"

const TITLES = { schema: "schema", prompt: "prompt" }
/** @type {Kind[]} */
const KINDS = ["schema", "prompt"]
const MARK = "\ufeff"
const list = new Intl.ListFormat("en")

/**
 * @typedef {import("./workspace.js").Kind} Kind
 * @typedef {{force?: boolean, here?: boolean}} How whatever the file holds; although nobody knows which folder it came from
 * @typedef {[string, () => unknown]} Action a button: its words, and what it does
 */

/** The words for where a document came from that is no file of the folder. @param {string} origin */
function whence(origin) {
  const [kind, ...name] = origin.split(":")
  if (kind === "sample") return "is a sample"
  return kind === "browser" ? `(${name.join(":")}) was opened through the browser, which lets nobody write it back` : "came from no file"
}

/**
 * The text of a file that the browser has read, with what its bytes tell; null where it is not in that encoding.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {Api.OpenFile["encoding"]} encoding
 */
export function decoded(bytes, encoding = "utf-8") {
  const wide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)
  if (wide && encoding === "utf-8") return null
  const name = encoding === "utf-16" && bytes[0] === 0xfe ? "utf-16be" : encoding
  let text
  try { text = new TextDecoder(name, { fatal: true, ignoreBOM: true }).decode(bytes) } catch { return null }
  const bom = encoding === "utf-8" && text.startsWith(MARK)
  if (text.startsWith(MARK)) text = text.slice(1)
  const count = (/** @type {RegExp} */ pattern) => text.match(pattern)?.length ?? 0
  /** @type {Record<Api.Stamp["newline"] & string, number>} */
  const counts = { "\n": count(/(?<!\r)\n/g), "\r\n": count(/\r\n/g), "\r": count(/\r(?!\n)/g) }
  const ends = /** @type {(keyof typeof counts)[]} */ (Object.keys(counts))
  const newline = ends.reduce((most, next) => counts[next] > counts[most] ? next : most)
  return { text: text.replace(/\r\n?/g, "\n"), stamp: { bom, newline } }
}

export class Files {
  #workspace
  #server
  #shell
  #folder = false
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve()
  #dialog = h("dialog", { class: "save-as", "aria-labelledby": "save-as-title" })

  /**
   * @param {HTMLElement} host
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("./server.js").Server} server
   * @param {import("./shell.js").Shell} shell shows sentences and opens documents
   */
  constructor(host, workspace, server, shell) {
    this.#workspace = workspace
    this.#server = server
    this.#shell = shell
    host.append(this.#dialog)
  }

  /** @param {{folder: boolean}} start */
  start({ folder }) { this.#folder = folder }

  get folder() { return this.#folder }

  /** Writes what has a file of the user's folder; the names of the files that hold the text now. */
  save() { return this.#inTurn(() => this.#save()) }

  // Two writes at once would each take the other for another program.
  /** @template Result @param {() => Promise<Result>} action @returns {Promise<Result>} */
  #inTurn(action) {
    const done = this.#turn.then(action)
    this.#turn = done
    return done
  }

  /** @param {Kind} kind @param {How} how */
  #again(kind, how) {
    return this.#inTurn(async () => {
      const name = await this.#write(kind, how)
      if (name) this.#shell.saved([name])
    })
  }

  async #save() {
    const workspace = this.#workspace, written = /** @type {string[]} */ ([])
    const own = KINDS.filter(kind => workspace.fileOf(kind))
    this.#shell.dismiss("save")
    for (const kind of own) {
      const name = await this.#write(kind)
      if (name) written.push(name)
    }
    const homeless = KINDS.filter(kind => !own.includes(kind) && (own.length === 0 || workspace.stamp(kind).edited))
    if (homeless.length) this.#sayHomeless(homeless)
    return written
  }

  /** Writes a document to its file; the name of the file, null where it was not written. @param {Kind} kind @param {How} how */
  async #write(kind, how = {}) {
    const workspace = this.#workspace, name = workspace.fileOf(kind), text = workspace.texts()[kind], origin = workspace.originOf(kind)
    const answer = await this.#server.ask("save_file", { origin, text, stamp: workspace.stamp(kind), ...how })
    const key = `save-${kind}`
    this.#shell.dismiss(key)
    if (workspace.originOf(kind) !== origin) return answer.saved ?? null  // another document was opened meanwhile
    if (answer.saved) {
      await workspace.noteFile(kind, { origin: answer.origin, stamp: answer.stamp, text })
      return name
    }
    await workspace.noteFile(kind, {})
    if (answer.away) return null
    /** @type {Action} */
    const again = [answer.refused === "gone" ? "Write it anew" : "Overwrite it", () => this.#again(kind, { ...how, force: true })]
    /** @type {Action} */
    const here = ["Write it here", () => this.#again(kind, { here: true })]
    /** @type {Action} */
    const theirs = ["Load theirs", () => this.#shell.open("open_file", { name })]
    /** @type {Action} */
    const retry = ["Try again", () => this.#again(kind, how)]
    const actions = answer.refused ? { gone: [again], changed: [again, theirs], elsewhere: [], unknown: [here] }[answer.refused] : [retry]
    this.#shell.notice(answer.message ?? answer.error ?? "", { key, actions: [...actions, ...this.#ways(kind)] })
    return null
  }

  /** @param {Kind[]} kinds */
  #sayHomeless(kinds) {
    const origins = kinds.map(kind => kind === "schema" ? this.#workspace.origin : this.#workspace.promptOrigin)
    const where = kinds.map((kind, index) => `the ${TITLES[kind]} ${whence(origins[index])}`)
    const words = `Kept as a draft in the studio; ${list.format(where)}, so no file of it was written.`
    this.#shell.notice(words, { key: "save", mood: "info", actions: kinds.flatMap(kind => this.#ways(kind)) })
  }

  /** Where else a text can go. @param {Kind} kind @returns {Action[]} */
  #ways(kind) {
    /** @type {Action[]} */
    const ways = this.#folder ? [[`Save the ${TITLES[kind]} as…`, () => this.saveAs(kind)]] : [[`Download the ${TITLES[kind]}`, () => this.download(kind)]]
    return ways
  }

  /** Hands a document to the browser, with the line ends and the mark of the file that it came from. @param {Kind} kind */
  download(kind) {
    const text = this.#workspace.texts()[kind], { bom, newline = "\n" } = this.#workspace.stamp(kind)
    download(this.#suggested(kind), `${bom ? MARK : ""}${text.replaceAll("\n", newline)}`)
  }

  /** @param {Kind} kind */
  #suggested(kind) {
    return `${this.#workspace.names[kind] || "untitled"}${kind === "prompt" ? ".prompt" : ""}.pml`
  }

  /** Asks for a name in the user's folder, and writes a document there. @param {Kind} kind */
  saveAs(kind) {
    const said = h("p", { class: "bad", role: "alert" })
    const name = h("input", { type: "text", id: "save-as-name", required: true, autocomplete: "off", spellcheck: "false", value: this.#suggested(kind) })
    const close = () => this.#dialog.close()
    const form = h("form", { onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault()
      const text = this.#workspace.texts()[kind], stamp = this.#workspace.stamp(kind)
      const answer = await this.#server.ask("save_as", { name: name.value.trim(), text, stamp })
      if (!answer.saved) { said.textContent = answer.error ?? "The studio's server does not answer. Your text is kept."; return }
      close()
      for (const key of ["save", `save-${kind}`]) this.#shell.dismiss(key)
      await this.#workspace.noteFile(kind, { origin: answer.origin, stamp: answer.stamp, text })
      this.#shell.saved([answer.saved], answer.files)
    } },
    h("h2", { id: "save-as-title" }, `Save the ${TITLES[kind]} as`),
    h("label", { for: name.id }, "File name in your folder"), name, said,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Save"), h("button", { type: "button", onclick: close }, "Cancel")))
    this.#dialog.replaceChildren(form)
    this.#dialog.showModal()
    name.select()
  }
}
