// The runs of this session: a list of them beside the chart, and clicks on the chart's bars.
import { h, milliseconds } from "./dom.js"

export class History {
  #list = h("ol", { class: "runs", "aria-label": "Runs of this session" })
  #chart = document.querySelector("#ttft-chart")
  #rows = new Map()
  #show

  /** `show(number)` brings a run back into the panes. */
  constructor(host, show) {
    this.#show = show
    host.append(this.#list)
    if (this.#chart) new MutationObserver(() => this.#listen()).observe(this.#chart, { childList: true, subtree: true })
    this.#listen()
  }

  note(run) {
    if (!run.number) return
    const { cached, uncached } = run.sides
    const ratio = run.comparison.ttft_speedup
    const words = `${run.schema} · ${milliseconds(cached.ttft_ms)} / ${milliseconds(uncached.ttft_ms)}${ratio ? ` · ${ratio.toFixed(1)}×` : ""}`
    const known = this.#rows.get(run.number)
    if (known) known.lastChild.textContent = words
    else {
      const button = h("button", { type: "button", onclick: () => this.#show(run.number) },
        h("strong", {}, `Run ${run.number}`), h("span", { class: "soft" }, words))
      this.#rows.set(run.number, button)
      this.#list.prepend(h("li", {}, button))
    }
    for (const [number, button] of this.#rows) button.toggleAttribute("aria-current", number === run.number)
  }

  #listen() {
    const plot = this.#chart?.querySelector(".js-plotly-plot")
    if (!plot || plot.dataset.listens || typeof plot.on !== "function") return
    plot.dataset.listens = "yes"
    plot.on("plotly_click", ({ points }) => this.#show(points[0].customdata))
  }
}
