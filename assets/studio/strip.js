// The prompt drawn to scale along its positions.
import { bytes, count, h, plural } from "./dom.js"

const KINDS = { anonymous: "always there", module: "module", argument: "argument", text: "new text" }

/** @typedef {Api.Piece & {node: HTMLElement}} DrawnPiece */

export class Strip {
  #track = h("div", { class: "track", tabindex: "0", role: "group", "aria-label": "The prompt along its positions; arrow keys step through it" })
  #readout = h("p", { class: "readout", role: "status" })
  #summary = ""
  /** @type {DrawnPiece[]} */
  #pieces = []
  #current = -1
  /** The tiers in words. @type {Api.TierWords[]} */
  tiers = []

  /** @param {HTMLElement} host @param {import("./workspace.js").Workspace} workspace */
  constructor(host, workspace) {
    const legend = h("ul", { class: "legend", "aria-label": "Legend" },
      ...Object.entries(KINDS).map(([kind, word]) => h("li", {}, h("i", { class: `swatch ${kind}` }), word)),
      h("li", {}, h("i", { class: "swatch module uncached" }), "still to compute"))
    host.append(h("div", { class: "strip-head" }, h("h2", {}, "Layout"), this.#readout, legend), this.#track)
    this.#track.addEventListener("pointermove", event => this.#point(this.#pieces.findIndex(piece => piece.node === event.target)))
    this.#track.addEventListener("pointerleave", () => this.#point(-1))
    this.#track.addEventListener("blur", () => this.#point(-1))
    this.#track.addEventListener("keydown", event => this.#key(event))
    workspace.on("measured", ({ strip }) => this.#draw(strip))
    this.#readout.textContent = "Drawn when the documents are read."
  }

  /** @param {Api.Strip | null} strip */
  #draw(strip) {
    this.#current = -1
    if (!strip) {
      this.#summary = "Shown when both documents are without errors."
      this.#pieces = []
    } else {
      const share = strip.total ? Math.round(100 * strip.cached / strip.total) : 0
      const there = strip.pieces.filter(({ cached }) => cached !== "none").reduce((sum, { tokens }) => sum + tokens, 0)
      const missing = Math.max(0, strip.cached - there)
      const rest = missing ? ` · ${count(missing)} still to compute once` : ""
      this.#summary = `${plural(strip.total, "token")}: ${count(strip.cached)} reusable (${share}%), ${count(strip.new)} new${rest}`
      this.#pieces = strip.pieces.filter(piece => piece.tokens > 0).map(piece => {
        const node = h("span", { class: `piece ${piece.kind}${missing && piece.cached === "none" ? " uncached" : ""}` })
        node.style.flexGrow = String(piece.tokens)
        return { ...piece, node }
      })
    }
    this.#track.replaceChildren(...this.#pieces.map(piece => piece.node))
    this.#readout.textContent = this.#summary
  }

  /** @param {DrawnPiece} piece */
  #describe({ kind, label, path, start, tokens, cached, bytes: size }) {
    const what = label || path || KINDS[kind], tier = this.tiers.find(({ name }) => name === cached)
    const held = kind === "text" || kind === "argument" ? KINDS[kind] : [size ? bytes(size) : "", tier?.meaning ?? cached].filter(Boolean).join(" · ")
    return `${what} · ${plural(tokens, "token")} · positions ${count(start)}–${count(start + tokens - 1)} · ${held}`
  }

  /** @param {number} index */
  #point(index) {
    if (index === this.#current) return
    this.#pieces[this.#current]?.node.classList.remove("current")
    this.#current = index
    const piece = this.#pieces[index]
    piece?.node.classList.add("current")
    this.#readout.textContent = piece ? this.#describe(piece) : this.#summary
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0
    if (!step || !this.#pieces.length) return
    event.preventDefault()
    this.#point(Math.min(this.#pieces.length - 1, Math.max(0, this.#current + step)))
  }
}
