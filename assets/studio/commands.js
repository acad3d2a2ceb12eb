// What can be done, by name: for the command palette, wherever on the page it is done otherwise.

/**
 * @typedef {{
 *   title: string, run: () => unknown, group?: string, keys?: string, words?: string, when?: () => boolean,
 * }} Command `title`: what it does, in a few words; `group`: where it belongs, as "Page" or "File"; `keys`: its shortcut as people read it;
 *   `words`: others that it is looked for by; `when`: whether it can be done now
 */

export class Commands {
  /** @type {Set<Command>} */
  #commands = new Set()
  /** @type {Set<() => Command[]>} */
  #sources = new Set()

  /** Adds commands; what takes them away again. @param {...Command} commands */
  add(...commands) {
    for (const one of commands) this.#commands.add(one)
    return () => { for (const one of commands) this.#commands.delete(one) }
  }

  /** Commands that are asked for whenever the palette opens. @param {() => Command[]} source */
  from(source) { this.#sources.add(source) }

  /** Those that can be done now, in the order in which they were added. */
  available() { return [...this.#commands, ...[...this.#sources].flatMap(source => source())].filter(({ when }) => when?.() ?? true) }
}
