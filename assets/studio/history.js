// The runs of this session: a list of them beside the chart, and clicks on the chart's bars.
import { h, milliseconds, times } from "./dom.js"

/** @typedef {HTMLElement & {on?: (event: string, action: (detail: {points: {customdata: number}[]}) => void) => void}} Plot */

export class History {
  #list = h("ol", { class: "runs", "aria-label": "Runs of this session" })
  #chart = document.querySelector("#ttft-chart")
  /** @type {Map<number, {button: HTMLElement, words: HTMLElement}>} */
  #rows = new Map()
  #show

  /** @param {HTMLElement} host @param {(number: number) => unknown} show brings a run back into the panes */
  constructor(host, show) {
    this.#show = show
    host.append(this.#list)
    if (this.#chart) new MutationObserver(() => this.#listen()).observe(this.#chart, { childList: true, subtree: true })
    this.#listen()
  }

  /** @param {Api.RunFrame} run */
  note(run) {
    if (!run.number) return
    const { cached, uncached } = run.sides
    const ratio = run.comparison.ttft_speedup
    const said = `${run.schema} · ${milliseconds(cached.ttft_ms)} / ${milliseconds(uncached.ttft_ms)}${ratio ? ` · ${times(ratio).join(" ")}` : ""}`
    const known = this.#rows.get(run.number)
    if (known) known.words.textContent = said
    else {
      const words = h("span", { class: "soft" }, said)
      const button = h("button", { type: "button", onclick: () => this.#show(run.number) }, h("strong", {}, `Run ${run.number}`), words)
      this.#rows.set(run.number, { button, words })
      this.#list.prepend(h("li", {}, button))
    }
    for (const [number, { button }] of this.#rows) button.toggleAttribute("aria-current", number === run.number)
  }

  #listen() {
    const plot = /** @type {Plot | null | undefined} */ (this.#chart?.querySelector(".js-plotly-plot"))
    if (!plot || plot.dataset.listens || typeof plot.on !== "function") return
    plot.dataset.listens = "yes"
    plot.on("plotly_click", ({ points }) => this.#show(points[0].customdata))
  }
}
