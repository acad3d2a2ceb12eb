// Puts the page together. Gradio hands over one host element after another; the page starts when all of them are there.
import { pause } from "./dom.js"
import { Emitter } from "./events.js"
import { Server } from "./server.js"
import { Shell } from "./shell.js"
import { Workspace } from "./workspace.js"

const FONTS_MS = 1500
const ASK_MODEL_MS = 300

/**
 * @typedef {{name: string, title: string}} Entry a page of the server's registry
 * @typedef {{begin?: (start: Api.Start) => unknown, shown?: () => unknown}} View what a page does once it has its data, and whenever it is shown
 * @typedef {{mount: (studio: Studio) => View, hosts?: string[]}} Script what `pages/NAME.js` exports; `hosts`: elements besides its own
 * @typedef {{
 *   element: HTMLElement, props: {value?: string}, trigger: (event: string, detail: unknown) => void, watch: (name: string, action: () => void) => void,
 *   server: Record<string, (request: unknown) => Promise<unknown>>, pages?: Entry[],
 * }} Parts what Gradio gives to a host element
 */

/**
 * What the pages share. "stored": the store may hold something else now; "model": it is loaded.
 * @extends {Emitter<{stored: void, model: Api.ModelFacts}>}
 */
export class Studio extends Emitter {
  /**
   * @param {Parts} gradio of the shell's host
   * @param {Record<string, HTMLElement>} elements by the names of their hosts
   * @param {Workspace} documents
   * @param {Server} asked
   */
  constructor(gradio, elements, documents, asked) {
    super()
    this.gradio = gradio
    this.hosts = elements
    this.workspace = documents
    this.server = asked
    this.shell = new Shell(elements.shell, documents, asked, gradio.pages ?? [])
  }
}

const server = new Server()
const workspace = new Workspace(server)
/** @type {Record<string, HTMLElement>} */
const hosts = {}
/** @type {Parts | null} */
let gradio = null
let started = false

// The editors measure their lines once; a font that comes later would leave the line numbers beside other lines.
function fontsReady() {
  const faces = ["400", "700"].map(weight => document.fonts.load(`${weight} 13px "IBM Plex Mono"`))
  return Promise.race([Promise.all(faces), pause(FONTS_MS)]).catch(() => {})
}

/** @param {Entry[]} pages @returns {Promise<[string, Script][]>} */
const scriptsOf = pages => Promise.all(pages.map(async ({ name }) => [name, await import(`./pages/${name}.js`)]))

async function start() {
  if (!gradio?.pages) return
  const scripts = await scriptsOf(gradio.pages)
  const wanted = scripts.flatMap(([name, script]) => [name, ...script.hosts ?? []])
  if (started || !wanted.every(part => part in hosts)) return
  started = true
  await fontsReady()
  server.connect(gradio.server)
  const studio = new Studio(gradio, hosts, workspace, server)
  const views = new Map(scripts.map(([name, { mount }]) => [name, mount(studio)]))
  studio.shell.on("shown", name => views.get(name)?.shown?.())
  views.get(studio.shell.page)?.shown?.()
  await begin(studio, [...views.values()])
}

/** @param {Studio} studio @param {View[]} views */
async function begin(studio, views) {
  const again = () => begin(studio, views)
  const answer = await server.ask("open_workspace", {})
  if (answer.away) {
    server.once("back", again)
    return
  }
  if (answer.error != null) {
    studio.shell.notice(answer.error, { actions: [["Try again", again]] })
    return
  }
  studio.shell.start(answer)
  for (const view of views) view.begin?.(answer)
  awaitModel(studio)
  await workspace.start(answer.workspace)
  document.documentElement.dataset.studio = "ready"
}

// The page is there before the model, which takes longer to load.
/** @param {Studio} studio */
async function awaitModel(studio) {
  let waited = false
  for (;;) {
    const answer = await server.ask("model", {})
    if (answer.model) {
      studio.shell.model(answer.model)
      studio.emit("model", answer.model)
      workspace.countable()
      if (waited) studio.emit("stored")
      return
    }
    waited = true
    if (answer.loading) studio.shell.loading(answer.loading)
    await pause(ASK_MODEL_MS)
  }
}

/** @param {string} part @param {Parts} parts */
function host(part, parts) {
  const element = /** @type {HTMLElement | null} */ (parts.element.querySelector(`.studio-${part}`))
  if (!element || hosts[part] === element) return
  hosts[part] = element
  if (part === "shell") gradio = parts
  start()
}

Object.assign(window, { promptCacheStudio: { host, workspace } })
dispatchEvent(new Event("studio-ready"))
