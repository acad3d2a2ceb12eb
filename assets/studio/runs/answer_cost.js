// Shows the cost of the cached answer and the influence of each module, on hover or focus.
import { originOf } from "./staleness.js"
import { count, h, nats, plural } from "../base/dom.js"

const MOST = 6  // listed modules
const LEAST_PX = 400
const ID = "answer-cost"

export class AnswerCost {
  #answer
  #owing
  #belonging
  #card = h("div", { class: "answer-cost", id: ID, role: "tooltip", popover: "manual" })
  /** @type {Api.RunFrame | null} */
  #run = null

  /**
   * @param {HTMLElement} answer the cached answer's element
   * @param {import("./influence.js").Owing} owing
   * @param {import("./staleness.js").Belonging} belonging
   */
  constructor(answer, owing, belonging) {
    this.#answer = answer
    this.#owing = owing
    this.#belonging = belonging
    answer.setAttribute("aria-describedby", ID)
    answer.after(this.#card)
    answer.addEventListener("pointerenter", () => this.#open())
    answer.addEventListener("focus", () => this.#open())
    answer.addEventListener("pointerleave", () => { if (document.activeElement !== answer) this.#close() })
    answer.addEventListener("blur", () => this.#close())
    answer.addEventListener("keydown", event => { if (event.key === "Escape" && this.#shown) { event.preventDefault(); event.stopPropagation(); this.#close() } })
    owing.on("changed", () => { if (this.#shown) this.#open() })
    addEventListener("scroll", () => this.#close(), { capture: true, passive: true })
  }

  get #shown() { return this.#card.matches(":popover-open") }

  /** @param {Api.RunFrame} run */
  show(run) {
    this.#run = run
    if (run.state === "working") this.#close()
    else if (this.#shown) this.#open()
  }

  #close() { if (this.#shown) this.#card.hidePopover() }

  #open() {
    const run = this.#run, tokens = run?.sides.cached.tokens
    if (!run || run.state === "working" || !run.sides.cached.text || tokens?.from_cache == null) return this.#close()
    this.#card.replaceChildren(
      h("p", {}, h("strong", { class: "kept" }, `${plural(tokens.from_cache, "token")} from the cache`), `, ${count(tokens.computed ?? 0)} computed`, tokens.generated ? `, ${count(tokens.generated)} written.` : "."),
      ...this.#owed(run))
    if (!this.#shown) this.#card.showPopover()
    this.#place()
  }

  // Below the answer if there is room, else above it, so that the answer stays visible.
  #place() {
    const { left, width, top, bottom } = this.#answer.getBoundingClientRect(), wide = Math.min(innerWidth - 16, Math.max(width, LEAST_PX))
    this.#card.style.width = `${wide}px`
    const height = this.#card.offsetHeight, below = bottom + height + 4 <= innerHeight
    Object.assign(this.#card.style, { left: `${Math.max(8, Math.min(left, innerWidth - 8 - wide))}px`, top: `${below ? bottom + 4 : Math.max(4, top - height - 4)}px` })
  }

  /** @param {Api.RunFrame} run */
  #owed(run) {
    const modules = this.#belonging.differences(originOf(run)).length ? [] : [...this.#owing.modules.values()]
    if (!modules.length) return [h("p", { class: "soft" }, "The influence of each module is not measured yet. Press Measure.")]
    const sorted = modules.sort((a, b) => b.dependence - a.dependence), most = Math.max(0, sorted[0].dependence)
    const rows = sorted.slice(0, MOST).map(({ path, dependence, tokens }) => {
      const bar = h("i", {}), owed = Math.max(0, dependence)
      bar.style.width = `${most ? 100 * owed / most : 0}%`
      return h("tr", {}, h("th", { scope: "row" }, path.split("/").at(-1) || "fixed text"), h("td", {}, count(tokens)), h("td", { class: "share" }, bar), h("td", {}, nats(owed)))
    })
    const head = h("tr", {}, ...["Influence of", "Tokens", "", "Nats per token"].map(name => h("th", { scope: "col" }, name)))
    return [h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows)),
      sorted.length > MOST ? h("p", { class: "soft" }, `And ${plural(sorted.length - MOST, "module")} more, with less influence.`) : ""]
  }
}
