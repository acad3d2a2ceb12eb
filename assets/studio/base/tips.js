// Shows explanations (`title`) on focus, as the pointer shows them on hover: those of the focused element and of the figures in it.
import { h } from "./dom.js"

const GAP = 4
const CROWDED = "table, button, [role=row]"  // of such an element only the column heads are explained

/** @param {HTMLElement} node */
const nameOf = node => (node.querySelector("dt, .scale-name") ?? node).textContent?.trim() ?? ""

export function explainOnFocus() {
  const tip = h("div", { class: "tip", popover: "manual" }), close = () => { if (tip.matches(":popover-open")) tip.hidePopover() }
  document.body.append(tip)
  document.addEventListener("focusin", ({ target }) => {
    close()
    if (!(target instanceof HTMLElement) || !target.matches("[tabindex='0']:not(a, button, input, select, [contenteditable]), th button")) return
    const all = /** @type {HTMLElement[]} */ ([...target.querySelectorAll(target.querySelector(CROWDED) ? "thead th[title]" : "[title]:not([title=''])")]), named = all.filter(node => !node.title.startsWith(nameOf(node)))
    const rows = [target.title && h("p", {}, target.title), ...named.map(node => h("p", {}, h("strong", {}, nameOf(node)), ` ${node.title}`))].filter(Boolean)
    if (!rows.length) return
    tip.replaceChildren(...rows)
    tip.showPopover()
    const { left, top, bottom } = target.getBoundingClientRect(), height = tip.offsetHeight
    const below = bottom + GAP + height <= innerHeight ? bottom + GAP : top - GAP - height
    Object.assign(tip.style, { left: `${Math.max(GAP, Math.min(left, innerWidth - tip.offsetWidth - GAP))}px`, top: `${below >= GAP ? below : Math.max(GAP, innerHeight - height - GAP)}px` })
  })
  document.addEventListener("focusout", close)
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") close() })
  addEventListener("scroll", close, { capture: true, passive: true })
}
