// The samples as cards, ready to run.
import { h } from "../base/dom.js"

const MOST_PICKED = 6

/** Names of picked modules: the first few, and a button for the rest. @param {string[]} names */
function pickedNames(names) {
  const codes = names.map(name => h("code", {}, name)), rest = codes.slice(MOST_PICKED)
  if (!rest.length) return h("div", { class: "picked" }, ...codes)
  for (const code of rest) code.hidden = true
  const title = rest.map(code => code.textContent).join(", ")
  const more = h("button", { type: "button", class: "more", title, "aria-label": `${rest.length} more: ${title}`, "aria-expanded": "false", onclick: () => {
    const open = more.getAttribute("aria-expanded") !== "true"
    for (const code of rest) code.hidden = !open
    more.setAttribute("aria-expanded", String(open))
    more.textContent = open ? "fewer" : `+${rest.length}`
  } }, `+${rest.length}`)
  return h("div", { class: "picked" }, ...codes, more)
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount({ hosts, server, shell }) {
  const cards = h("div", { class: "cards" })
  hosts.gallery.append(
    h("h2", {}, "Gallery"),
    h("p", { class: "soft lead" }, "Each sample opens in the Author page with one of its prompts, ready to run. Your current text is saved under File, Versions."),
    cards)

  const card = (/** @type {Api.Sample} */ sample) => h("article", { class: "card", "aria-label": sample.title },
    h("h3", {}, sample.title),
    h("p", {}, sample.description),
    sample.program ? h("details", { class: "program" }, h("summary", {}, "The program"),
      h("pre", { tabindex: "0", role: "region", "aria-label": `Program of ${sample.title}` }, sample.program)) : null,
    h("ul", { class: "prompts", "aria-label": "Prompts" }, ...sample.prompts.map(({ picked, words }, index) => h("li", {},
      h("button", { type: "button", class: "open", "aria-label": `Open ${sample.title} with prompt ${index + 1}`, onclick: () => shell.open("open_sample", { name: sample.name, prompt: index }) },
        h("span", { class: "prompt-words" }, words || "Without text"), h("span", { class: "go" }, "Open")),
      picked.length ? pickedNames(picked) : null))))

  return {
    async begin() {
      const { samples, error } = await server.ask("list_samples", {})
      if (error) shell.notice(error)
      if (samples) cards.replaceChildren(...samples.map(card))
    },
  }
}
