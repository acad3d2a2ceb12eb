// The Author page: modules, schema and prompt, the layout, a run of both sides, and fidelity.
import { askNames } from "../documents/file_dialog.js"
import { AnswerCost } from "../runs/answer_cost.js"
import { AWAY } from "../base/jobs.js"
import { Chat } from "../chat/chat.js"
import { when } from "../runs/compare.js"
import { addDecideTab } from "../decide/decide.js"
import { h, pause, plural } from "../base/dom.js"
import { explainOnFocus } from "../base/tips.js"
import { Drawer } from "../shell/settings_drawer.js"
import { Explanation } from "../runs/fidelity.js"
import { FormView } from "../form/form_view.js"
import { History } from "../runs/run_history.js"
import { tellSizes } from "../prompt/hover.js"
import { Owing } from "../runs/influence.js"
import { Panes } from "../runs/panes.js"
import { Ratings } from "../runs/rating.js"
import { Picker } from "../prompt/picker.js"
import { Question } from "../runs/question.js"
import { compareWithModel } from "../runs/second_model.js"
import { Problems } from "../documents/problems.js"
import { Reads } from "../prompt/prompt_view.js"
import { RunBar, cutOff } from "../runs/run_bar.js"
import { CHOICES, ENCODE } from "../runs/run_menu.js"
import { inEditor, keysOf } from "../shell/shortcuts.js"
import { separator } from "../base/splits.js"
import { Strip, notCached } from "../prompt/layout_bar.js"
import { Tabs } from "../base/tabs.js"

/** @type {[Kind, Kind]} */
const KINDS = ["schema", "prompt"]
const TITLES = { schema: "Schema", prompt: "Prompt" }
const ABOUT = "Modules are computed once and stored. Run to see the time saved, and whether the answer changes."
const ASK_AGAIN_MS = 500
const CHECK_AFTER_MS = 1000
const CHECK_LOOKS = 120
const ROOM_FOR_BOTH = 560  // minimum pixels to show schema and prompt side by side

/**
 * @typedef {import("../documents/workspace.js").Kind} Kind
 * @typedef {import("../documents/workspace.js").Workspace} Workspace
 */

/** @param {Workspace} workspace @param {Kind} kind @param {Record<string, () => unknown>} keys */
function documentPanel(workspace, kind, keys) {
  const problems = new Problems(workspace, kind), facts = h("span", { class: "soft" })
  const editor = h("div", { class: "editor" })
  const format = h("button", { type: "button", class: "quiet", title: `Format (${keysOf("format")})`, onclick: () => workspace.format(kind) }, "Format")
  if (kind === "schema") workspace.on("checked", ({ schema }) => { facts.textContent = plural(schema.modules, "module") })
  else workspace.on("measured", ({ strip }) => { facts.textContent = strip ? plural(strip.total, "token") : "" })
  const panel = h("section", { class: `panel ${kind}`, "aria-label": TITLES[kind] },
    h("header", { class: "bar" }, h("h2", {}, TITLES[kind]), problems.status, h("span", { class: "grow" }), facts, format), editor, problems.list)
  workspace.mount(kind, editor, { ...keys, [inEditor("format")]: () => workspace.format(kind), [inEditor("rename")]: () => changeName(workspace, kind, panel) })
  return panel
}

/** Asks for another name of what the caret is on. @param {Workspace} workspace @param {Kind} kind @param {HTMLElement} host */
async function changeName(workspace, kind, host) {
  const { noun, name, error } = await workspace.changeName(kind)
  if (!name) return workspace.emit("notice", error ?? AWAY)
  askNames(host, {
    title: `Rename the ${noun}`, action: "Rename", about: "Renames it in the schema and in the prompt. Undo each document separately.",
    fields: [{ key: "name", label: `New name of ${name}`, value: name }],
    done: async names => {
      const answer = await workspace.changeName(kind, names.name)
      if (!answer.name) return answer.error ?? AWAY
      workspace.editors[kind].view.focus()
      return ""
    },
  })
}

/** @param {import("../studio.js").Studio} studio @returns {import("../studio.js").View} */
export function mount(studio) {
  const { server, workspace, shell } = studio
  explainOnFocus()
  const drawer = new Drawer(workspace), runBar = new RunBar(shell.tools, workspace, server, drawer)
  studio.drawer = drawer
  const keys = { [inEditor("run")]: () => runBar.start(), [inEditor("save")]: () => shell.save() }

  const picker = h("section", { class: "panel picker", "aria-label": "Modules" })
  const strip = h("section", { class: "strip", "aria-label": "Layout" })
  const answers = h("div", { class: "answers" }), about = h("p", { class: "soft about-model" }, ABOUT)
  const explained = h("section", { class: "explanation", "aria-label": "What reuse changed" })
  const explanation = new Explanation(explained, workspace, server, drawer, studio.belonging)
  let stands = () => false  // whether the settings of the last fix still apply
  const takeFix = (/** @type {Record<string, string>} */ settings) => {
    const { words, undo, ...taken } = drawer.take(settings)
    stands = taken.stands
    shell.notice(words, { key: "fix", mood: "info", actions: [["Undo", undo]] })
  }
  drawer.on("changed", () => { if (!stands()) shell.dismiss("fix") })
  workspace.on("opened", () => shell.dismiss("fix"))
  explanation.on("setting", takeFix)
  explanation.on("scaffold", async modules => explanation.say(await workspace.addScaffold(modules)))
  drawer.on("set back", sentence => {
    if (sentence) shell.notice(sentence, { key: "settings", mood: "info", closed: () => drawer.accept() })
    else shell.dismiss("settings")
  })
  shell.on("shown", page => {
    if (page === "author") return workspace.remeasure()  // another page may have encoded or removed segments
    drawer.accept()
    drawer.close()
  })
  const owing = new Owing(studio.belonging, explanation), layout = new Strip(strip, workspace, studio.belonging, owing)
  const reads = new Reads(workspace, server), form = new FormView(workspace, server)
  const documents = new Tabs("documents", "Documents", { pair: KINDS, room: ROOM_FOR_BOTH })
  for (const kind of KINDS) documents.add(kind, TITLES[kind], documentPanel(workspace, kind, keys))
  documents.add("form", "Form", form.node)
  documents.add("reads", "What the model reads", reads.node, "Reads")
  const showViews = (/** @type {string} */ name) => { reads.show(name === "reads"); form.show(name === "form") }
  documents.on("shown", showViews)
  showViews(documents.shown)
  for (const drawn of [layout, reads]) drawn.on("reveal", ({ kind, from }) => workspace.editors[kind].reveal(from))
  workspace.on("wanted", kind => documents.show(kind))
  workspace.on("problems", ({ kind, list }) => {
    const errors = list.filter(({ severity }) => severity === "error").length
    documents.mark(kind, errors ? String(errors) : "", "bad")
  })
  const history = new History(workspace, server)
  const question = new Question(workspace, runBar)
  const results = h("div", { class: "results", role: "region", "aria-label": "Results" }, question.node, answers, explained, history.node)
  const writing = h("div", { class: "writing" }), desk = h("div", { class: "desk" })
  const runLine = h("div", { class: "run-line" }, runBar.status, runBar.pace.node)
  const besides = new Tabs("results", "Answers, chat and decisions", { beside: runLine })
  besides.add("answers", "Answers", results)
  const chat = new Chat(studio, besides)
  const readout = addDecideTab(studio, besides)
  const showLine = (/** @type {string} */ name) => runLine.toggleAttribute("data-off", name !== "answers")
  besides.on("shown", showLine)
  showLine(besides.shown)
  writing.append(picker, separator(writing, { name: "picker", label: "Width of the modules", least: 20, most: 60, usual: 41 }), documents.node,
    h("div", { class: "below" }, strip))
  desk.append(writing, separator(desk, { name: "writing", label: "Width of modules and documents", least: 35, most: 70, usual: 56 }),
    besides.node)
  studio.hosts.shell.append(drawer.form)
  studio.hosts.author.append(
    h("header", { class: "page-line" }, h("h2", {}, "Author"), about),
    desk)
  studio.on("model", model => {
    if (model.about) about.replaceChildren(model.about, " ", h("a", { href: "#/models" }, model.stored ? `Load ${model.stored}` : "Get a real model"), ".")
    else about.replaceChildren(ABOUT)
  })
  runBar.on("start", () => {
    shell.go("author")
    besides.show("answers")
    results.scrollTop = 0
    if (document.documentElement.scrollHeight > innerHeight) besides.node.scrollIntoView({ block: "start" })  // its message is at the top
  })
  studio.commands.add(
    { title: "Run the prompt", group: "Run", keys: keysOf("run"), run: () => runBar.start(), when: () => !runBar.running },
    ...Object.entries(CHOICES).map(([name, choice]) => ({ title: `Run: ${choice.title}`, group: "Run", words: choice.about, run: () => runBar.choose(/** @type {import("../runs/run_menu.js").Choice} */ (name)), when: () => !runBar.running })),
    { title: ENCODE.title, group: "Run", words: ENCODE.about, run: () => runBar.encode(), when: () => !runBar.running },
    { title: "Stop the run", group: "Run", keys: keysOf("stop"), run: () => runBar.stop(), when: () => runBar.running },
    { title: "Settings of the run", group: "Run", words: "temperature scope repair seed", run: () => drawer.enter() },
    ...KINDS.map(kind => ({ title: `Go to the ${kind}`, group: "Editor", run: () => { documents.show(kind); workspace.editors[kind].view.focus() } })),
    { title: "Go to the form", group: "Editor", words: "cards without XML", run: () => documents.show("form") },
    ...KINDS.map(kind => ({ title: `Format the ${kind}`, group: "Editor", keys: keysOf("format"), run: () => workspace.format(kind) })),
    ...KINDS.map(kind => ({ title: `Rename at the caret, in the ${kind}`, group: "Editor", keys: keysOf("rename"), words: "module parameter schema name", run: () => changeName(workspace, kind, documents.node) })))
  runBar.on("encoded", () => studio.emit("stored"))
  runBar.on("frame", ({ state }) => { if (state !== "working") studio.emit("stored") })
  runBar.on("ended", ({ state }) => { if (state === "done") drawer.accept() })
  studio.on("stored", () => { history.refresh(); workspace.remeasure() })

  return {
    begin(start) {
      new Picker(picker, workspace, server, start.tiers)
      tellSizes(workspace, start.tiers)
      layout.tiers = reads.tiers = start.tiers
      drawer.offer(start.settings)
      readout.offer(start.settings)

      const shown = new Panes(answers, start.timeline_parts, studio.belonging, explanation)
      shown.verdict.missing = async settings => {
        const measured = await server.ask("measure", { ...workspace.texts(), origin: workspace.origin, settings: { ...workspace.settings, ...settings } })
        return measured.strip ? notCached(measured.strip) : null
      }
      shown.on("again", number => runBar.timeAgain(number))
      shown.verdict.on("fix", ({ settings }) => {
        takeFix(settings)
        runBar.start()
      })
      workspace.on("problems", () => shown.hindered(workspace.faulty()))
      const answer = answers.querySelector(".answer"), cost = answer instanceof HTMLElement ? new AnswerCost(answer, owing, studio.belonging) : null
      const ratings = new Ratings(answers, server, id => compareWithModel(studio, id, "this run"))
      studio.commands.add({ title: "Compare with another model", group: "Run", words: "second server engine", run: () => compareWithModel(studio, ratings.id, "this run"), when: () => ratings.id !== "" && !runBar.running })
      let current = 0
      const show = (/** @type {Api.RunFrame} */ run) => {
        current = run.number
        explanation.of(run)
        question.of(run)
        shown.show(run)
        chat.note(run)
        history.show("")
        layout.note(run)
        cost?.show(run)
        ratings.show(run)
      }
      const showKept = async (/** @type {string} */ id, which = "A stored run") => {
        if (runBar.running) return
        const { run, error } = await server.ask("show_kept_run", { id, schema: workspace.texts().schema })
        if (error) return shell.notice(error, { key: "kept" })
        if (!run || runBar.running) return
        shell.dismiss("kept")
        current = 0
        question.of(run)
        shown.show(run, `${which}, ${when(run.started)}.`)
        chat.note(run)
        explanation.showStored(run)
        history.show(id)
        cost?.show(run)
        ratings.show(run)
      }
      const chosen = async (/** @type {string} */ id) => {
        await showKept(id)
        answers.scrollIntoView({ block: "nearest" })
      }
      history.on("chosen", chosen)
      studio.on("restored", id => { besides.show("answers"); chosen(id) })
      // Polls a run of another tab or of an earlier page until it ends.
      const watch = async (/** @type {Api.RunFrame} */ run) => {
        for (let next = run; next.state === "working" && current === run.number && !runBar.running;) {
          await pause(ASK_AGAIN_MS)
          next = (await server.ask("show_run", { number: run.number })).run ?? cutOff(next)
          if (current !== run.number || runBar.running) return
          show(next)
          if (next.state !== "working") { studio.emit("stored"); awaitCheck(next) }
        }
      }
      // A promise is checked once nothing else is computed.
      const awaitCheck = async (/** @type {Api.RunFrame} */ run) => {
        for (let look = 0; look < CHECK_LOOKS && current === run.number && run.reuse && !run.reuse.checked; look++) {
          await pause(CHECK_AFTER_MS)
          const next = (await server.ask("show_run", { number: run.number })).run
          if (!next || current !== run.number || runBar.running) return
          if (next.reuse?.checked) return show(next)
        }
        if (current === run.number && run.reuse?.follows) show({ ...run, reuse: { ...run.reuse, follows: false } })
      }
      runBar.on("frame", show)
      runBar.on("ended", awaitCheck)
      for (const run of start.runs) layout.note(run)
      const last = start.runs.at(-1)
      if (last) { show(last); if (last.state === "working") watch(last); else if (last.reuse?.follows) awaitCheck(last) }
      // After a restart of the studio the last run is a stored one.
      else history.once("listed", runs => {
        const stored = runs.find(({ state }) => state !== "measured")
        if (stored && !current) showKept(stored.id, "The last run")
      })
    },
  }
}
