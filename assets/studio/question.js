// A question before something that cannot be taken back.
import { h } from "./dom.js"

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
          h("button", { value: "yes" }, action),
          h("button", { value: "no", autofocus: true }, "Cancel"))))
    host.append(dialog)
    dialog.showModal()
  })
}
