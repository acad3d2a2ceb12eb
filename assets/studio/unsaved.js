// Text that the server has not kept yet, in this browser's storage: one entry for each tab, until the server has it.
import { newKey, pause } from "./dom.js"

const PREFIX = "prompt-cache-studio.unsaved."
const TAB = "studio-tab"
const RELEASE_MS = 1500
const CLOSING_MS = 400
const lock = (/** @type {string} */ tab) => `prompt-cache-studio.tab.${tab}`

/** @typedef {Required<Api.Page> & {at?: number}} KeptPage what stood in the editors, and when */

// A tab holds its lock while it lives. A page that is loaded again may have to wait until its predecessor is gone.
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

  /** Finds out which tab this is. A duplicated tab brings along the name of one that lives, and gets its own. */
  async claim() {
    let tab = sessionStorage.getItem(TAB)
    if (!tab || !await hold(tab)) {
      tab = newKey()
      await hold(tab)
      sessionStorage.setItem(TAB, tab)
    }
    this.#key = PREFIX + tab
  }

  /** Keeps a page here at once; false where the browser has no room. @param {Required<Api.Page>} page */
  keep(page) {
    try { localStorage.setItem(this.#key, JSON.stringify({ ...page, at: Date.now() })) } catch { return false }
    return true
  }

  /** What this tab kept, or null. */
  own() { return read(this.#key) }

  /** What tabs that are gone have kept, as [key, page], the oldest first. @returns {Promise<[string, KeptPage][]>} */
  async left() {
    const others = () => Object.keys(localStorage).filter(key => key.startsWith(PREFIX) && key !== this.#key)
    const living = async () => {
      const held = new Set((await navigator.locks?.query())?.held?.map(({ name }) => name))
      return others().filter(key => held.has(lock(key.slice(PREFIX.length))))
    }
    // The lock of a tab that was closed a moment ago may still be held.
    if ((await living()).length) await pause(CLOSING_MS)
    const alive = await living(), keys = others().filter(key => !alive.includes(key))
    const kept = keys.flatMap(key => { const page = read(key); return page ? [/** @type {[string, KeptPage]} */ ([key, page])] : [] })
    return kept.sort(([, a], [, b]) => (a.at ?? 0) - (b.at ?? 0))
  }

  forget(key = this.#key) { localStorage.removeItem(key) }
}
