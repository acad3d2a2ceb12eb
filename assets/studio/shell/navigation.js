// The navigation: shows the page that the URL names.
import { h } from "../base/dom.js"
import { Emitter } from "../base/events.js"
import { icon } from "../base/icons.js"

const STUDIO = "Prompt Cache Studio"

/** @typedef {{name: string, title: string}} Entry a page of the server's registry */

/**
 * "shown": a page; "unknown": the URL names no page, so another one is shown.
 * @extends {Emitter<{shown: string, unknown: {wanted: string, title: string}}>}
 */
export class Rail extends Emitter {
  /** @type {Map<string, {title: string, link: HTMLAnchorElement}>} */
  #pages
  #page = ""
  #place = ""
  #hash = ""

  /** @param {Entry[]} pages @param {...HTMLElement} foot elements at its end */
  constructor(pages, ...foot) {
    super()
    this.#pages = new Map(pages.map(({ name, title }) => [name, { title, link: h("a", { href: `#/${name}` }, icon(name), h("span", {}, title)) }]))
    this.node = h("div", { class: "rail" },
      h("h1", { title: STUDIO }, h("span", { class: "sr" }, STUDIO)),
      h("nav", { "aria-label": "Pages" }, ...[...this.#pages.values()].map(({ link }) => link)),
      h("div", { class: "rail-foot" }, ...foot))
  }

  /** The current page's name. */
  get page() { return this.#page }

  /** The URL's part after the page's name, or "". */
  get place() { return this.#place }

  /** The pages in order. */
  get entries() { return [...this.#pages].map(([name, { title }]) => ({ name, title })) }

  /** Starts to follow the URL. */
  start() {
    addEventListener("hashchange", () => { if (location.hash !== this.#hash) this.#show() })
    this.#show()
  }

  /** @param {string} page @param {string} [place] in the page */
  go(page, place = "") {
    if (page === this.#page && place === this.#place) history.replaceState(history.state, "", place ? `#/${page}/${place}` : `#/${page}`)
    else {
      location.hash = place ? `#/${page}/${place}` : `#/${page}`
      this.#show()  // before the event of the URL, so that the caller can move the focus into the page
    }
  }

  /** @param {string} page whether the page exists */
  has(page) { return this.#pages.has(page) }

  /** Shows the page and hides all others that are mounted; Gradio may mount some later. */
  unveil() { for (const name of this.#pages.keys()) document.querySelector(`#page-${name}`)?.toggleAttribute("data-shown", name === this.#page) }

  #show() {
    const [wanted, ...place] = location.hash.replace(/^#\/?/, "").split("/"), page = this.has(wanted) ? wanted : [...this.#pages.keys()][0]
    const title = this.#pages.get(page)?.title ?? ""
    if (wanted && wanted !== page) {
      history.replaceState(history.state, "", `#/${page}`)
      this.emit("unknown", { wanted, title })
    }
    this.#place = page === wanted ? place.join("/") : ""
    this.#hash = location.hash
    this.#page = document.documentElement.dataset.page = page
    document.title = `${title} · ${STUDIO}`
    this.unveil()
    for (const [name, { link }] of this.#pages) {
      if (name === page) link.setAttribute("aria-current", "page")
      else link.removeAttribute("aria-current")
    }
    this.emit("shown", page)
  }
}
