// Settings of the page's layout in this browser: splits, tabs, and the time of the last start.

const PREFIX = "prompt-cache-studio."

/** Returns a stored value or null; with a value, stores it if the browser has room. @param {string} name @param {string} [value] */
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
  try { localStorage.removeItem(PREFIX + name) } catch { /* nothing stored */ }
}
