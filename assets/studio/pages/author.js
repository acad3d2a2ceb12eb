// The Author page: modules, schema and prompt, the layout, a run of both sides, and what reuse changed.
import { h, pause, plural } from "../dom.js"
import { Drawer } from "../drawer.js"
import { Explanation } from "../fidelity.js"
import { History } from "../history.js"
import { Panes } from "../panes.js"
import { Picker } from "../picker.js"
import { RunBar } from "../runbar.js"
import { Strip } from "../strip.js"

const TITLES = { schema: "Schema", prompt: "Prompt" }
const SIGNS = { error: "✕", warning: "!", info: "i" }
const MOST_PROBLEMS = 100
const ASK_AGAIN_MS = 500

/** Elements besides its own that the page fills. */
export const hosts = ["history"]

/**
 * @typedef {import("../workspace.js").Kind} Kind
 * @typedef {import("../workspace.js").Workspace} Workspace
 */

/** @param {Workspace} workspace @param {Kind} kind @param {Record<string, () => unknown>} keys */
function documentPanel(workspace, kind, keys) {
  const status = h("span", { class: "status", role: "status" }), facts = h("span", { class: "soft" })
  const editor = h("div", { class: "editor" })
  const format = h("button", { type: "button", class: "quiet", title: "Format (Shift Alt F)", onclick: () => workspace.format(kind) }, "Format")
  const problems = h("ul", { class: "problems", "aria-label": `Problems of the ${kind}`, hidden: true })
  workspace.on("problems", one => { if (one.kind === kind) showProblems(workspace, kind, one.list, status, problems) })
  if (kind === "schema") workspace.on("checked", ({ schema }) => { facts.textContent = plural(schema.modules, "module") })
  else workspace.on("measured", ({ strip }) => { facts.textContent = strip ? plural(strip.total, "token") : "" })
  const panel = h("section", { class: `panel ${kind}`, "aria-label": TITLES[kind] },
    h("header", { class: "bar" }, h("h2", {}, TITLES[kind]), status, h("span", { class: "grow" }), facts, format), editor, problems)
  workspace.mount(kind, editor, { ...keys, "Shift-Alt-f": () => workspace.format(kind) })
  return panel
}

/** @param {Workspace} workspace @param {Kind} kind @param {Api.Mark[]} list @param {HTMLElement} status @param {HTMLElement} problems */
function showProblems(workspace, kind, list, status, problems) {
  const errors = list.filter(({ severity }) => severity === "error").length
  const warnings = list.filter(({ severity }) => severity === "warning").length
  status.textContent = [errors && plural(errors, "error"), warnings && plural(warnings, "warning")].filter(Boolean).join(", ") || "no problems"
  status.dataset.mood = errors ? "bad" : warnings ? "warn" : "good"
  problems.hidden = list.length === 0
  problems.replaceChildren(...list.slice(0, MOST_PROBLEMS).map(({ severity, code, message, line, column, from }) => h("li", { class: severity },
    h("button", { type: "button", onclick: () => workspace.editors[kind].reveal(from) },
      h("span", { class: "sign", "aria-label": severity }, SIGNS[severity]), h("span", { class: "place" }, `${line}:${column}`),
      h("span", {}, `${code}: ${message}`)))))
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const { server, workspace, shell, gradio } = studio
  const runHost = h("div", { class: "run-host" })
  const drawer = new Drawer(workspace), runBar = new RunBar(runHost, workspace, server, drawer, gradio.trigger)
  const keys = { "Mod-Enter": () => runBar.start(), "Mod-s": () => shell.save() }

  const picker = h("section", { class: "panel picker", "aria-label": "Modules" })
  const strip = h("section", { class: "strip", "aria-label": "Layout" })
  const answers = h("div", { class: "answers" }), about = h("p", { class: "soft about-model", hidden: true })
  const explained = h("section", { class: "explanation", "aria-label": "What reuse changed" })
  const explanation = new Explanation(explained, workspace, server, drawer)
  explanation.on("repair", setting => drawer.set("repair", setting))
  explanation.on("scaffold", async modules => explanation.say(await workspace.addScaffold(modules)))
  drawer.on("set back", sentence => {
    if (sentence) shell.notice(sentence, { key: "settings", mood: "info", closed: () => drawer.accept() })
    else shell.dismiss("settings")
  })
  shell.on("shown", page => { if (page !== "author") drawer.accept() })
  const layout = new Strip(strip, workspace)
  studio.hosts.author.append(
    h("div", { class: "desk" }, picker, documentPanel(workspace, "schema", keys), documentPanel(workspace, "prompt", keys)),
    strip, runHost, answers, about, explained)
  studio.on("model", model => {
    about.textContent = model.about
    about.hidden = !model.about
  })
  runBar.on("frame", ({ state }) => {
    if (state !== "working") studio.emit("stored")
    if (state === "done") drawer.accept()
  })
  gradio.watch("value", () => { if (gradio.props.value) runBar.take(JSON.parse(gradio.props.value)) })

  return {
    begin(start) {
      new Picker(picker, workspace, server, start.tiers)
      layout.tiers = start.tiers
      drawer.offer(start.settings)

      const shown = new Panes(answers, start.timeline_parts)
      workspace.on("checked", ({ texts }) => shown.beside(texts))
      workspace.on("problems", () => shown.hindered(workspace.faulty()))
      let current = 0
      const show = (/** @type {Api.RunFrame} */ run) => {
        current = run.number
        shown.show(run)
        history.note(run)
      }
      // A run that this page does not follow, of another tab or of the page before this one, is asked about until it is over.
      const watch = async (/** @type {Api.RunFrame} */ run) => {
        for (let next = run; next.state === "working" && current === run.number && !runBar.running;) {
          await pause(ASK_AGAIN_MS)
          next = (await server.ask("show_run", { number: run.number })).run ?? next
          if (current !== run.number || runBar.running) return
          show(next)
          if (next.state !== "working") workspace.remeasure()
        }
      }
      const history = new History(studio.hosts.history, async number => {
        const { run, error } = await server.ask("show_run", { number })
        if (error) return shell.notice(error)
        if (run && !runBar.running) { show(run); watch(run) }
      })
      runBar.on("frame", show)
      for (const run of start.runs) history.note(run)
      const last = start.runs.at(-1)
      if (last) { show(last); watch(last) }
    },
  }
}
