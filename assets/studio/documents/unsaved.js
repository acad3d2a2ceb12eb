// Unsaved text in this browser's storage: one entry per tab, until the server has it.
import { newKey, pause } from "../base/dom.js"

const PREFIX = "prompt-cache-studio.unsaved."
const TAB = "studio-tab"
const RELEASE_MS = 1500
const CLOSING_MS = 400
const lock = (/** @type {string} */ tab) => `prompt-cache-studio.tab.${tab}`

/** @typedef {Required<Api.Page> & {at?: number}} KeptPage the editors' contents, and the time */

// A tab holds a lock while it is open. After a reload it may have to wait for the previous page.
/** @param {string} tab @returns {Promise<boolean>} */
function hold(tab) {
  if (!navigator.locks) return Promise.resolve(true)
  return new Promise(resolve => {
    const held = () => { resolve(true); return new Promise(() => {}) }
    navigator.locks.request(lock(tab), { signal: AbortSignal.timeout(RELEASE_MS) }, held).catch(() => resolve(false))
  })
}

/** @param {string} key @returns {KeptPage | null} */
function read(key) {
  try { return JSON.parse(localStorage.getItem(key) ?? "null") } catch { return null }
}

export class Unsaved {
  #key = ""

  /** Finds this tab's name. A duplicated tab gets a new one. */
  async claim() {
    let tab = sessionStorage.getItem(TAB)
    if (!tab || !await hold(tab)) {
      tab = newKey()
      await hold(tab)
      sessionStorage.setItem(TAB, tab)
    }
    this.#key = PREFIX + tab
  }

  /** Stores a page at once; false if the browser has no room. @param {Required<Api.Page>} page */
  keep(page) {
    try { localStorage.setItem(this.#key, JSON.stringify({ ...page, at: Date.now() })) } catch { return false }
    return true
  }

  /** This tab's stored page, or null. */
  own() { return read(this.#key) }

  /** The stored pages of closed tabs as [key, page], oldest first. @returns {Promise<[string, KeptPage][]>} */
  async left() {
    const others = () => Object.keys(localStorage).filter(key => key.startsWith(PREFIX) && key !== this.#key)
    const living = async () => {
      const held = new Set((await navigator.locks?.query())?.held?.map(({ name }) => name))
      return others().filter(key => held.has(lock(key.slice(PREFIX.length))))
    }
    // A tab closed just now may still hold its lock.
    if ((await living()).length) await pause(CLOSING_MS)
    const alive = await living(), keys = others().filter(key => !alive.includes(key))
    const kept = keys.flatMap(key => { const page = read(key); return page ? [/** @type {[string, KeptPage]} */ ([key, page])] : [] })
    return kept.sort(([, a], [, b]) => (a.at ?? 0) - (b.at ?? 0))
  }

  forget(key = this.#key) { localStorage.removeItem(key) }
}
