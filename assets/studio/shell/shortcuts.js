// Shortcuts with their keys, in the order of the help.

/** @typedef {keyof typeof SHORTCUTS} Shortcut */

export const SHORTCUTS = {
  run: { what: "Run the prompt; on the Batch page, the rows", keys: ["Ctrl Enter"] },
  stop: { what: "Stop the run; close a dialog", keys: ["Esc"] },
  commands: { what: "Open the command palette", keys: ["Ctrl K", "Ctrl Shift P"] },
  help: { what: "This help", keys: ["?"] },
  save: { what: "Save", keys: ["Ctrl S"] },
  format: { what: "Format a document", keys: ["Shift Alt F"] },
  rename: { what: "Rename the module, parameter or schema at the caret", keys: ["F2"] },
  undo: { what: "Undo, redo", keys: ["Ctrl Z", "Ctrl Y"] },
  complete: { what: "Complete", keys: ["Ctrl Space"] },
  search: { what: "Search in a document", keys: ["Ctrl F"] },
  problem: { what: "Next problem", keys: ["F8"] },
  mend: { what: "Apply the quick fix at the caret", keys: ["Ctrl ."] },
  leave: { what: "Leave an editor", keys: ["Esc, then Tab"] },
  border: { what: "Move a separator between panels", keys: ["← →, with Shift further, Enter back"] },
}

/** A shortcut's keys for display. @param {Shortcut} name */
export const keysOf = name => SHORTCUTS[name].keys.join(", ")

/** Whether a key event is a shortcut; Command counts as Ctrl. @param {KeyboardEvent} event @param {Shortcut} name */
export function pressed(event, name) {
  return SHORTCUTS[name].keys.some(words => {
    const parts = words.split(" "), key = (parts.at(-1) ?? "").toLowerCase(), signs = key.length === 1 && key === key.toUpperCase()
    if (event.key.toLowerCase() !== (key === "esc" ? "escape" : key)) return false
    // Some keyboards need Shift for a symbol.
    return parts.includes("Ctrl") === (event.ctrlKey || event.metaKey) && parts.includes("Alt") === event.altKey && (signs || parts.includes("Shift") === event.shiftKey)
  })
}

/** A shortcut's first keys in CodeMirror's syntax. @param {Shortcut} name */
export const inEditor = name => SHORTCUTS[name].keys[0].split(" ").map((key, at, all) => key === "Ctrl" ? "Mod" : at === all.length - 1 && key.length === 1 ? key.toLowerCase() : key).join("-")
