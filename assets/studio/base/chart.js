// A chart drawn by plotly, whose script loads on first use.
import { debounce, h } from "./dom.js"
import { Emitter } from "./events.js"

const RESIZED_MS = 60

/**
 * @typedef {HTMLElement & {on: (event: "plotly_click", action: (detail: {points: {customdata: unknown}[]}) => void) => void}} Plot
 * @typedef {{newPlot: (node: HTMLElement, data: unknown, layout: unknown, options: unknown) => Promise<Plot>}} Plotly
 */

/** @type {Promise<Plotly> | null} */
let fetched = null

function plotly() {
  fetched ??= new Promise((resolve, reject) => {
    const src = new URL("../plotly/plotly.min.js", import.meta.url).href
    document.head.append(h("script", {
      src, onload: () => resolve(/** @type {any} */ (window).Plotly), onerror: () => { fetched = null; reject(new Error(src)) },
    }))
  })
  return fetched
}

/**
 * "chosen": a point was clicked, by its data.
 * @extends {Emitter<{chosen: string}>}
 */
export class Chart extends Emitter {
  #place = h("div", { class: "plot" })
  #said = h("p", { class: "empty", hidden: true }, "The chart's script could not be loaded. The next chart tries again.")
  #latest = 0
  /** @type {Api.Drawn["figure"] | null} */
  #figure = null
  #width = 0
  node = h("div", { class: "chart", role: "img", "aria-label": "Drawing the chart", "data-empty": true }, this.#place, this.#said)

  constructor() {
    super()
    // Plotly's own resize leaves the legend on the marks.
    new ResizeObserver(debounce(RESIZED_MS, () => { if (this.#figure && ![0, this.#width].includes(this.#place.offsetWidth)) this.#show(this.#figure) })).observe(this.node)
  }

  /** Shows or hides the chart. @param {boolean} something */
  shown(something) { this.node.toggleAttribute("data-empty", !something) }

  /** Replaces the chart. @param {Api.Drawn["figure"]} figure @param {string} label its accessible name */
  async draw(figure, label) {
    this.shown(figure.data.length > 0)
    this.node.setAttribute("aria-label", label)
    this.#figure = figure.data.length ? figure : null
    if (this.#figure) await this.#show(figure)
    else this.#latest++
  }

  /** @param {Api.Drawn["figure"]} figure */
  async #show({ data, layout }) {
    const number = ++this.#latest
    this.#width = this.#place.offsetWidth
    this.#place.style.minHeight = `${layout.height}px`  // until it is drawn, too
    try {
      const { newPlot } = await plotly()
      if (number !== this.#latest) return
      const plot = await newPlot(this.#place, data, { ...layout, autosize: true }, { displayModeBar: false, responsive: false })
      plot.on("plotly_click", ({ points }) => { if (points[0]?.customdata != null) this.emit("chosen", String(points[0].customdata)) })
      this.#said.hidden = true
    } catch {
      this.#place.style.minHeight = ""
      this.#said.hidden = false
    }
  }
}
