// The prompt along its positions: to scale, or in equal parts. A part links to its source.
import { originOf } from "../runs/staleness.js"
import { bytes, count, debounce, h, nats, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { Savings } from "../runs/savings.js"

/** @typedef {import("../runs/influence.js").Owing} Owing */

const KINDS = { anonymous: "fixed text", module: "module", argument: "argument", text: "new text" }
const KEPT = "prompt-cache-studio.strip-scale"
const TICK_PX = 72
const OLD_AFTER_MS = 600  // usually more than the time to the next check
/** Settings of positions and attention. @param {string} name */
const placing = name => ["scope", "placement"].includes(name)

/** Reusable tokens that are not encoded yet. @param {Api.Strip} strip */
export function notCached({ pieces, cached: reusable }) {
  return Math.max(0, reusable - pieces.filter(({ cached }) => cached !== "none").reduce((sum, { tokens }) => sum + tokens, 0))
}

/**
 * @typedef {Api.Piece & {node: HTMLElement}} DrawnPiece
 * @typedef {import("../documents/workspace.js").Kind} Kind
 */

/**
 * "reveal": a place in a document to show.
 * @extends {Emitter<{reveal: {kind: Kind, from: number}}>}
 */
export class Strip extends Emitter {
  #track = h("div", { class: "track", tabindex: "0", role: "group", "aria-label": "The prompt along its positions; arrow keys move between parts, Enter goes to the source" })
  #axis = h("div", { class: "axis", "aria-hidden": "true" })
  #owes = h("div", { class: "owes", "aria-hidden": "true", "data-empty": true })
  #readout = h("p", { class: "readout", role: "status" })
  #scales = h("div", { class: "scales", role: "group", "aria-label": "Width of the parts" })
  #missing = h("li", { hidden: true }, h("i", { class: "swatch module uncached" }), "not cached yet")
  #rewritten = h("li", { hidden: true }, h("i", { class: "swatch module rewritten" }), "computed each time")
  #owesKey = h("li", { class: "owes-key", hidden: true }, h("i", { class: "swatch owes-swatch" }), "influence on the answer")
  #summary = ""
  #equal = localStorage.getItem(KEPT) === "equal"
  /** @type {DrawnPiece[]} */
  #pieces = []
  #total = 0
  #current = -1
  #owing
  #savings
  #belonging
  /** @type {import("../runs/staleness.js").Origin | null} */
  #origin = null
  #age = ""
  #ageSoon = debounce(OLD_AFTER_MS, () => this.#showAge())
  /** The tiers' names. @type {Api.TierWords[]} */
  tiers = []

  /** @param {HTMLElement} host @param {import("../documents/workspace.js").Workspace} workspace @param {import("../runs/staleness.js").Belonging} belonging @param {Owing} owing */
  constructor(host, workspace, belonging, owing) {
    super()
    this.#owing = owing
    this.#savings = new Savings(belonging)
    this.#belonging = belonging
    const legend = h("ul", { class: "legend", "aria-label": "Legend" },
      ...Object.entries(KINDS).map(([kind, word]) => h("li", {}, h("i", { class: `swatch ${kind}` }), word)))
    for (const [equal, word] of /** @type {[boolean, string][]} */ ([[false, "To scale"], [true, "Equal"]])) {
      this.#scales.append(h("button", { type: "button", class: "quiet", "aria-pressed": String(this.#equal === equal), onclick: () => this.#scale(equal) }, word))
    }
    host.append(h("div", { class: "strip-head" }, h("h2", {}, "Layout"), legend, h("span", { class: "grow" }), this.#scales),
      h("div", { class: "strip-scroll" }, this.#track, this.#axis, this.#owes), h("div", { class: "strip-foot" }, this.#readout, h("ul", { class: "legend at-times" }, this.#missing, this.#rewritten, this.#owesKey)))
    this.#track.addEventListener("pointermove", event => this.#point(this.#at(event.target)))
    this.#track.addEventListener("pointerleave", () => { if (document.activeElement !== this.#track) this.#point(-1) })
    this.#track.addEventListener("blur", () => { if (!this.#track.matches(":hover")) this.#point(-1) })
    this.#track.addEventListener("keydown", event => this.#key(event))
    this.#track.addEventListener("click", event => this.#reveal(this.#at(event.target)))
    new ResizeObserver(() => this.#ticks()).observe(this.#track)
    owing.on("changed", () => { this.#showOwed(); this.#say() })
    workspace.on("measured", ({ strip, of, settings, model }) => {
      this.#origin = strip && of && settings && model ? originOf({ of, settings, model }) : null
      this.#draw(strip)
      this.#showAge()
    })
    belonging.on("changed", () => this.#ageSoon())
    this.#summary = "Shown once the documents are checked."
    this.#say()
  }

  /** Adds a run's measurements. @param {Api.RunFrame} run */
  note(run) {
    this.#savings.note(run)
    this.#say()
  }

  /** @param {Api.Strip | null} strip */
  #draw(strip) {
    this.#current = -1
    this.#pieces = (strip?.pieces ?? []).filter(({ tokens }) => tokens > 0).map(piece => ({ ...piece, node: h("span") }))
    this.#total = strip?.total ?? 0
    if (!strip) this.#summary = "Shown when both documents have no errors."
    else {
      const share = strip.total ? Math.round(100 * strip.cached / strip.total) : 0
      const missing = notCached(strip)
      const rest = missing ? ` · ${count(missing)} not cached yet` : ""
      this.#summary = `${plural(strip.total, "token")}: ${count(strip.cached)} reusable (${share}%), ${count(strip.new)} new${rest}`
      this.#missing.hidden = !missing
      this.#rewritten.hidden = !strip.pieces.some(({ why }) => why)
      for (const { node, kind, cached, path, document: where, why } of this.#pieces) {
        const look = why ? " rewritten" : missing && cached === "none" ? " uncached" : ""
        node.className = `piece ${kind}${look}${where ? " written" : ""}`
        node.append(h("span", { class: "name" }, path.split(/[/:]/).at(-1) || KINDS[kind]))
      }
    }
    this.#track.replaceChildren(...this.#pieces.map(({ node }) => node))
    this.#stretch()
    this.#say()
  }

  // An outdated layout is grey with a note.
  #showAge() {
    this.#age = this.#origin ? this.#belonging.sentence(this.#origin, placing) : ""
    this.#track.toggleAttribute("data-old", this.#age !== "")
    this.#say()
  }

  /** @param {boolean} equal */
  #scale(equal) {
    this.#equal = equal
    try { localStorage.setItem(KEPT, equal ? "equal" : "scale") } catch { /* not stored */ }
    this.#scales.querySelectorAll("button").forEach((button, at) => button.setAttribute("aria-pressed", String(equal === (at === 1))))
    this.#stretch()
  }

  #stretch() {
    this.#track.toggleAttribute("data-equal", this.#equal)
    for (const { node, tokens } of this.#pieces) node.style.flexGrow = this.#equal ? "1" : String(tokens)
    this.#showOwed()
    this.#ticks()
  }

  // Starts of parts if they are equal; else round numbers of tokens.
  #ticks() {
    const width = this.#track.clientWidth, left = this.#track.getBoundingClientRect().left
    if (!width || !this.#pieces.length) return this.#axis.replaceChildren()
    const edges = this.#pieces.map(({ node, tokens }, at) => ({ node, tokens, before: this.#pieces.slice(0, at).reduce((sum, one) => sum + one.tokens, 0) }))
    /** @type {[number, number][]} */
    let places = []
    if (this.#equal) places = edges.map(({ node, before }) => [before, node.getBoundingClientRect().left - left])
    else {
      const step = roundStep(this.#total * TICK_PX / width)
      for (let tokens = 0; tokens < this.#total; tokens += step) {
        const edge = edges.findLast(({ before }) => before <= tokens) ?? edges[0], box = edge.node.getBoundingClientRect()
        places.push([tokens, box.left - left + box.width * (tokens - edge.before) / edge.tokens])
      }
    }
    const shown = places.filter(([, x], at) => at === 0 || x < width - 2 * TICK_PX).reduce((kept, one) => !kept.length || one[1] - kept[kept.length - 1][1] >= TICK_PX / 2 ? [...kept, one] : kept, /** @type {[number, number][]} */ ([]))
    const marks = shown.map(([tokens, x]) => { const mark = h("span", { class: "tick" }, count(tokens)); mark.style.left = `${x}px`; return mark })
    this.#axis.replaceChildren(...marks, h("span", { class: "tick last" }, plural(this.#total, "token")))
  }

  /** @param {EventTarget | null} target */
  #at(target) { return this.#pieces.findIndex(({ node }) => target instanceof Node && node.contains(target)) }

  /** @param {DrawnPiece} piece */
  #owedTo({ kind, path }) { return kind === "text" || kind === "argument" ? undefined : this.#owing.modules.get(path) }

  #showOwed() {
    const found = this.#pieces.map(piece => this.#owedTo(piece)?.dependence ?? 0), most = Math.max(0, ...found)
    this.#owesKey.hidden = most <= 0
    this.#owes.toggleAttribute("data-empty", most <= 0)
    this.#owes.replaceChildren(...this.#pieces.map(({ node }, at) => {
      const bar = h("i", {}), cell = h("span", { class: "owed" }, bar)
      cell.style.flexGrow = node.style.flexGrow
      bar.style.height = `${most > 0 ? Math.max(found[at] > 0 ? 6 : 0, 100 * found[at] / most) : 0}%`
      return cell
    }))
  }

  /** @param {DrawnPiece} piece */
  #describe(piece) {
    const { kind, label, path, start, tokens, cached, bytes: size, why } = piece
    const what = label || path || KINDS[kind], tier = this.tiers.find(({ name }) => name === cached)
    const at = tokens > 1 ? `positions ${count(start)}–${count(start + tokens - 1)}` : `position ${count(start)}`
    const reused = !why && kind !== "text" && kind !== "argument" && size > 0 || cached !== "none"
    const held = reused ? [size ? bytes(size) : "", tier?.label ?? cached, this.#savings.words(tokens)] : ["computed each time", why]
    const owed = this.#owedTo(piece)
    if (owed) held.push(`influence on the answer: ${nats(Math.max(0, owed.dependence))} nats per token`)
    return [h("strong", {}, what), ["", plural(tokens, "token"), at, ...held].filter((one, place) => place === 0 || one).join(" · ")]
  }

  /** @param {number} index */
  #point(index) {
    if (index === this.#current) return
    this.#pieces[this.#current]?.node.classList.remove("current")
    this.#current = index
    this.#pieces[index]?.node.classList.add("current")
    this.#say()
  }

  #say() {
    const piece = this.#pieces[this.#current]
    this.#readout.replaceChildren(...(piece ? this.#describe(piece) : [this.#age ? `Drawn ${this.#age}. It is redrawn once the documents are valid.` : this.#summary]))
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Enter" && this.#current >= 0) { event.preventDefault(); return this.#reveal(this.#current) }
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0
    if (!step || !this.#pieces.length) return
    event.preventDefault()
    this.#point(Math.min(this.#pieces.length - 1, Math.max(0, this.#current + step)))
    this.#pieces[this.#current].node.scrollIntoView({ block: "nearest", inline: "nearest" })
  }

  /** @param {number} index */
  #reveal(index) {
    const piece = this.#pieces[index]
    if (piece?.document) this.emit("reveal", { kind: piece.document, from: piece.at })
  }
}

/** The smallest of 1, 2, 5, 10, … that is at least a number. @param {number} least */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)))
  return [1, 2, 5, 10].map(one => one * power).find(one => one >= least) ?? 10 * power
}
