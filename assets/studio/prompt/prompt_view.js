// The model's input turn by turn, coloured by author. A click goes to its source.
import { bytes, count, debounce, h, plural } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { Block, rowsOf } from "./passages.js"
import { moved, placeIn } from "./source_places.js"

/**
 * @typedef {import("../documents/workspace.js").Workspace} Workspace
 * @typedef {import("../documents/workspace.js").Kind} Kind
 * @typedef {Record<Kind, string>} TextsOfBoth
 */

const AUTHORS = { template: "chat template", anonymous: "fixed text", module: "module", argument: "argument", text: "new text" }
const MARGIN = "400px"
const WAITS = "The model is still loading: this view needs its tokenizer and chat template."
const READ_AFTER_MS = 30

/**
 * "reveal": a place in a document to show.
 * @extends {Emitter<{reveal: {kind: Kind, from: number}}>}
 */
export class Reads extends Emitter {
  #workspace
  #server
  #note = h("p", { class: "reads-note", role: "status", hidden: true })
  #body = h("div", { class: "reads-text", tabindex: "0", role: "group", "aria-label": "The model's input; arrow keys move between parts, Enter goes to the source" })
  #readout = h("p", { class: "reads-readout", role: "status" })
  #facts = h("span", { class: "soft facts-line" })
  #tokens = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.#toggle("tokens") }, "Tokens")
  #spaces = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.#toggle("spaces") }, "White space")
  #wrong = h("button", { type: "button", class: "quiet warn", hidden: true, onclick: () => this.#nextWrong() })
  #copy = h("button", { type: "button", class: "quiet", disabled: true, onclick: () => this.#copyText() }, "Copy")
  #marks = { tokens: false, spaces: false }
  #shown = false
  #fresh = false
  #asked = 0
  #current = -1
  /** @type {Api.ReadPassage[]} */
  #passages = []
  /** The documents of the passages. @type {TextsOfBoth} */
  #texts = { schema: "", prompt: "" }
  /** @type {Block[]} */
  #blocks = []
  #observer
  #readSoon = debounce(READ_AFTER_MS, () => this.#read())
  /** The tiers' names. @type {Api.TierWords[]} */
  tiers = []

  /** @param {Workspace} workspace @param {import("../base/server.js").Server} server */
  constructor(workspace, server) {
    super()
    this.#workspace = workspace
    this.#server = server
    const legend = h("ul", { class: "legend", "aria-label": "Legend" },
      ...Object.entries(AUTHORS).map(([author, word]) => h("li", {}, h("i", { class: `key by-${author}` }), word)))
    this.node = h("section", { class: "panel reads", "aria-label": "What the model reads" },
      h("header", { class: "bar" }, h("h2", {}, "What the model reads"), this.#wrong, h("span", { class: "grow" }), this.#facts, this.#tokens, this.#spaces, this.#copy),
      this.#note, this.#body, h("div", { class: "reads-foot" }, this.#readout, legend))
    this.#observer = new IntersectionObserver(seen => this.#see(seen), { root: this.#body, rootMargin: MARGIN })
    this.#body.addEventListener("pointerover", event => this.#point(this.#passageAt(event.target)))
    this.#body.addEventListener("pointerleave", () => { if (document.activeElement !== this.#body) this.#point(-1) })
    this.#body.addEventListener("blur", () => { if (!this.#body.matches(":hover")) this.#point(-1) })
    this.#body.addEventListener("keydown", event => this.#key(event))
    this.#body.addEventListener("click", event => this.#click(event))
    workspace.on("measured", () => this.#outdated())
    workspace.on("opened", () => { this.#clear(); this.#body.scrollTop = 0 })
    this.#say(WAITS)
    this.#describe()
  }

  /** Sets whether it is visible; hidden views make no requests. @param {boolean} shown */
  show(shown) {
    this.#shown = shown
    if (shown && !this.#fresh) this.#readSoon()
  }

  #outdated() {
    this.#fresh = false
    if (this.#shown) this.#readSoon()
  }

  async #read() {
    const asked = ++this.#asked, texts = { schema: this.#workspace.basis(), prompt: this.#workspace.texts().prompt }
    this.#fresh = true
    const { origin, settings } = this.#workspace, borders = this.#marks.tokens
    const answer = await this.#server.ask("read_prompt", { ...texts, origin, settings, borders })
    if (asked !== this.#asked) return
    if (answer.away || answer.error != null) {
      this.#fresh = false
      if (answer.error) this.#say(answer.error)
      return
    }
    if (!answer.passages && !this.#workspace.sound) this.#clear()
    if (!answer.passages) return this.#say(this.#passages.length ? `From the last valid text. ${answer.fault}` : `Shown when both documents have no errors. ${answer.fault}`)
    this.#say("")
    this.#texts = texts
    this.#draw(answer.passages, answer.tokens)
    if (this.#marks.tokens && !borders) this.#readSoon()  // requested meanwhile
  }

  /** @param {string} words */
  #say(words) {
    this.#note.hidden = !words
    if (this.#note.textContent !== words) this.#note.textContent = words
    this.#body.toggleAttribute("data-old", words !== "")
  }

  /** @param {Api.ReadPassage[]} passages @param {number} tokens */
  #draw(passages, tokens) {
    const rows = rowsOf(passages), before = this.#blocks
    let first = 0, last = 0
    const most = Math.min(before.length, rows.length)
    while (first < most && before[first].key === rows[first].key) first++
    while (last < most - first && before[before.length - 1 - last].key === rows[rows.length - 1 - last].key) last++
    const gone = before.slice(first, before.length - last), fresh = rows.slice(first, rows.length - last).map(row => new Block(row))
    const behind = before[before.length - last]?.node ?? null
    for (const block of gone) { this.#observer.unobserve(block.node); block.node.remove() }
    for (const block of fresh) { this.#body.insertBefore(block.node, behind); this.#observer.observe(block.node) }
    this.#blocks = [...before.slice(0, first), ...fresh, ...before.slice(before.length - last)]
    this.#passages = passages
    this.#blocks.forEach((block, at) => block.take(rows[at], passages))
    for (const block of this.#blocks) if (block.seen) block.mark(this.#marks)
    const turns = new Set(passages.map(({ turn }) => turn).filter(turn => turn !== null)).size
    const wrong = passages.filter(({ meets }) => meets).length
    this.#facts.textContent = turns ? `${plural(tokens, "token")}, ${plural(turns, "turn")}` : plural(tokens, "token")
    this.#wrong.hidden = !wrong
    this.#wrong.textContent = `${plural(wrong, "place")} to check`
    this.#copy.disabled = false
    if (this.#current >= passages.length) this.#current = -1
    this.#highlight()
    this.#describe()
  }

  /** @param {IntersectionObserverEntry[]} seen */
  #see(seen) {
    for (const { target, isIntersecting } of seen) {
      const block = this.#blocks.find(({ node }) => node === target)
      if (block) { block.seen = isIntersecting; block.mark(isIntersecting ? this.#marks : { tokens: false, spaces: false }) }
    }
  }

  /** @param {"tokens" | "spaces"} what */
  #toggle(what) {
    this.#marks[what] = !this.#marks[what]
    const button = what === "tokens" ? this.#tokens : this.#spaces
    button.setAttribute("aria-pressed", String(this.#marks[what]))
    if (what === "tokens" && this.#marks.tokens && this.#passages.some(({ borders }) => borders === null)) this.#readSoon()
    for (const block of this.#blocks) if (block.seen) block.mark(this.#marks)
    this.#highlight()
  }

  // Removes passages of another document.
  #clear() {
    this.#draw([], 0)
    this.#facts.textContent = ""
    this.#copy.disabled = true
  }

  /** @param {EventTarget | null} target */
  #passageAt(target) {
    const part = target instanceof Element ? target.closest("[data-passage]") : null
    return part instanceof HTMLElement ? Number(part.dataset.passage) : -1
  }

  /** @param {number} index */
  #point(index) {
    if (index === this.#current) return
    this.#current = index
    this.#highlight()
    this.#describe()
  }

  #highlight() {
    for (const block of this.#blocks) block.highlight(this.#current)
  }

  #describe() {
    const one = this.#passages[this.#current]
    this.#readout.replaceChildren(...(one ? this.#words(one) : [this.#passages.length ? "Hover over a part to see its source; click to go there." : ""]))
  }

  /** @param {Api.ReadPassage} passage */
  #words({ author, path, tokens, start, cached, bytes: size, sees, meets, seam, why }) {
    const what = author === "argument" ? `argument ${path.split(":")[1]} of ${path.split(":")[0]}` : path || (author === "anonymous" ? "fixed text" : AUTHORS[author])
    const tier = this.tiers.find(({ name }) => name === cached)
    const held = cached === null ? `computed each time${why && ` · ${why}`}` : `${tier?.label ?? cached}, ${bytes(size)} · encoded after ${sees ? plural(sees, "token") : "no other tokens"}`
    const at = tokens > 1 ? ` at ${count(start)}–${count(start + tokens - 1)}` : tokens ? ` at ${count(start)}` : ""
    return [h("strong", {}, what), `${seam ? " · white space between" : ""} · ${plural(tokens, "token")}${at} · ${held}`, meets ? h("span", { class: "warn" }, ` ${meets[0].toUpperCase()}${meets.slice(1)}.`) : ""]
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const steps = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 })
    const step = steps[event.key]
    if (event.key === "Enter" && this.#passages[this.#current]) { event.preventDefault(); return this.#reveal(this.#current, 0) }
    if (!step || event.ctrlKey || event.metaKey || event.altKey || !this.#passages.length) return
    event.preventDefault()
    this.#goTo(Math.min(this.#passages.length - 1, Math.max(0, this.#current + step)))
  }

  /** @param {number} index */
  #goTo(index) {
    this.#point(index)
    this.#body.querySelector(`[data-passage="${index}"]`)?.scrollIntoView({ block: "nearest" })
  }

  #nextWrong() {
    const places = this.#passages.flatMap(({ meets }, index) => meets ? [index] : [])
    const next = places.find(index => index > this.#current) ?? places[0]
    if (next === undefined) return
    this.#body.focus({ preventScroll: true })
    this.#goTo(next)
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const index = this.#passageAt(event.target), selection = getSelection()
    if (index < 0 || (selection && !selection.isCollapsed)) return
    this.#reveal(index, this.#offset(index, selection))
  }

  /** The clicked offset in a passage. @param {number} index @param {Selection | null} selection */
  #offset(index, selection) {
    const { focusNode: node, focusOffset } = selection ?? {}
    if (!node || !this.#body.contains(node)) return 0
    for (const block of this.#blocks) {
      const within = block.offset(index, node, focusOffset ?? 0)
      if (within >= 0) return within
    }
    return 0
  }

  /** @param {number} index @param {number} offset in its text */
  #reveal(index, offset) {
    const { document: kind, at, end, text } = this.#passages[index]
    if (!kind) return
    const read = this.#texts[kind], now = this.#workspace.texts()[kind]
    const place = at + placeIn(read.slice(at, end), text.slice(0, offset))
    this.emit("reveal", { kind, from: moved(place, read, now) })
  }

  async #copyText() {
    const words = this.#copy.textContent
    try {
      await navigator.clipboard.writeText(this.#passages.map(({ text }) => text).join(""))
      this.#copy.textContent = "Copied"
    } catch {
      this.#copy.textContent = "Copying is blocked: select the text and copy it"
    }
    setTimeout(() => { this.#copy.textContent = words }, 2000)
  }
}
