// A separator between two panels, moved by mouse or arrow keys. Its position is saved as a share of the whole.
import { h } from "./dom.js"
import { forgotten, remembered } from "./layout_settings.js"

const STEP = 2, LEAP = 10  // percent

/**
 * @typedef {{name: string, label: string, least: number, most: number, usual: number}} Border `name`: key of the saved position, and name of its
 *   CSS variable; `label`: the resized panel; all else in percent of the whole
 */

/**
 * A separator: its position in percent is the CSS variable --NAME of `whole`.
 * @param {HTMLElement} whole the element to split
 * @param {Border} border
 */
export function separator(whole, { name, label, least, most, usual }) {
  const key = `split-${name}`, node = h("div", { class: "split", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": label, "aria-valuemin": String(least), "aria-valuemax": String(most), title: "Drag, or press the arrow keys; double-click to reset" })
  let place = usual
  const put = (/** @type {number} */ wanted) => {
    place = Math.min(most, Math.max(least, wanted))
    whole.style.setProperty(`--${name}`, String(place))
    node.setAttribute("aria-valuenow", String(Math.round(place)))
  }
  const keep = (/** @type {number} */ wanted) => { put(wanted); remembered(key, place.toFixed(2)) }
  const putBack = () => { put(usual); forgotten(key) }

  node.addEventListener("pointerdown", event => {
    if (event.button !== 0) return
    event.preventDefault()
    node.focus()
    node.setPointerCapture(event.pointerId)
    const grip = event.clientX - node.getBoundingClientRect().x, { left, width } = whole.getBoundingClientRect()
    const move = (/** @type {PointerEvent} */ { clientX }) => put(100 * (clientX - grip + node.offsetWidth / 2 - left) / width)
    node.addEventListener("pointermove", move)
    node.addEventListener("lostpointercapture", () => { node.removeEventListener("pointermove", move); keep(place) }, { once: true })
  })
  node.addEventListener("dblclick", putBack)
  node.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return  // a shortcut of the page
    const step = event.shiftKey ? LEAP : STEP
    const wanted = { ArrowRight: place + step, ArrowLeft: place - step, Home: least, End: most }[event.key]
    if (wanted === undefined && event.key !== "Enter") return
    event.preventDefault()
    if (wanted === undefined) putBack()
    else keep(wanted)
  })
  const kept = parseFloat(remembered(key) ?? "")
  put(Number.isFinite(kept) ? kept : usual)
  return node
}
