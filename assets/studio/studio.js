// Puts the page together. Gradio calls one function per host element; the page starts when all of them are there.
import { h, pause, plural } from "./dom.js"
import { Server } from "./server.js"
import { Workspace } from "./workspace.js"
import { Picker } from "./picker.js"
import { Strip } from "./strip.js"
import { Panes } from "./panes.js"
import { Explanation } from "./fidelity.js"
import { CachePage } from "./cache.js"
import { RunBar } from "./runbar.js"
import { History } from "./history.js"
import { Shell } from "./shell.js"
import { showGallery } from "./gallery.js"

const TITLES = { schema: "Schema", prompt: "Prompt" }
const SIGNS = { error: "✕", warning: "!", info: "i" }
const hosts = new Map()
const server = new Server()
const workspace = new Workspace(server)
let gradio = null
let started = false

function documentPanel(kind, keys) {
  const status = h("span", { class: "status", role: "status" }), facts = h("span", { class: "soft" })
  const editor = h("div", { class: "editor" })
  const format = h("button", { type: "button", class: "quiet", title: "Format (Shift Alt F)", onclick: () => workspace.format(kind) }, "Format")
  const problems = h("ul", { class: "problems", "aria-label": `Problems of the ${kind}`, hidden: true })
  workspace.addEventListener("problems", ({ detail }) => { if (detail.kind === kind) showProblems(kind, detail.list, status, problems) })
  if (kind === "schema") workspace.addEventListener("checked", ({ detail }) => { facts.textContent = plural(detail.schema.modules, "module") })
  else workspace.addEventListener("measured", ({ detail }) => { facts.textContent = detail.strip ? plural(detail.strip.total, "token") : "" })
  const panel = h("section", { class: `panel ${kind}`, "aria-label": TITLES[kind] },
    h("header", { class: "bar" }, h("h2", {}, TITLES[kind]), status, h("span", { class: "grow" }), facts, format), editor, problems)
  workspace.mount(kind, editor, { ...keys, "Shift-Alt-f": () => workspace.format(kind) })
  return panel
}

function showProblems(kind, list, status, problems) {
  const errors = list.filter(({ severity }) => severity === "error").length
  const warnings = list.filter(({ severity }) => severity === "warning").length
  status.textContent = [errors && plural(errors, "error"), warnings && plural(warnings, "warning")].filter(Boolean).join(", ") || "no problems"
  status.dataset.mood = errors ? "bad" : warnings ? "warn" : "good"
  problems.hidden = list.length === 0
  problems.replaceChildren(...list.slice(0, 100).map(({ severity, code, message, line, column, from }) => h("li", { class: severity },
    h("button", { type: "button", onclick: () => workspace.editors[kind].reveal(from) },
      h("span", { class: "sign", "aria-label": severity }, SIGNS[severity]), h("span", { class: "place" }, `${line}:${column}`),
      h("span", {}, `${code}: ${message}`)))))
}

// The editors measure their lines once; a font that comes later would leave the line numbers beside other lines.
function fontsReady() {
  const faces = ["400", "700"].map(weight => document.fonts.load(`${weight} 13px "IBM Plex Mono"`))
  return Promise.race([Promise.all(faces), pause(1500)]).catch(() => {})
}

async function start() {
  if (started || !["shell", "author", "history", "cache", "gallery"].every(part => hosts.has(part))) return
  started = true
  await fontsReady()
  server.connect(gradio.server)
  const shell = new Shell(hosts.get("shell"), workspace, server)
  const runHost = h("div", { class: "run-host" })
  const runBar = new RunBar(runHost, workspace, server, gradio.trigger)
  const keys = { "Mod-Enter": () => runBar.start(), "Mod-s": () => shell.save() }

  const picker = h("section", { class: "panel picker", "aria-label": "Modules" })
  const strip = h("section", { class: "strip", "aria-label": "Layout" })
  const panes = h("div", { class: "panes" }), about = h("p", { class: "soft about-model", hidden: true })
  const explained = h("section", { class: "explanation", "aria-label": "What reuse changed" })
  const explanation = new Explanation(explained, workspace, server)
  explanation.addEventListener("repair", ({ detail }) => runBar.set("repair", detail))
  explanation.addEventListener("scaffold", async ({ detail }) => explanation.say(await workspace.addScaffold(detail)))
  new Picker(picker, workspace, server)
  new Strip(strip, workspace)
  hosts.get("author").append(
    h("div", { class: "desk" }, picker, documentPanel("schema", keys), documentPanel("prompt", keys)), strip, runHost, panes, about, explained)

  const cache = new CachePage(hosts.get("cache"), server)
  runBar.addEventListener("frame", ({ detail }) => { if (detail.state !== "working" && location.hash === "#/cache") cache.refresh() })

  const shown = new Panes(panes)
  const history = new History(hosts.get("history"), async number => {
    const answer = await server.ask("show_run", { number })
    if (answer.error) return shell.notice(answer.error)
    if (answer.run && !runBar.running) { shown.show(answer.run); history.note(answer.run) }
  })
  runBar.addEventListener("frame", ({ detail }) => { shown.show(detail); history.note(detail) })
  gradio.watch("value", () => { if (gradio.props.value) runBar.take(JSON.parse(gradio.props.value)) })

  await begin(shell, runBar, shown, history, about)
}

async function begin(shell, runBar, shown, history, about) {
  const page = await server.ask("open_workspace")
  if (page.away) {
    server.addEventListener("back", () => begin(shell, runBar, shown, history, about), { once: true })
    return
  }
  if (page.error) {
    shell.notice(page.error, { actions: [["Try again", () => begin(shell, runBar, shown, history, about)]] })
    return
  }
  shell.start(page)
  about.textContent = page.model.about
  about.hidden = !page.model.about
  runBar.limits(page)
  showGallery(hosts.get("gallery"), page.samples, (name, prompt) => shell.open("open_sample", { name, prompt }))
  for (const run of page.runs) history.note(run)
  if (page.runs.length) shown.show(page.runs.at(-1))
  await workspace.start(page.workspace)
  document.documentElement.dataset.studio = "ready"
}

function host(part) {
  return parts => {
    const element = parts.element.querySelector(`.studio-${part}`)
    if (hosts.get(part) === element) return
    hosts.set(part, element)
    if (part === "shell") gradio = parts
    start()
  }
}

window.promptCacheStudio = { shell: host("shell"), author: host("author"), history: host("history"), cache: host("cache"), gallery: host("gallery"), workspace }
window.dispatchEvent(new Event("studio-ready"))
