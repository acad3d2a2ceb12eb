// A question before something that cannot be taken back.
import { h } from "./dom.js"

// The second click of a double click may have been meant for what lay there before.
const once = (/** @type {MouseEvent} */ event) => { if (event.detail > 1) event.preventDefault() }

/**
 * Whether the user wants `action` to be done. Closing the question, and Escape, are a no.
 * @param {HTMLElement} host
 * @param {string} sentence
 * @param {string} action on the button that says yes
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
