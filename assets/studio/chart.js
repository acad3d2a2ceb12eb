// A figure, drawn by plotly's own script, which is fetched when there is something to draw.
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
    const src = new URL("plotly/plotly.min.js", import.meta.url).href
    document.head.append(h("script", {
      src, onload: () => resolve(/** @type {any} */ (window).Plotly), onerror: () => { fetched = null; reject(new Error(src)) },
    }))
  })
  return fetched
}

/**
 * "chosen": a point was clicked, by what it stands for.
 * @extends {Emitter<{chosen: string}>}
 */
export class Chart extends Emitter {
  #place = h("div", { class: "plot" })
  #said = h("p", { class: "empty", hidden: true }, "The chart could not be drawn, as its script did not come. It is tried again with the next one.")
  #latest = 0
  node = h("div", { class: "chart", role: "img", "aria-label": "A chart, which is being drawn", "data-empty": true }, this.#place, this.#said)

  constructor() {
    super()
    new ResizeObserver(async () => {
      if (this.#place.childElementCount && this.#place.offsetWidth) (await plotly()).Plots.resize(this.#place)
    }).observe(this.node)
  }

  /** Whether something is drawn, or is to be. @param {boolean} something */
  shown(something) { this.node.toggleAttribute("data-empty", !something) }

  /** Draws a figure in the place of the last one. @param {Api.Drawn["figure"]} figure @param {string} label what it shows, in words */
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
