// A confirmation before an action that cannot be undone.
import { h } from "./dom.js"

// Ignores a double click's second click, which may have been meant for another element.
const once = (/** @type {MouseEvent} */ event) => { if (event.detail > 1) event.preventDefault() }

/**
 * Whether the user confirmed. Closing and Escape cancel.
 * @param {HTMLElement} host
 * @param {string} sentence
 * @param {string} action the confirm button's label
 * @returns {Promise<boolean>}
 */
export function confirmed(host, sentence, action) {
  return new Promise(resolve => {
    const answered = () => { dialog.remove(); resolve(dialog.returnValue === "yes") }
    const dialog = h("dialog", { class: "question", "aria-label": action, onclose: answered },
      h("form", { method: "dialog" },
        h("p", {}, sentence),
        h("div", { class: "buttons" },
          h("button", { value: "yes", class: "danger", onclick: once }, action),
          h("button", { value: "no", autofocus: true }, "Cancel"))))
    host.append(dialog)
    dialog.showModal()
  })
}
