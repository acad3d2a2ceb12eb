// The pages' scripts: each loads when its page is first shown.

/**
 * @typedef {{begin?: (start: Api.Start) => unknown, shown?: () => unknown}} View callbacks for when the data arrive, and whenever the page is shown
 * @typedef {{mount: (studio: import("../studio.js").Studio) => View, hosts?: string[]}} Script the exports of `pages/NAME.js`; `hosts`: further elements to fill
 */

/** Loads a page's styles. @param {string} name @returns {Promise<void>} */
function styled(name) {
  const href = new URL(`../pages/${name}.css`, import.meta.url).href
  if ([...document.styleSheets].some(sheet => sheet.href === href)) return Promise.resolve()
  return new Promise((resolve, reject) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: () => resolve(), onerror: () => { link.remove(); reject(new Error(href)) } })
    document.head.append(link)
  })
}

export class Views {
  #studio
  #hosted
  /** @type {Map<string, Promise<View>>} */
  #mounted = new Map()
  /** @type {(start: Api.Start) => void} */
  #began = () => {}
  /** @type {Promise<Api.Start>} */
  #start = new Promise(resolve => { this.#began = resolve })

  /** @param {import("../studio.js").Studio} studio @param {(part: string) => Promise<HTMLElement>} hosted the host element, once mounted */
  constructor(studio, hosted) {
    this.#studio = studio
    this.#hosted = hosted
  }

  /** Passes the initial data to all pages, mounted now or later. @param {Api.Start} start */
  async begin(start) {
    this.#began(start)
    await Promise.allSettled(this.#mounted.values())
  }

  /**
   * Loads and mounts a page once; it begins when there is data.
   * @param {string} name
   */
  mount(name) {
    const known = this.#mounted.get(name)
    if (known) return known
    const made = this.#make(name)
    this.#mounted.set(name, made)
    made.catch(() => this.#mounted.delete(name))
    return made
  }

  /** @param {string} name */
  async #make(name) {
    const [script] = /** @type {[Script, void]} */ (await Promise.all([import(`../pages/${name}.js`), styled(name)]))
    await Promise.all([name, ...script.hosts ?? []].map(this.#hosted))
    this.#studio.shell.unveil()
    const view = script.mount(this.#studio)
    this.#start.then(start => view.begin?.(start))
    return view
  }

  /** Shows a page; after navigation the focus moves to its heading. @param {string} name @param {{travelled: boolean}} how */
  async show(name, { travelled }) {
    const { shell, hosts } = this.#studio
    try {
      const view = await this.mount(name)
      if (shell.page !== name) return
      if (travelled) this.#goOn(hosts[name])
      await this.#start
      if (shell.page === name) view.shown?.()
    } catch (error) {
      console.warn(error)
      const title = shell.pages.find(page => page.name === name)?.title
      shell.notice(`${title} could not be loaded.`, { key: `page-${name}`, actions: [["Reload the page", () => location.reload()]] })
    }
  }

  // An existing focus in the page or a dialog stays.
  /** @param {HTMLElement} host */
  #goOn(host) {
    const heading = host.querySelector("h2"), focused = document.activeElement
    if (!heading || host.contains(focused) || focused?.closest("dialog[open], .run-bar")) return
    heading.tabIndex = -1
    heading.focus({ preventScroll: true })
  }
}
