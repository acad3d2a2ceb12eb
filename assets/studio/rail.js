// The rail of pages: which page is shown, by the address.
import { h } from "./dom.js"
import { Emitter } from "./events.js"
import { icon } from "./icons.js"

const STUDIO = "Prompt Cache Studio"

/** @typedef {{name: string, title: string}} Entry a page of the server's registry */

/**
 * "shown": a page is; "unknown": the address named a page that there is none of, so another is shown.
 * @extends {Emitter<{shown: string, unknown: {wanted: string, title: string}}>}
 */
export class Rail extends Emitter {
  /** @type {Map<string, {title: string, link: HTMLAnchorElement}>} */
  #pages
  #page = ""
  #place = ""

  /** @param {Entry[]} pages @param {...HTMLElement} foot what stands at its end */
  constructor(pages, ...foot) {
    super()
    this.#pages = new Map(pages.map(({ name, title }) => [name, { title, link: h("a", { href: `#/${name}` }, icon(name), h("span", {}, title)) }]))
    this.node = h("div", { class: "rail" },
      h("h1", { title: STUDIO }, h("span", { class: "sr" }, STUDIO)),
      h("nav", { "aria-label": "Pages" }, ...[...this.#pages.values()].map(({ link }) => link)),
      h("div", { class: "rail-foot" }, ...foot))
  }

  /** The name of the page that is shown. */
  get page() { return this.#page }

  /** What stands behind the page in the address: a place in it; "" for all of it. */
  get place() { return this.#place }

  /** The pages in their order. */
  get entries() { return [...this.#pages].map(([name, { title }]) => ({ name, title })) }

  /** Goes by the address from now on. */
  start() {
    addEventListener("hashchange", () => this.#show())
    this.#show()
  }

  /** @param {string} page @param {string} [place] in it */
  go(page, place) { location.hash = place ? `#/${page}/${place}` : `#/${page}` }

  /** @param {string} page whether there is one of this name */
  has(page) { return this.#pages.has(page) }

  /** Shows the page and hides the others, among those whose places are there: Gradio may bring some later than this rail. */
  unveil() { for (const name of this.#pages.keys()) document.querySelector(`#page-${name}`)?.toggleAttribute("data-shown", name === this.#page) }

  #show() {
    const [wanted, ...place] = location.hash.replace(/^#\/?/, "").split("/"), page = this.has(wanted) ? wanted : [...this.#pages.keys()][0]
    const title = this.#pages.get(page)?.title ?? ""
    if (wanted && wanted !== page) {
      history.replaceState(history.state, "", `#/${page}`)
      this.emit("unknown", { wanted, title })
    }
    this.#place = page === wanted ? place.join("/") : ""
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
