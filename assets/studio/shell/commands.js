// The commands of the command palette.

/**
 * @typedef {{
 *   title: string, run: () => unknown, group?: string, keys?: string, words?: string, when?: () => boolean,
 * }} Command `title`: a short description; `group`: its group, as "Page" or "File"; `keys`: its shortcut for display;
 *   `words`: further search words; `when`: whether it is available
 */

export class Commands {
  /** @type {Set<Command>} */
  #commands = new Set()
  /** @type {Set<() => Command[]>} */
  #sources = new Set()

  /** Adds commands; returns a function that removes them. @param {...Command} commands */
  add(...commands) {
    for (const one of commands) this.#commands.add(one)
    return () => { for (const one of commands) this.#commands.delete(one) }
  }

  /** Adds a source that is queried whenever the palette opens. @param {() => Command[]} source */
  from(source) { this.#sources.add(source) }

  /** The available commands in the order of addition. */
  available() { return [...this.#commands, ...[...this.#sources].flatMap(source => source())].filter(({ when }) => when?.() ?? true) }
}
