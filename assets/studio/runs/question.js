// The question above the answers, and the results before the first run.
import { h } from "../base/dom.js"
import { keysOf } from "../shell/shortcuts.js"

const STEPS = ["Tick the modules that the prompt includes.", "Write your question in the prompt.", "Run. The studio answers twice: from the cache and without it."]
const NOTE = "Reused modules save time, but they can change the answer. The results show both."

export class Question {
  #text = h("p", { class: "question-text", tabindex: "0" })
  #own = h("section", { class: "question", "aria-label": "Question", hidden: true }, h("h2", {}, "Question"), this.#text)
  #first
  #now = ""
  /** Questions of this page's runs, by number. @type {Map<number, string>} */
  #asked = new Map()
  #number = 0
  node = h("div", { class: "asked" })

  /** @param {import("../documents/workspace.js").Workspace} workspace @param {import("./run_bar.js").RunBar} runBar */
  constructor(workspace, runBar) {
    this.#first = h("section", { class: "first-run", "aria-label": "Before the first run" },
      h("ol", {}, ...STEPS.map(step => h("li", {}, step))), h("p", { class: "soft" }, NOTE),
      h("button", { type: "button", class: "primary", title: keysOf("run"), onclick: () => runBar.start() }, "Run the prompt"))
    this.node.append(this.#own, this.#first)
    workspace.on("checked", ({ prompt }) => { this.#now = prompt.question; this.#show() })
  }

  /** Shows the question of a run. @param {number} number of this session's run, else 0 @param {boolean} begun whether it begins now */
  of(number, begun) {
    this.#first.hidden = true
    if (begun && !this.#asked.has(number)) this.#asked.set(number, this.#now)
    this.#number = number
    this.#show()
  }

  #show() {
    const asked = this.#asked.get(this.#number), words = asked ?? this.#now
    this.#own.hidden = !words
    this.#own.toggleAttribute("data-now", asked === undefined)
    this.#text.textContent = words
  }
}
