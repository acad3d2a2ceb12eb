// The samples as cards, each ready to run.
import { h } from "./dom.js"

/** The prompt's text without its markup, for people to read. */
function gist(prompt) {
  const picked = [...prompt.matchAll(/<([A-Za-z_][\w.-]*)[^>]*\/>/g)].map(([, name]) => name)
  const words = prompt.replace(/<!--[\s\S]*?-->/g, " ").replace(/<[^>]*>/g, " ").replace(/\s+/g, " ").trim()
  return { picked, words: words.length > 150 ? `${words.slice(0, 149).trimEnd()}…` : words }
}

export function showGallery(host, samples, open) {
  host.replaceChildren(
    h("h2", {}, "Gallery"),
    h("p", { class: "soft lead" }, "Each sample opens in the Author page with one of its prompts, ready to run. The text you have there now is kept under File, Earlier workspaces."),
    h("div", { class: "cards" }, ...samples.map(sample => h("article", { class: "card", "aria-label": sample.title },
      h("h3", {}, sample.title),
      h("p", {}, sample.description),
      h("ul", { class: "prompts", "aria-label": "Prompts" }, ...sample.prompts.map((prompt, index) => {
        const { picked, words } = gist(prompt)
        return h("li", {}, h("button", { type: "button", "aria-label": `Open ${sample.title} with prompt ${index + 1}`, onclick: () => open(sample.name, index) },
          h("span", { class: "prompt-words" }, words || "Without further text"),
          picked.length ? h("span", { class: "picked" }, ...picked.slice(0, 6).map(name => h("code", {}, name))) : null,
          h("span", { class: "go" }, "Open")))
      }))))),
  )
}
