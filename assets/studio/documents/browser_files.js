// Files that the browser itself reads and writes (File System Access API).
import { newKey } from "../base/dom.js"

const TYPES = [{ description: "PML documents", accept: { "application/xml": /** @type {`.${string}`[]} */ ([".pml", ".xml"]) } }]
const DATABASE = "prompt-cache-files", STORE = "files"
const MOST_FILES = 100

/** @typedef {{handle: FileSystemFileHandle, modified: number, size: number}} Known a file, with its state when a page read or wrote it */

/** Files by origin. @type {Map<string, Known>} */
const files = new Map()
/** @type {Promise<IDBDatabase> | null} */
let database = null

/** Whether this browser can save to a file that the user chooses. */
export const writesFiles = () => "showSaveFilePicker" in window

/** Whether this page may write the file of an origin. @param {string} origin */
export const writable = origin => files.has(origin)

/** @template Result @param {IDBRequest<Result>} request @returns {Promise<Result>} */
const done = request => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result)
  request.onerror = () => reject(request.error)
})

/** The files that outlive this page. */
async function stored() {
  if (!database) {
    const request = indexedDB.open(DATABASE)
    request.onupgradeneeded = () => request.result.createObjectStore(STORE)
    database = done(request)
  }
  return (await database).transaction(STORE, "readwrite").objectStore(STORE)
}

/** @param {string} origin @param {Known} known */
async function remember(origin, known) {
  files.set(origin, known)
  try { await done((await stored()).put({ ...known, at: Date.now() }, origin)) } catch { /* The next page asks for the file again. */ }
}

/** Reads the files of earlier pages; the user allows access to each again. */
export async function recall() {
  if (!writesFiles()) return
  try {
    const store = await stored(), [origins, all] = await Promise.all([done(store.getAllKeys()), done(store.getAll())])
    const latest = all.map((one, at) => ({ ...one, origin: String(origins[at]) })).sort((one, other) => other.at - one.at)
    for (const { origin, handle, modified, size } of latest.slice(0, MOST_FILES)) files.set(origin, { handle, modified, size })
    for (const { origin } of latest.slice(MOST_FILES)) store.delete(origin)
  } catch { /* A browser without this storage asks for the files again. */ }
}

/** Takes a file; returns its origin. @param {FileSystemFileHandle} handle @param {File} file */
export function taken(handle, { lastModified, size }) {
  const origin = `browser:${newKey()}/${handle.name}`
  remember(origin, { handle, modified: lastModified, size })
  return origin
}

/** Returns null if the user cancels. @template Chosen @param {Promise<Chosen>} choice @returns {Promise<Chosen | null>} */
async function chosen(choice) {
  try { return await choice } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return null
    throw error
  }
}

/** Asks for a file to open; null if the user cancels. */
export async function fileToOpen() {
  const [handle] = await chosen(showOpenFilePicker({ types: TYPES })) ?? []
  return handle ?? null
}

/** Asks for a file to save to; returns its origin, or "" if the user cancels. @param {string} name */
export async function fileToSave(name) {
  const handle = await chosen(showSaveFilePicker({ suggestedName: name, types: TYPES }))
  return handle ? taken(handle, await handle.getFile()) : ""
}

/** Returns a file from the disk, with its handle. @param {string} origin */
export async function read(origin) {
  const handle = files.get(origin)?.handle
  if (!handle) throw new Error("This file is not open.")
  return { handle, file: await handle.getFile() }
}

/** Compares a file with its state when this page read or wrote it. @param {string} origin @returns {Promise<Api.FileSeen>} */
export async function look(origin) {
  const known = files.get(origin), name = known?.handle.name
  try {
    if (await known?.handle.queryPermission({ mode: "read" }) === "prompt") return { origin, state: "same", message: "" }  // the first save asks
    const { lastModified, size } = (await read(origin)).file
    const same = lastModified === known?.modified && size === known.size
    return { origin, state: same ? "same" : "changed", message: same ? "" : `'${name}' was changed by another program. Nothing was written.` }
  } catch (error) {
    const gone = error instanceof DOMException && error.name === "NotFoundError"
    return { origin, state: "gone", message: gone ? `'${name}' no longer exists. Nothing was written.` : `'${name}' cannot be read: ${error instanceof Error ? error.message : error}` }
  }
}

/** Whether two origins are the same file. @param {string} one @param {string} other */
export async function sameFile(one, other) {
  const [first, second] = [one, other].map(origin => files.get(origin)?.handle)
  return Boolean(first && second && await first.isSameEntry(second))
}

/** Writes a file, unless another program changed or deleted it. @param {string} origin @param {string} text @param {boolean} force @returns {Promise<{saved?: boolean, origin?: string, refused?: "changed" | "gone", message?: string, error?: string, away?: undefined, stamp?: undefined}>} */
export async function write(origin, text, force) {
  const known = files.get(origin)
  if (!known) return { error: "This file is not open. Save it as a new file." }
  const { handle } = known, mode = "readwrite"
  try {
    if (await handle.queryPermission({ mode }) !== "granted" && await handle.requestPermission({ mode }) !== "granted") return { error: `'${handle.name}' was not saved: the browser has no permission to write it.` }
    const { state, message } = await look(origin)
    if (state !== "same" && !force) return { refused: state, message }
    const stream = await handle.createWritable()
    await stream.write(text)
    await stream.close()
    const { lastModified, size } = await handle.getFile()
    remember(origin, { handle, modified: lastModified, size })
    return { saved: true, origin }
  } catch (error) {
    return { error: `'${handle.name}' was not saved: ${error instanceof Error ? error.message : error}` }
  }
}
