// A chart drawn by plotly, whose script loads on first use.
import { h } from "./dom.js"
import { Emitter } from "./events.js"

/**
 * @typedef {HTMLElement & {on: (event: "plotly_click", action: (detail: {points: {customdata: unknown}[]}) => void) => void}} Plot
 * @typedef {{react: (node: HTMLElement, data: unknown, layout: unknown, options: unknown) => Promise<Plot>, Plots: {resize: (node: HTMLElement) => unknown}}} Plotly
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
  node = h("div", { class: "chart", role: "img", "aria-label": "Drawing the chart", "data-empty": true }, this.#place, this.#said)

  constructor() {
    super()
    new ResizeObserver(async () => {
      if (this.#place.childElementCount && this.#place.offsetWidth) (await plotly()).Plots.resize(this.#place)
    }).observe(this.node)
  }

  /** Shows or hides the chart. @param {boolean} something */
  shown(something) { this.node.toggleAttribute("data-empty", !something) }

  /** Replaces the chart. @param {Api.Drawn["figure"]} figure @param {string} label its accessible name */
  async draw({ data, layout }, label) {
    const number = ++this.#latest
    this.shown(data.length > 0)
    this.node.setAttribute("aria-label", label)
    if (!data.length) return
    try {
      const { react } = await plotly()
      if (number !== this.#latest) return
      const first = !this.#place.childElementCount
      const plot = await react(this.#place, data, { ...layout, autosize: true }, { displayModeBar: false, responsive: false })
      if (first) plot.on("plotly_click", ({ points }) => { if (points[0]?.customdata != null) this.emit("chosen", String(points[0].customdata)) })
      this.#said.hidden = true
    } catch {
      this.#said.hidden = false
    }
  }
}
