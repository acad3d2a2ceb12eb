// Shows explanations (`title`) on focus, as the pointer shows them on hover: those of the focused element and of the figures in it.
import { h } from "./dom.js"

const GAP = 4
const CROWDED = "table, button, [role=row]"  // of such an element only the column heads are explained

/** @param {HTMLElement} node */
const nameOf = node => (node.querySelector("dt, .scale-name") ?? node).textContent?.trim() ?? ""

export function explainOnFocus() {
  /** @type {HTMLElement | null} */
  let explained = null
  const tip = h("div", { class: "tip", popover: "manual" }), close = () => { explained = null; if (tip.matches(":popover-open")) tip.hidePopover() }
  const place = () => {
    if (!explained) return
    const { left, top, bottom } = explained.getBoundingClientRect(), height = tip.offsetHeight
    if (bottom < 0 || top > innerHeight) return close()
    const below = bottom + GAP + height <= innerHeight ? bottom + GAP : top - GAP - height
    Object.assign(tip.style, { left: `${Math.max(GAP, Math.min(left, innerWidth - tip.offsetWidth - GAP))}px`, top: `${below >= GAP ? below : Math.max(GAP, innerHeight - height - GAP)}px` })
  }
  document.body.append(tip)
  document.addEventListener("focusin", ({ target }) => {
    close()
    if (!(target instanceof HTMLElement) || !target.matches("[tabindex='0']:not(a, button, input, select, [contenteditable]), th button")) return
    const all = /** @type {HTMLElement[]} */ ([...target.querySelectorAll(target.querySelector(CROWDED) ? "thead th[title]" : "[title]:not([title=''])")]), named = all.filter(node => !node.title.startsWith(nameOf(node)))
    const rows = [target.title && h("p", {}, target.title), ...named.map(node => h("p", {}, h("strong", {}, nameOf(node)), ` ${node.title}`))].filter(Boolean)
    if (!rows.length) return
    tip.replaceChildren(...rows)
    tip.showPopover()
    explained = target
    place()
  })
  document.addEventListener("focusout", close)
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") close() })
  addEventListener("scroll", place, { capture: true, passive: true })  // focus itself scrolls to its element
}
