// The question above the answers, and the results before the first run.
import { h } from "../base/dom.js"
import { keysOf } from "../shell/shortcuts.js"

const STEPS = ["Tick the modules that the prompt includes.", "Write your question in the prompt.", "Run. The studio answers twice: from the cache and without it."]
const NOTE = "Reused modules save time, but they can change the answer. The results show both."

export class Question {
  #text = h("p", { class: "question-text", tabindex: "0" })
  #title = h("h2", {}, "Question")
  #own = h("section", { class: "question", "aria-label": "Question", hidden: true }, this.#title, this.#text)
  #first
  #now = ""
  #asked = ""
  node = h("div", { class: "asked" })

  /** @param {import("../documents/workspace.js").Workspace} workspace @param {import("./run_bar.js").RunBar} runBar */
  constructor(workspace, runBar) {
    this.#first = h("section", { class: "first-run", "aria-label": "Before the first run" },
      h("ol", {}, ...STEPS.map(step => h("li", {}, step))), h("p", { class: "soft" }, NOTE),
      h("button", { type: "button", class: "primary", title: keysOf("run"), onclick: () => runBar.start() }, "Run the prompt"))
    this.node.append(this.#own, this.#first)
    workspace.on("checked", ({ prompt }) => { this.#now = prompt.question; this.#show() })
  }

  /** Shows the question of a run. @param {Api.RunFrame} run */
  of({ question }) {
    this.#first.hidden = true
    this.#asked = question
    this.#show()
  }

  #show() {
    const words = this.#asked || this.#now
    this.#own.hidden = !words
    this.#title.textContent = this.#asked ? "Question" : "Question now:"
    this.#text.textContent = words
  }
}
