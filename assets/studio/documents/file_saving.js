// Saves each open document to its file, or shows why it was not saved.
import { fileToSave, look, read, sameFile, writable, write, writesFiles } from "./browser_files.js"
import { Choice } from "./version_choice.js"
import { askNames } from "./file_dialog.js"
import { download } from "../base/download.js"

const TITLES = { schema: "schema", prompt: "prompt" }
/** @type {Kind[]} */
const KINDS = ["schema", "prompt"]
const MARK = "\ufeff"
const FOLDER = "~/prompts"
const LOOK_AGAIN_MS = 1000
const AWAY = "The studio's server does not answer. Your text is not lost."
const list = new Intl.ListFormat("en")

/**
 * @typedef {import("./workspace.js").Kind} Kind
 * @typedef {{force?: boolean, here?: boolean}} How `force`: overwrite a changed file; `here`: assume this folder if the origin is unknown
 * @typedef {[string, () => unknown]} Action a button: its words, and what it does
 */

/** Describes the origin of a document outside the folder. @param {string} origin */
function whence(origin) {
  const [kind, ...name] = origin.split(":")
  if (kind === "sample") return "is a sample"
  const opened = `(${name.join(":").split("/").at(-1)}) was opened through the browser`
  return kind !== "browser" ? "has no file" : writesFiles() ? `${opened}; choose its file again` : `${opened}, which cannot save it`
}

/**
 * A file's text and byte format; null if it is not in that encoding.
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
  #host
  #workspace
  #server
  #shell
  #opener
  #choice
  #folder = false
  #root = ""
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve()
  #looked = 0
  /** Files with a notice, until they are written or read again. @type {Map<string, string>} */
  #told = new Map()

  /**
   * @param {HTMLElement} host
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/shell.js").Shell} shell shows notices and opens documents
   * @param {import("./opener.js").Opener} opener
   */
  constructor(host, workspace, server, shell, opener) {
    this.#host = host
    this.#workspace = workspace
    this.#server = server
    this.#shell = shell
    this.#opener = opener
    this.#choice = new Choice(host)
    addEventListener("focus", () => this.look())
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.look() })
    workspace.on("opened", () => this.#told.clear())
    workspace.on("conflict", one => this.#conflict(one))
  }

  /** @param {{folder: boolean, root: string}} start */
  start({ folder, root }) {
    this.#folder = folder
    this.#root = root
  }

  get folder() { return this.#folder }

  get root() { return this.#root }

  /** Saves documents to their files in the user's folder. */
  save() { return this.#inTurn(() => this.#save()) }

  // Concurrent writes would look like changes by another program.
  /** @template Result @param {() => Promise<Result>} action @returns {Promise<Result>} */
  #inTurn(action) {
    const done = this.#turn.then(action)
    this.#turn = done
    return done
  }

  /** @param {Kind} kind @param {How} how */
  #again(kind, how) { return this.#inTurn(() => this.#write(kind, how)) }

  async #save() {
    const workspace = this.#workspace, own = workspace.filed()
    this.#shell.dismiss("save")
    if (!this.#folder && !own.length) return this.saveAs()
    for (const kind of own) await this.#write(kind)
    const homeless = KINDS.filter(kind => !own.includes(kind) && (own.length === 0 || workspace.stamp(kind).edited))
    if (homeless.length) this.#sayHomeless(homeless)
  }

  /** Saves a document to its file, or shows why it was not saved. @param {Kind} kind @param {How} how */
  async #write(kind, how = {}) {
    const workspace = this.#workspace, text = workspace.texts()[kind], origin = workspace.originOf(kind)
    const local = writable(origin) ? write(origin, this.#content(kind), how.force ?? false) : null
    const answer = await (local ?? this.#server.ask("save_file", { origin, text, stamp: workspace.stamp(kind), ...how }))
    const key = `save-${kind}`
    this.#shell.dismiss(key)
    if (workspace.originOf(kind) !== origin) return  // another document was opened meanwhile
    this.#told.delete(origin)
    if (answer.saved) {
      if (answer.message) this.#shell.notice(answer.message, { key, mood: "warn" })
      return workspace.noteFile(kind, { origin: answer.origin, stamp: answer.stamp, text })
    }
    await workspace.noteFile(kind, {})
    if (answer.away) return
    const message = answer.message ?? answer.error ?? ""
    if (answer.refused === "changed") {
      this.#sayChanged(kind, message, how)
      this.#compare(kind, message, how)
      return
    }
    /** @type {Action} */
    const again = ["Create it again", () => this.#again(kind, { ...how, force: true })]
    /** @type {Action} */
    const here = ["Save it here", () => this.#again(kind, { here: true })]
    /** @type {Action} */
    const retry = ["Try again", () => this.#again(kind, how)]
    const actions = answer.refused ? { gone: [again], elsewhere: [], unknown: [here] }[answer.refused] : [retry]
    this.#shell.notice(message, { key, actions: [...actions, ...this.#ways(kind)] })
  }

  /** Checks whether other programs changed the files, at most once a second. */
  async look() {
    const workspace = this.#workspace, kinds = workspace.filed(), now = Date.now()
    if (!kinds.length || now - this.#looked < LOOK_AGAIN_MS || this.#server.away) return
    this.#looked = now
    const files = kinds.map(kind => ({ kind, origin: workspace.originOf(kind), stamp: workspace.stamp(kind) }))
    const inFolder = files.filter(({ origin }) => !writable(origin)).map(({ origin, stamp }) => ({ origin, stamp }))
    const { files: seen = [] } = inFolder.length ? await this.#server.ask("look_at_files", { files: inFolder }) : {}
    const local = await Promise.all(files.map(({ origin }) => origin).filter(writable).map(look))
    for (const { origin, state, message } of [...seen, ...local]) {
      const kind = files.find(one => one.origin === origin)?.kind
      if (!kind || workspace.originOf(kind) !== origin) continue
      if (this.#told.get(origin) === state) continue
      this.#told.set(origin, state)
      if (state === "same") this.#shell.dismiss(`save-${kind}`)
      if (state === "changed") this.#sayChanged(kind, message)
      if (state === "gone") this.#shell.notice(message, { key: `save-${kind}`, actions: [["Create it again", () => this.#again(kind, { force: true })], ...this.#ways(kind)] })
    }
  }

  /** @param {Kind} kind @param {string} message @param {How} how */
  #sayChanged(kind, message, how = {}) {
    this.#shell.notice(message, { key: `save-${kind}`, actions: [["Compare…", () => this.#compare(kind, message, how)]] })
  }

  /** Compares a changed file with the editor's text and lets the user choose. @param {Kind} kind @param {string} message @param {How} how */
  #compare(kind, message, how = {}) {
    const workspace = this.#workspace, origin = workspace.originOf(kind), text = workspace.texts()[kind], file = workspace.fileOf(kind)
    const done = () => this.#shell.dismiss(`save-${kind}`)
    return this.#choice.ask({
      title: `${file}: theirs or mine?`, sentence: message, left: `Theirs: ${file} on the disk`, right: "Mine: in the editor",
      compare: async () => {
        if (writable(origin)) {
          const theirs = decoded(new Uint8Array(await (await read(origin)).file.arrayBuffer()))
          if (!theirs) return `${file} is no longer UTF-8, so it cannot be shown.`
          const right = workspace.texts(), both = await this.#server.ask("compare_texts", { left: { ...right, [kind]: theirs.text }, right })
          return both.away ? AWAY : both.error ?? [{ title: `The ${TITLES[kind]}`, difference: both[kind] }]
        }
        const answer = await this.#server.ask("compare_file", { origin, text })
        return answer.away ? AWAY : answer.error ?? [{ ...answer, title: `The ${TITLES[kind]}` }]
      },
      ways: [
        { words: "Load theirs", about: "Your text is saved in Versions; press Ctrl-Z to restore it.", action: () => { done(); return writable(origin) ? this.#reopen(origin) : this.#shell.open("open_file", { name: this.#path(origin) }) } },
        { words: "Keep mine: overwrite", about: "The file's content is replaced.", action: () => this.#again(kind, { ...how, force: true }) },
        { words: "Save mine as…", about: "In another file; theirs is unchanged.", action: () => this.saveAs([kind]) },
      ],
    })
  }

  /** @param {string} origin */
  async #reopen(origin) {
    const { file, handle } = await read(origin)
    return this.#opener.openChosen(file, handle)
  }

  // The name only, if the folder is unknown.
  /** @param {string} origin */
  #path(origin) {
    const path = origin.slice("file:".length)
    return path.startsWith(`${this.#root}/`) ? path.slice(this.#root.length + 1) : path.split("/").at(-1) ?? ""
  }

  /** Resolves a draft that two tabs saved. @param {{conflict: Api.Workspace, message: string}} conflict */
  #conflict({ conflict, message }) {
    const workspace = this.#workspace
    const load = async () => { if (await workspace.shelve()) workspace.open(conflict) }
    const keep = () => workspace.save({ force: true })
    const compare = () => this.#choice.ask({
      title: "This tab or the other one?", sentence: message, left: "Theirs: in the other tab", right: "Mine: in this tab",
      compare: async () => {
        const both = workspace.texts(), { schema, prompt } = conflict
        const answer = await this.#server.ask("compare_texts", { left: { schema, prompt }, right: both })
        if (answer.away) return AWAY
        return answer.error ?? [{ title: "The schema", difference: answer.schema }, { title: "The prompt", difference: answer.prompt }]
      },
      ways: [
        { words: "Load theirs", about: "Your text is saved in Versions; press Ctrl-Z to restore it.", action: load },
        { words: "Keep mine", about: "Theirs is saved in Versions.", action: keep },
        { words: "Save mine as…", about: "In a new file; then choose.", action: () => this.saveAs(KINDS) },
      ],
    })
    this.#shell.notice(message, { key: "conflict", actions: [["Compare…", compare], ["Load that text", load], ["Keep this text", keep]] })
  }

  /** @param {Kind[]} kinds */
  #sayHomeless(kinds) {
    const origins = kinds.map(kind => kind === "schema" ? this.#workspace.origin : this.#workspace.promptOrigin)
    const where = kinds.map((kind, index) => `the ${TITLES[kind]} ${whence(origins[index])}`)
    const none = origins.every(origin => !origin)
    const words = none ? "Saved as a draft in the studio. It has no file yet." : `Saved as a draft in the studio. No file was written: ${list.format(where)}.`
    this.#shell.notice(words, { key: "save", mood: "info", actions: kinds.flatMap(kind => this.#ways(kind)) })
  }

  /** Other places to save a text. @param {Kind} kind @returns {Action[]} */
  #ways(kind) {
    /** @type {Action[]} */
    const ways = [[`Save the ${TITLES[kind]} as…`, () => this.saveAs([kind])]]
    return [...ways, ...this.#asFiles([kind])]
  }

  /** Saves through the browser, if it can. @param {Kind[]} kinds @returns {Action[]} */
  #asFiles(kinds) {
    return writesFiles() ? kinds.map(kind => [`Save the ${TITLES[kind]} as a file…`, () => this.saveFile(kind)]) : []
  }

  /** Saves a document to a file that the user chooses in the browser. @param {Kind} kind */
  async saveFile(kind) {
    const origin = await fileToSave(this.#suggested(kind))
    if (!origin) return
    const other = kind === "schema" ? "prompt" : "schema"
    return this.#inTurn(async () => {
      if (await sameFile(origin, this.#workspace.originOf(other))) {
        await this.#write(other, { force: true })  // the browser emptied the file
        return this.#shell.notice(`The ${TITLES[other]} is in that file. Choose another file for the ${TITLES[kind]}.`, { key: `save-${kind}`, actions: this.#ways(kind) })
      }
      const text = this.#workspace.texts()[kind], { saved, error } = await write(origin, this.#content(kind), true)
      if (!saved) return this.#shell.notice(error ?? "", { key: `save-${kind}`, actions: this.#ways(kind) })
      for (const key of ["save", `save-${kind}`]) this.#shell.dismiss(key)
      await this.#workspace.noteFile(kind, { origin, text })
    })
  }

  /** A document with the line endings and byte order mark of its file. @param {Kind} kind */
  #content(kind) {
    const text = this.#workspace.texts()[kind], { bom, newline = "\n" } = this.#workspace.stamp(kind)
    return `${bom ? MARK : ""}${text.replaceAll("\n", newline)}`
  }

  /** Downloads a document. @param {Kind} kind */
  download(kind) { download(this.#suggested(kind), this.#content(kind)) }

  /** @param {Kind} kind */
  #suggested(kind) {
    return `${this.#workspace.names[kind] || "untitled"}${kind === "prompt" ? ".prompt" : ""}.pml`
  }

  /** Asks for the folder of the user's documents. */
  choose() {
    askNames(this.#host, {
      title: "Folder for documents", action: "Choose", about: "The studio creates the folder if it does not exist, and uses it from now on.",
      fields: [{ key: "folder", label: "Folder on this machine", value: this.#root || FOLDER }], done: ({ folder }) => this.#choose(folder),
    })
  }

  /** Takes a folder for documents; returns "" or an error. @param {string} path */
  async #choose(path) {
    const answer = await this.#server.ask("choose_folder", { path })
    if (!answer.files) return answer.error ?? AWAY
    this.start(answer)
    this.#shell.saved(answer.files)
    return ""
  }

  /** Asks for names in the user's folder and saves documents there; asks for the folder too if there is none. @param {Kind[]} kinds */
  saveAs(kinds = KINDS) {
    const both = kinds.length > 1, about = "Saves new files in your folder. A name may include a subfolder. No file is overwritten."
    /** @type {Set<Kind>} */
    const written = new Set()
    askNames(this.#host, {
      title: both ? "Save as" : `Save the ${TITLES[kinds[0]]} as`,
      action: "Save", about: this.#folder ? about : `${about} File, Download saves without a folder.`,
      fields: [...(this.#folder ? [] : [{ key: "folder", label: "Folder on this machine", value: FOLDER }]), ...kinds.map(kind => ({ key: kind, label: both ? `The ${TITLES[kind]}` : "File name in your folder", value: this.#suggested(kind), ...(both ? { wanted: true } : {}) }))],
      others: this.#asFiles(kinds),
      done: names => this.#inTurn(async () => {
        const wrong = names.folder ? await this.#choose(names.folder) : ""
        if (wrong) return wrong
        for (const kind of kinds) {
          if (!(kind in names) || written.has(kind)) continue
          const fault = await this.#writeNew(kind, names[kind])
          if (fault) return fault
          written.add(kind)
        }
        return ""
      }),
    })
  }

  /** Saves a document to a new file; returns "" or an error. @param {Kind} kind @param {string} name */
  async #writeNew(kind, name) {
    const text = this.#workspace.texts()[kind], stamp = this.#workspace.stamp(kind)
    const answer = await this.#server.ask("save_as", { name, text, stamp })
    if (!answer.saved) return answer.error ?? AWAY
    for (const key of ["save", `save-${kind}`]) this.#shell.dismiss(key)
    await this.#workspace.noteFile(kind, { origin: answer.origin, stamp: answer.stamp, text })
    this.#shell.saved(answer.files)
    return ""
  }

  /** Asks for a new name of the workspace and its files. */
  rename() {
    const workspace = this.#workspace, filed = this.#folder ? workspace.filed().filter(kind => !writable(workspace.originOf(kind))) : []
    const now = { workspace: workspace.name, ...Object.fromEntries(filed.map(kind => [kind, this.#path(workspace.originOf(kind))])) }
    /** @type {Record<string, string>} */
    const before = { ...now }
    askNames(this.#host, {
      title: "Rename", action: "Rename", about: filed.length ? "Files are renamed at once; their content is unchanged." : "The name in the header and in Versions.",
      fields: [{ key: "workspace", label: "The workspace", value: now.workspace }, ...filed.map(kind => ({ key: kind, label: `The file of the ${TITLES[kind]}`, value: before[kind] }))],
      done: names => this.#inTurn(async () => {
        for (const kind of filed) {
          if (names[kind] === before[kind]) continue
          const answer = await this.#server.ask("rename_file", { origin: workspace.originOf(kind), name: names[kind] })
          if (!answer.saved) return answer.message ?? answer.error ?? AWAY
          before[kind] = names[kind]
          await workspace.noteMoved(kind, answer.origin ?? "")
          this.#shell.saved(answer.files)
        }
        if (names.workspace !== before.workspace) await workspace.rename(names.workspace)
        return ""
      }),
    })
  }
}
