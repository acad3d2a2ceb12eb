// Dropped and chosen files and folders: opens documents, and imports runs and other formats.
import { h } from "../base/dom.js"
import { bringRuns, holdsRuns } from "../runs/run_files.js"

const MOST_FILES = 10_000
const AT_ONCE = 100
const DOCUMENT = /\.(pml|xml)$/i
const NOT_OURS = /(^|\/)(\.(git|hg|svn|venv)|node_modules)$/  // folders of other tools

/** @typedef {import("./importer.js").Chosen} Chosen */
/** @typedef {(signal: AbortSignal, tell: (found: number) => void) => Promise<Chosen[]>} Walk looks through folders; it ends early where it is stopped, or finds more than can be taken */

/** @param {(FileSystemEntry | null)[]} entries @returns {Walk} */
function walk(entries) {
  return async (signal, tell) => {
    /** @type {Chosen[]} */
    const found = []
    const waiting = entries.filter(entry => entry !== null).reverse()
    while (waiting.length && found.length <= MOST_FILES && !signal.aborted) {
      const entry = waiting.pop()
      if (entry?.isFile) found.push(...await fileOf(entry))
      else if (entry && !NOT_OURS.test(entry.name)) {
        const inside = await listed(/** @type {FileSystemDirectoryEntry} */ (entry), signal)
        waiting.push(...inside.filter(one => one.isDirectory))
        const files = inside.filter(one => one.isFile)
        for (let at = 0; at < files.length && found.length <= MOST_FILES; at += AT_ONCE) found.push(...(await Promise.all(files.slice(at, at + AT_ONCE).map(fileOf))).flat())
      }
      tell(found.length)
    }
    return found
  }
}

/** @param {FileSystemEntry} entry @returns {Promise<Chosen[]>} none where the browser may not read it */
function fileOf(entry) {
  const path = entry.fullPath.replace(/^\//, "")
  return new Promise(resolve => { /** @type {FileSystemFileEntry} */ (entry).file(file => resolve([{ path, file }]), () => resolve([])) })
}

/** @param {FileSystemDirectoryEntry} folder @param {AbortSignal} signal @returns {Promise<FileSystemEntry[]>} */
async function listed(folder, signal) {
  const reader = folder.createReader(), found = []
  for (;;) {  // a reader returns at most a hundred at a time
    const some = await /** @type {Promise<FileSystemEntry[]>} */ (new Promise((resolve, reject) => { reader.readEntries(resolve, reject) })).catch(() => [])
    if (!some.length || signal.aborted || found.length > MOST_FILES) return found
    found.push(...some)
  }
}

export class Drops {
  #opener
  #importer
  #server
  #shell

  /**
   * Watches for drops anywhere on the page.
   * @param {HTMLElement} host
   * @param {import("./opener.js").Opener} opener
   * @param {import("./importer.js").Importer} importer
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/shell.js").Shell} shell
   */
  constructor(host, opener, importer, server, shell) {
    this.#opener = opener
    this.#importer = importer
    this.#server = server
    this.#shell = shell
    const veil = h("div", { class: "drop-veil", hidden: true, "aria-hidden": "true" }, h("p", {}, "Drop to open a document, or to import a file or a folder"))
    host.append(veil)
    const brings = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") ?? false
    document.addEventListener("dragover", event => {
      if (!brings(event)) return
      event.preventDefault()
      veil.hidden = false
    }, true)
    document.addEventListener("dragleave", event => { if (!event.relatedTarget) veil.hidden = true }, true)
    document.addEventListener("drop", async event => {
      if (!brings(event) || !event.dataTransfer) return
      event.preventDefault()
      event.stopPropagation()  // an editor would insert the bytes
      veil.hidden = true
      // The items are only available during the event, so collect them first.
      const { items, files } = event.dataTransfer
      const entries = [...items].filter(({ kind }) => kind === "file").map(item => item.webkitGetAsEntry?.() ?? null)
      if (entries.some(entry => entry?.isDirectory)) await this.#importer.look(walk(entries))
      else await this.take([...files].map(file => ({ path: file.name, file })))
    }, true)
  }

  /** Opens PML documents, schemas before prompts; imports runs and all other files. @param {Chosen[]} files */
  async take(files) {
    const loose = files.filter(({ path }) => !path.includes("/"))
    if (loose.length === 1 && files.length === 1 && await holdsRuns(files[0].file)) return bringRuns(files[0].file, this.#server, this.#shell)
    const documents = loose.length === files.length && files.length <= 2 && files.every(({ path }) => DOCUMENT.test(path))
    if (!documents || !files.length) return this.#importer.look(files.filter(({ path }) => !path.split("/").slice(0, -1).some(folder => NOT_OURS.test(folder))))
    const ordered = await Promise.all(files.map(async ({ file }) => ({ file, schema: /<schema\b/.test(await file.slice(0, 16_384).text()) })))
    for (const { file } of ordered.sort((a, b) => Number(b.schema) - Number(a.schema))) await this.#opener.openChosen(file)
  }
}
