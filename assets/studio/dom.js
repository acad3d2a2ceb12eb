// Elements and numbers. Text only ever becomes text: nothing here, or anywhere in the page, writes HTML from a string.

/** h("button", {class: "x", "aria-label": "y", onclick: f}, "text", node, …): an element; null children are left out. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value)
    else if (name in node && typeof value !== "string") node[name] = value
    else node.setAttribute(name, value === true ? "" : value)
  }
  node.append(...children.flat().filter(child => child != null && child !== false))
  return node
}

const grouped = new Intl.NumberFormat("en")
export const count = value => grouped.format(Math.round(value))
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`

export function milliseconds(value) {
  if (value == null) return "–"
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`
  return `${value.toFixed(value >= 100 ? 0 : value >= 1 ? 1 : 2)} ms`
}

export function bytes(value) {
  if (value < 1024) return `${value} B`
  if (value < 1024 ** 2) return `${(value / 1024).toFixed(0)} KiB`
  return value < 1024 ** 3 ? `${(value / 1024 ** 2).toFixed(1)} MiB` : `${(value / 1024 ** 3).toFixed(2)} GiB`
}

export const pause = wait => /** @type {Promise<void>} */ (new Promise(resolve => { setTimeout(resolve, wait) }))

export function debounce(wait, action) {
  let timer = 0
  const later = (...values) => { clearTimeout(timer); timer = setTimeout(() => action(...values), wait) }
  later.cancel = () => clearTimeout(timer)
  return later
}
