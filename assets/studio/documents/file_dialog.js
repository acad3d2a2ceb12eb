// A dialog for one or two file names with errors next to the fields.
import { h } from "../base/dom.js"

let dialogs = 0

/**
 * Asks until `done` returns no error. Escape cancels.
 * @param {HTMLElement} host
 * @param {{
 *   title: string, action: string, about?: string,
 *   fields: {key: string, label: string, value: string, wanted?: boolean}[],
 *   others?: [string, () => unknown][], done: (values: Record<string, string>) => Promise<string>,
 * }} question `wanted`: adds a check box to skip this file; `others`: buttons that close the dialog; `done` returns "" or an error
 */
export function askNames(host, { title, action, about = "", fields, others = [], done }) {
  const number = ++dialogs, said = h("p", { class: "bad", role: "alert" })
  const rows = fields.map(({ key, label, value, wanted }) => {
    const id = `name-${number}-${key}`
    const input = h("input", { type: "text", id, required: true, autocomplete: "off", spellcheck: "false", value })
    const box = wanted == null ? null : h("input", { type: "checkbox", checked: wanted, "aria-label": `${action}: ${label}` })
    if (box) {
      input.disabled = !wanted
      box.addEventListener("change", () => { input.disabled = !box.checked; if (box.checked) input.focus() })
    }
    return { key, input, box, node: h("div", { class: "name" }, h("label", { for: id }, label), h("div", { class: "named" }, box, input)) }
  })
  const submit = h("button", { type: "submit", class: "primary" }, action)
  const form = h("form", { onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault()
    const taken = rows.filter(({ box }) => !box || box.checked)
    if (!taken.length) { said.textContent = "Choose at least one."; return }
    submit.disabled = true
    said.textContent = await done(Object.fromEntries(taken.map(({ key, input }) => [key, input.value.trim()])))
    submit.disabled = false
    if (!said.textContent) dialog.close()
  } },
  h("h2", {}, title), about ? h("p", { class: "about" }, about) : null, ...rows.map(({ node }) => node), said,
  h("div", { class: "buttons" }, submit, ...others.map(([words, run]) => h("button", { type: "button", onclick: () => { dialog.close(); run() } }, words)), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")))
  const dialog = h("dialog", { class: "names", "aria-label": title, onclose: () => dialog.remove() }, form)
  host.append(dialog)
  dialog.showModal()
  const first = rows.find(({ input }) => !input.disabled)?.input
  first?.focus()
  first?.select()
}
