// Typed events, each with its detail.

/** @template {Record<string, any>} Events what happens, and the type of its detail */
export class Emitter {
  #target = new EventTarget()

  /**
   * @template {keyof Events & string} Name
   * @param {Name} name
   * @param {(detail: Events[Name]) => unknown} action
   */
  on(name, action) { this.#target.addEventListener(name, event => { action(/** @type {CustomEvent} */ (event).detail) }) }

  /**
   * Listens to the next event only.
   * @template {keyof Events & string} Name
   * @param {Name} name
   * @param {(detail: Events[Name]) => unknown} action
   */
  once(name, action) { this.#target.addEventListener(name, event => { action(/** @type {CustomEvent} */ (event).detail) }, { once: true }) }

  /**
   * @template {keyof Events & string} Name
   * @param {Name} name
   * @param {Events[Name]} [detail]
   */
  emit(name, detail) { this.#target.dispatchEvent(new CustomEvent(name, { detail })) }
}
