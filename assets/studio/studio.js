// Assembles the page. Gradio mounts host elements one by one; each page starts when its own are mounted.
import { Belonging } from "./runs/staleness.js"
import { Commands } from "./shell/commands.js"
import { pause } from "./base/dom.js"
import { Emitter } from "./base/events.js"
import { Help } from "./shell/help.js"
import { remembered } from "./base/layout_settings.js"
import { Palette } from "./shell/palette.js"
import { Server } from "./base/server.js"
import { Shell } from "./shell/shell.js"
import { SHORTCUTS, keysOf } from "./shell/shortcuts.js"
import { Views } from "./shell/views.js"
import { Workspace } from "./documents/workspace.js"

const FONTS_MS = 1500
const ASK_MODEL_MS = 300
const ASK_NEWS_MS = 3000
const EDITORS = "author"  // the page with the editors of the shared workspace

/**
 * @typedef {{
 *   element: HTMLElement, server: Record<string, (request: unknown) => Promise<unknown>>, pages?: import("./shell/navigation.js").Entry[],
 * }} Parts what Gradio gives to a host element
 */

/** @typedef {import("./shell/views.js").View} View */

/**
 * The shared state of pages. "stored": the store may have changed; "model": a model was loaded; "restored": a stored run's documents are open, by its id.
 * @extends {Emitter<{stored: void, model: Api.ModelFacts, restored: string}>}
 */
export class Studio extends Emitter {
  /**
   * @param {Parts} gradio of the shell's host
   * @param {Record<string, HTMLElement>} elements by host name
   * @param {Workspace} documents
   * @param {Server} asked
   */
  constructor(gradio, elements, documents, asked) {
    super()
    this.gradio = gradio
    this.hosts = elements
    this.workspace = documents
    this.server = asked
    this.commands = new Commands()
    /** The loaded model; null before. @type {Api.ModelFacts | null} */
    this.model = null
    this.on("model", model => { this.model = model })
    this.belonging = new Belonging(documents)
    this.on("model", model => this.belonging.model(model))
    this.shell = new Shell(elements.shell, documents, asked, gradio.pages ?? [])
    /** The settings of runs; null before the Author page is mounted. @type {import("./shell/settings_drawer.js").Drawer | null} */
    this.drawer = null
    this.help = new Help(elements.shell, asked, this.shell)
    this.palette = new Palette(elements.shell, this.commands)
    this.#offer()
  }

  #offer() {
    const { shell, commands, help, palette } = this
    shell.sign("help", `Help (${keysOf("help")})`, () => help.open())
    shell.sign("commands", `Commands (${SHORTCUTS.commands.keys[0]})`, () => palette.open())
    commands.add(...shell.pages.map(({ name, title }) => ({ title, group: "Page", run: () => shell.go(name) })))
    commands.from(() => shell.fileCommands())
    commands.add(
      { title: "Light or dark", group: "View", words: "theme colours", run: () => shell.turn() },
      { title: "Help", group: "Help", keys: keysOf("help"), words: "documentation manual", run: () => help.open() },
      { title: "Shortcuts", group: "Help", words: "keyboard keys", run: () => help.open("") },
      { title: "Glossary", group: "Help", words: "words terms", run: () => help.open("glossary") })
  }
}

const server = new Server()
const workspace = new Workspace(server)
/** @type {Record<string, HTMLElement>} */
const hosts = {}
/** @type {Map<string, (element: HTMLElement) => void>} */
const awaited = new Map()
/** @type {Parts | null} */
let gradio = null

/** A host element, once Gradio has mounted it. @param {string} part @returns {Promise<HTMLElement>} */
function hosted(part) {
  if (hosts[part]) return Promise.resolve(hosts[part])
  return new Promise(resolve => {
    const earlier = awaited.get(part)
    awaited.set(part, element => { earlier?.(element); resolve(element) })
  })
}

// The editors measure lines once; fonts that load later would misalign line numbers.
function fontsReady() {
  const faces = ["400", "700"].map(weight => document.fonts.load(`${weight} 13px "IBM Plex Mono"`))
  return Promise.race([Promise.all(faces), pause(FONTS_MS)]).catch(() => {})
}

/** Says what the start waits for. @param {string} words */
function doing(words) {
  const node = document.querySelector("#studio-start .doing")
  if (node) node.textContent = words
}

/** Removes the start from the page: the page is ready, or it shows why not. */
function uncover() { document.querySelector("#studio-start")?.remove() }

async function start() {
  doing("Loading the editors…")
  await Promise.all([hosted("shell"), fontsReady()])
  if (!gradio) return
  server.connect(gradio.server)
  const studio = new Studio(gradio, hosts, workspace, server), views = new Views(studio, hosted)
  studio.shell.on("shown", page => views.show(page, { travelled: true }))
  views.show(studio.shell.page, { travelled: false })
  await begin(studio, views)
}

/** @param {Studio} studio @param {Views} views */
async function begin(studio, views) {
  const again = () => begin(studio, views)
  try { await views.mount(EDITORS) } catch { uncover(); return studio.shell.notice("The editors could not be loaded.", { key: "editors", actions: [["Reload the page", () => location.reload()]] }) }
  doing("Opening your documents…")
  const answer = await server.ask("open_workspace", {})
  if (answer.error != null || answer.away) uncover()
  if (answer.away) {
    server.once("back", again)
    return
  }
  if (answer.error != null) {
    studio.shell.notice(answer.error, { actions: [["Try again", again]] })
    return
  }
  studio.shell.start(answer)
  studio.belonging.forms = answer.settings
  await views.begin(answer)
  awaitModel(studio)
  await workspace.start(answer.workspace)
  document.documentElement.dataset.studio = "ready"
  if (document.querySelector("#studio-start")) remembered("start-ms", String(Math.round(performance.now())))
  uncover()
}

// The page loads before the model. Later another model may replace it, here or in another tab.
/** @param {Studio} studio */
async function awaitModel(studio) {
  let waited = false, known = 0, switched = false
  server.on("back", () => { known = 0; dispatchEvent(new Event("studio-model")) })  // a restarted studio may have another model
  for (;;) {
    const answer = server.away || (document.hidden && known) ? null : await server.ask("model", {})
    if (answer?.model && answer.number !== known) {
      const first = known === 0
      known = answer.number
      studio.shell.model(answer.model)
      studio.emit("model", answer.model)
      workspace.countable()
      if (waited || !first) studio.emit("stored")
    }
    waited ||= known === 0
    if (answer?.loading || answer?.switching) studio.shell.loading(answer.loading || answer.switching)
    else if (switched && answer?.model) studio.shell.model(answer.model)
    switched = Boolean(answer?.switching)
    await (server.away || known && !answer?.switching && !answer?.loading ? news() : pause(ASK_MODEL_MS))
  }
}

/** Waits, but less if the user returns or loads another model. */
async function news() {
  const over = new AbortController()
  const told = new Promise(resolve => {
    for (const event of ["visibilitychange", "studio-model"]) addEventListener(event, resolve, { signal: over.signal })
  })
  await Promise.race([pause(ASK_NEWS_MS), told])
  over.abort()
}

/** @param {string} part @param {Parts} parts */
function host(part, parts) {
  const element = /** @type {HTMLElement | null} */ (parts.element.querySelector(`.studio-${part}`))
  if (!element || hosts[part] === element) return
  hosts[part] = element
  if (part === "shell") gradio = parts
  awaited.get(part)?.(element)
  awaited.delete(part)
}

Object.assign(window, { promptCacheStudio: { host, workspace } })
start()
dispatchEvent(new Event("studio-ready"))
