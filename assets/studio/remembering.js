// What this browser remembers of how the page is used: places of borders, chosen tabs, what was seen once.

const PREFIX = "prompt-cache-studio."

/** What is kept under a name, null for nothing; with a value: keeps it, where the browser has room. @param {string} name @param {string} [value] */
export function remembered(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(PREFIX + name, value)
    return localStorage.getItem(PREFIX + name)
  } catch {
    return null
  }
}

/** @param {string} name */
export function forgotten(name) {
  try { localStorage.removeItem(PREFIX + name) } catch { /* nothing was kept */ }
}
