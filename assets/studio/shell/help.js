// The help: shortcuts, the glossary and the project's documents, built without HTML.
import { h, refill } from "../base/dom.js"
import { SHORTCUTS, keysOf, pressed } from "./shortcuts.js"

const names = /** @type {import("./shortcuts.js").Shortcut[]} */ (Object.keys(SHORTCUTS))
const STYLES = /** @type {const} */ ({ code: "code", strong: "strong", em: "em" })

export class Help {
  #server
  #shell
  #nav = h("nav", { "aria-label": "Documents" })
  #body = h("article", { tabindex: "0", "aria-label": "Document" })
  #dialog
  #name = ""

  /**
   * @param {HTMLElement} host
   * @param {import("../base/server.js").Server} server
   * @param {import("./shell.js").Shell} shell
   */
  constructor(host, server, shell) {
    this.#server = server
    this.#shell = shell
    this.#dialog = h("dialog", { class: "help", "aria-labelledby": "help-title" },
      h("header", {}, h("h2", { id: "help-title" }, "Help"), h("span", { class: "grow" }),
        h("button", { type: "button", class: "quiet", "aria-label": "Close", title: "Close (Esc)", onclick: () => this.#dialog.close() }, "✕")),
      h("div", { class: "help-columns" }, this.#nav, this.#body))
    host.append(this.#dialog)
    document.addEventListener("keydown", event => {
      const typing = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, [contenteditable]")
      if (event.defaultPrevented || !pressed(event, "help") || typing || document.querySelector("dialog[open]")) return
      event.preventDefault()
      this.open()
    })
  }

  async open(name = this.#name) {
    if (!this.#dialog.open) this.#dialog.showModal()
    if (!this.#nav.hasChildNodes()) await this.#list()
    await this.show(name)
  }

  async #list() {
    const { documents = [], error } = await this.#server.ask("list_help", {})
    if (error) this.#shell.notice(error)
    this.#nav.replaceChildren(...[{ name: "", title: "Shortcuts" }, ...documents].map(({ name, title }) =>
      h("button", { type: "button", "data-name": name, onclick: () => this.show(name) }, title)))
  }

  /** Shows a document, from its start or a heading. @param {string} name @param {string} [anchor] */
  async show(name, anchor = "") {
    const changed = name !== this.#name || !this.#body.hasChildNodes()
    this.#name = name
    for (const button of this.#nav.querySelectorAll("button")) button.toggleAttribute("aria-current", button.dataset.name === name)
    if (changed) {
      if (name) {
        refill(this.#body, h("p", { class: "soft" }, "Opening…"))
        const { blocks, error } = await this.#server.ask("read_help", { name })
        if (this.#name !== name) return
        this.#body.replaceChildren(...blocks ? this.#elements(blocks) : [h("p", {}, error ?? "The studio's server does not answer. Try again when it is back.")])
        if (!blocks) this.#name = ""
      } else this.#body.replaceChildren(h("h1", {}, "Shortcuts"), h("table", {}, h("tbody", {}, ...names.map(one => h("tr", {}, h("td", {}, SHORTCUTS[one].what), h("td", {}, h("kbd", {}, keysOf(one))))))))
    }
    const heading = anchor && [...this.#body.querySelectorAll("[data-anchor]")].find(node => node instanceof HTMLElement && node.dataset.anchor === anchor)
    if (heading) heading.scrollIntoView({ block: "start" })
    else this.#body.scrollTop = 0
  }

  /** @param {Api.HelpBlock[]} blocks */
  #elements(blocks) {
    /** @type {HTMLElement[]} */
    const nodes = []
    /** @type {HTMLElement | null} */
    let list = null
    for (const { kind, level, spans = [], rows = [], text = "", marker = "", anchor } of blocks) {
      const inside = list?.lastElementChild
      if (kind === "item") {
        if (!list) nodes.push(list = h("ul", {}))
        const item = h("li", {}, h("span", { class: "marker" }, marker), h("div", {}, h("p", {}, ...this.#line(spans))))
        item.style.setProperty("--depth", String(level - 1))
        list.append(item)
        continue
      }
      const node = kind === "heading" ? h(/** @type {"h1"} */ (`h${Math.min(level, 4)}`), { "data-anchor": anchor }, ...this.#line(spans))
        : kind === "code" ? h("pre", { tabindex: "0" }, text)
          : kind === "table" ? this.#table(rows) : h("p", {}, ...this.#line(spans))
      if (level > 0 && kind !== "heading" && inside?.lastElementChild) { inside.lastElementChild.append(node); continue }
      list = null
      nodes.push(node)
    }
    return nodes
  }

  /** @param {Api.HelpSpan[][][]} rows */
  #table([head, ...rows]) {
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", {},
      h("thead", {}, h("tr", {}, ...head.map(cell => h("th", {}, ...this.#line(cell))))),
      h("tbody", {}, ...rows.map(row => h("tr", {}, ...row.map(cell => h("td", {}, ...this.#line(cell))))))))
  }

  /** @param {Api.HelpSpan[]} spans */
  #line(spans) {
    return spans.map(({ text, style, href }) => {
      const said = style === "text" ? text : h(STYLES[style], {}, text)
      if (!href) return said
      if (!href.startsWith("#")) return h("a", { href, target: "_blank", rel: "noreferrer noopener" }, said)
      const [name, anchor] = href.slice(1).split("/")
      return h("a", { href: "#", onclick: (/** @type {Event} */ event) => { event.preventDefault(); this.show(name || this.#name, anchor) } }, said)
    })
  }
}
