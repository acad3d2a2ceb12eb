// The samples as cards, each ready to run.
import { h } from "../dom.js"

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount({ hosts, server, shell }) {
  const cards = h("div", { class: "cards" })
  hosts.gallery.append(
    h("h2", {}, "Gallery"),
    h("p", { class: "soft lead" }, "Each sample opens in the Author page with one of its prompts, ready to run. The text you have there now is kept under File, Earlier workspaces."),
    cards)

  const card = (/** @type {Api.Sample} */ sample) => h("article", { class: "card", "aria-label": sample.title },
    h("h3", {}, sample.title),
    h("p", {}, sample.description),
    h("ul", { class: "prompts", "aria-label": "Prompts" }, ...sample.prompts.map(({ picked, words }, index) => h("li", {},
      h("button", { type: "button", "aria-label": `Open ${sample.title} with prompt ${index + 1}`, onclick: () => shell.open("open_sample", { name: sample.name, prompt: index }) },
        h("span", { class: "prompt-words" }, words || "Without further text"),
        picked.length ? h("span", { class: "picked" }, ...picked.slice(0, 6).map(name => h("code", {}, name))) : null,
        h("span", { class: "go" }, "Open"))))))

  return {
    async begin() {
      const { samples, error } = await server.ask("list_samples", {})
      if (error) shell.notice(error)
      if (samples) cards.replaceChildren(...samples.map(card))
    },
  }
}
