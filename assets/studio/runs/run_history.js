// Stored runs of the open schema: a chart of times, and a list of the latest. Both open a run in the panes.
import { called, ratioWords, when } from "./compare.js"
import { Chart } from "../base/chart.js"
import { debounce, h, milliseconds, nats, plural, refill } from "../base/dom.js"
import { Emitter } from "../base/events.js"

const REFRESH_MS = 150
const MOST_LISTED = 30

/**
 * "chosen": a run, by its id; "listed": the runs of the open schema, newest first.
 * @extends {Emitter<{chosen: string, listed: Api.RunSummary[]}>}
 */
export class History extends Emitter {
  #workspace
  #server
  #chart = new Chart()
  #list = h("ol", { class: "runs", "aria-label": "Runs of this schema, newest first" })
  #more = h("a", { class: "soft", href: "#/runs", hidden: true }, "All runs")
  #empty = h("p", { class: "empty" }, "Run the prompt: the times of every run of this schema appear here.")
  #schema = ""
  #asked = 0
  #current = ""
  /** Reloads the runs. */
  refresh = debounce(REFRESH_MS, () => this.#refresh())
  node = h("section", { class: "times", "aria-label": "Times of this schema's runs", "data-empty": true }, this.#chart.node, h("div", { class: "latest" }, this.#list, this.#more), this.#empty)

  /** @param {import("../documents/workspace.js").Workspace} workspace @param {import("../base/server.js").Server} server */
  constructor(workspace, server) {
    super()
    this.#workspace = workspace
    this.#server = server
    this.#chart.on("chosen", id => this.emit("chosen", id))
    workspace.on("checked", ({ schema }) => { if (schema.name !== this.#schema) this.refresh() })
    server.on("back", () => this.refresh())
  }

  /** Marks the run in the panes. @param {string} id "" for none */
  show(id) {
    this.#current = id
    for (const button of this.#list.querySelectorAll("button")) button.toggleAttribute("aria-current", button.dataset.key === id)
  }

  async #refresh() {
    if (this.#server.away) return
    const number = ++this.#asked, schema = this.#workspace.names.schema
    const { runs, figure } = await this.#server.ask("draw_own_runs", { schema })
    if (number !== this.#asked || !runs || !figure) return
    this.#schema = schema
    this.emit("listed", runs)
    this.node.toggleAttribute("data-empty", runs.length === 0)
    this.#empty.hidden = runs.length > 0
    refill(this.#list, ...runs.slice(0, MOST_LISTED).map(run => this.#row(run)))
    this.#more.hidden = runs.length <= MOST_LISTED
    this.#more.textContent = `All ${plural(runs.length, "run")}`
    this.#chart.draw(figure, `Chart of the times to first token of ${plural(runs.length, "run")} of ${schema}, cached and uncached; the list next to it has the latest ones.`)
  }

  /** @param {Api.RunSummary} run */
  #row(run) {
    const ratio = run.speedup ? ` · ${ratioWords(run)}` : ""
    return h("li", {}, h("button", {
      type: "button", "data-key": run.id, "aria-current": run.id === this.#current || null, title: `${called(run)}: ${run.prompt}`,
      onclick: () => this.emit("chosen", run.id),
    }, h("strong", {}, run.name || when(run.started)), h("span", { class: "soft" }, run.state === "measured" ? "measured" : `${milliseconds(run.cached_ms)} / ${milliseconds(run.uncached_ms)}${ratio}`, run.fidelity ? ` · mean KL ${nats(run.fidelity.kl_mean)}` : "")))
  }
}
