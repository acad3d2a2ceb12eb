// The Decide tab: typed questions about the prompt, answered with probabilities on both sides.
import { h } from "../base/dom.js"
import { decidesReading } from "../runs/influence.js"
import { originOf } from "../runs/staleness.js"
import { ofDecisions } from "../shell/settings.js"
import { Asking } from "./asking.js"
import { decidedView } from "./decided.js"

const ABOUT = "Decide shows how probable the model finds each option of a question about the prompt, with the cache and without it. It generates no text."

/** Adds the tab; returns its readout settings. @param {import("../studio.js").Studio} studio @param {import("../base/tabs.js").Tabs} tabs */
export function addDecideTab(studio, tabs) {
  const { workspace, belonging } = studio
  /** @type {import("../runs/staleness.js").Origin | null} */
  let of = null
  /** @type {Asking<Api.DecidedPrompt>} */
  const asking = new Asking(studio.server, workspace, "decide", (key, questions) => {
    const { origin, settings } = workspace
    return studio.server.ask("decide_prompt", { key, origin, settings, ...workspace.texts(), questions })
  }, () => studio.drawer?.refusal() ?? "")
  const about = h("p", { class: "soft decide-about" }, ABOUT), age = h("p", { class: "decide-age", role: "status" }), result = h("div", { class: "decide-result" })
  const showAge = () => {
    const differs = of ? belonging.sentence(of, name => decidesReading(name) || ofDecisions(name)) || (asking.asksOthers ? "with other questions" : "") : ""
    age.textContent = differs && `Decided ${differs}. Decide again.`
  }
  asking.on("decided", ({ result: decided, own }) => {
    of = originOf(decided)
    about.hidden = true
    result.replaceChildren(...decidedView(decided))
    showAge()
    if (!own) return
    result.querySelector("table")?.scrollIntoView({ block: "nearest" })
    studio.emit("stored")
  })
  workspace.on("checked", ({ prompt }) => { asking.form.take(prompt.decides); showAge() })
  asking.form.on("changed", showAge)
  belonging.on("changed", showAge)
  tabs.add("decide", "Decide", h("section", { class: "panel decide", "aria-label": "Decide" }, about, asking.node, age, result))
  studio.commands.add({ title: "Go to Decide", group: "Decide", words: "questions probabilities predicate choice score", run: () => { studio.shell.go("author"); tabs.show("decide"); asking.form.focus() } })
  asking.restore()
  return asking.readout
}
