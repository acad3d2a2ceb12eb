// A document's problems: their number in its header, and a list with fixes below its editor.
import { h, plural, refill } from "../base/dom.js"

const SIGNS = { error: "✕", warning: "!", info: "i" }
const MOST_PROBLEMS = 100
const PREVIEW_ID = "fix-preview"
const SOON_MS = 150

/** A note needs no action. @param {Api.Mark} mark */
const isNote = ({ severity, fixes }) => severity === "info" && !fixes.length

/** @typedef {import("./workspace.js").Kind} Kind */

export class Problems {
  #workspace
  #kind
  /** Whether notes are unfolded. */
  #open = false
  #redraw = () => {}
  /** The marks in the list, as JSON. */
  #shown = ""
  /** The fix with the preview, and the timer that asks for it. @type {HTMLElement | null} */
  #previewed = null
  #timer = 0
  #preview = h("div", { class: "tip fix-preview", role: "tooltip", popover: "manual" })
  status = h("span", { class: "status", role: "status" })
  list

  /** @param {import("./workspace.js").Workspace} workspace @param {Kind} kind */
  constructor(workspace, kind) {
    this.#workspace = workspace
    this.#kind = kind
    this.list = h("ul", { class: "problems", "aria-label": `Problems in the ${kind}`, hidden: true })
    this.#preview.id = `${PREVIEW_ID}-${kind}`
    document.body.append(this.#preview)
    this.list.addEventListener("keydown", event => { if (event.key === "Escape" && this.#previewed) this.#hide(); else this.#walk(event) })
    this.list.addEventListener("scroll", () => { if (this.#previewed && this.#preview.matches(":popover-open")) this.#place(this.#previewed) }, { passive: true })
    // A check without a change keeps the buttons: a press that has begun on one still ends on it.
    workspace.on("problems", one => {
      if (one.kind !== kind || this.#shown === JSON.stringify(one.list)) return
      this.#shown = JSON.stringify(one.list)
      this.#show(one.list)
    })
    workspace.on("choice", one => { if (one.kind === kind) this.#choose(one.mark) })
  }

  /** @param {Api.Mark[]} marks */
  #show(marks) {
    this.#hide()
    const errors = marks.filter(({ severity }) => severity === "error").length
    const warnings = marks.filter(({ severity }) => severity === "warning").length
    this.status.textContent = [errors && plural(errors, "error"), warnings && plural(warnings, "warning")].filter(Boolean).join(", ") || "no problems"
    this.status.dataset.mood = errors ? "bad" : warnings ? "warn" : "good"
    this.list.hidden = marks.length === 0
    const notes = marks.filter(isNote), problems = marks.filter(mark => !isNote(mark)), more = problems.length - MOST_PROBLEMS
    this.#redraw = () => this.#show(marks)
    refill(this.list, ...problems.slice(0, MOST_PROBLEMS).map((mark, place) => this.#row(mark, place)),
      more > 0 ? h("li", { class: "more soft" }, `${plural(more, "more problem")} further down.`) : null,
      notes.length ? h("li", {}, h("button", { type: "button", class: "problem soft", "data-key": "notes", "aria-expanded": String(this.#open), onclick: () => { this.#open = !this.#open; this.#redraw() } },
        h("span", { class: "sign", "aria-hidden": "true" }, this.#open ? "▾" : "▸"), plural(notes.length, "note"))) : null,
      ...(this.#open ? notes.slice(0, MOST_PROBLEMS).map((mark, place) => this.#row(mark, problems.length + place)) : []))
  }

  /** @param {Api.Mark} mark @param {number} place */
  #row(mark, place) {
    const { severity, code, message, line, column, from, fixes } = mark
    return h("li", { class: fixes.length > 1 ? `${severity} choice` : severity, "data-mark": `${code} ${from}` },
      h("button", { type: "button", class: "problem", "data-key": `problem ${place}`, onclick: () => this.#workspace.editors[this.#kind].reveal(from) },
        h("span", { class: "sign", "aria-label": severity }, SIGNS[severity]), h("span", { class: "place" }, `${line}:${column}`),
        h("span", {}, `${code}: ${message}`)),
      ...fixes.map((fix, number) => h("button", { type: "button", class: "fix", "data-key": `fix ${place} ${number}`, "aria-describedby": this.#preview.id,
        onpointerenter: this.#soon(mark, fix), onfocus: this.#soon(mark, fix), onpointerleave: () => this.#hide(), onblur: () => this.#hide(), "aria-label": `${fix}: fixes ${code} in line ${line}`, onclick: () => this.#workspace.fix(this.#kind, mark, fix) }, fix)),
      this.#kind === "prompt" && ["E116", "E121"].includes(code) ? h("button", { type: "button", class: "fix", "data-key": `wrap ${place}`, onclick: () => this.#workspace.wrap() }, "Make it a prompt") : null)
  }

  /** Returns the listener that previews a fix. @param {Api.Mark} mark @param {string} fix */
  #soon(mark, fix) {
    return (/** @type {Event} */ { currentTarget }) => {
      this.#hide()
      const button = this.#previewed = /** @type {HTMLElement} */ (currentTarget)
      this.#timer = window.setTimeout(async () => {
        const found = await this.#workspace.preview(this.#kind, mark, fix)
        if (!found || this.#previewed !== button || !button.isConnected) return
        const lines = (/** @type {"del" | "ins"} */ tag, /** @type {string[]} */ texts) => texts.map(text => h("p", { class: "line" }, h(tag, {}, text || " ")))
        const skipped = (/** @type {number} */ number) => number ? h("li", { class: "soft" }, plural(number, "more text")) : null
        this.#preview.replaceChildren(...lines("del", found.removed), ...lines("ins", found.added),
          h("p", { class: "soft" }, found.errors ? `The model then reads, with ${plural(found.errors, "error")} left:` : "The model then reads:"),
          h("ol", {}, skipped(found.above), ...found.reads.map(({ role, path, text }) => h("li", {}, h("b", {}, [role, path || "text"].filter(Boolean).join(" · ")), ` ${text}`)), skipped(found.below)))
        this.#place(button)
      }, SOON_MS)
    }
  }

  // Covers neither the button nor the other choices.
  /** @param {HTMLElement} button */
  #place(button) {
    const row = /** @type {HTMLElement} */ (button.closest("li.choice") ?? button), { style } = this.#preview
    style.maxHeight = ""
    if (!this.#preview.matches(":popover-open")) this.#preview.showPopover()
    const { left } = button.getBoundingClientRect(), { top, bottom } = row.getBoundingClientRect(), list = this.list.getBoundingClientRect()
    const { offsetHeight: height, offsetWidth: width } = this.#preview
    const above = Math.max(top, list.top) - 12, below = innerHeight - Math.min(bottom, list.bottom) - 12
    const up = row === button ? height > below && above > below : height <= above || above > below
    style.maxHeight = `${up ? above : below}px`
    style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`
    style.top = `${up ? Math.max(8, above + 8 - height) : innerHeight - below - 8}px`
  }

  #hide() {
    clearTimeout(this.#timer)
    this.#previewed = null
    if (this.#preview.matches(":popover-open")) this.#preview.hidePopover()
  }

  /** Lets the user choose among several fixes. @param {Api.Mark} mark */
  #choose({ code, from }) {
    const row = this.list.querySelector(`[data-mark="${code} ${from}"]`), first = row?.querySelector("button.fix")
    if (first instanceof HTMLElement) first.focus()
  }

  // Up and down move between problems; F8 goes to the text.
  /** @param {KeyboardEvent} event */
  #walk(event) {
    const all = /** @type {HTMLElement[]} */ ([...this.list.querySelectorAll("button.problem")])
    const row = event.target instanceof HTMLElement ? event.target.closest("li") : null, at = all.findIndex(one => row?.contains(one))
    const step = event.key === "ArrowDown" || event.key === "F8" ? 1 : event.key === "ArrowUp" ? -1 : 0
    if (!step || at < 0) return
    event.preventDefault()
    const next = all[event.key === "F8" ? (at + step) % all.length : Math.max(0, Math.min(at + step, all.length - 1))]
    next.focus()
  }
}
