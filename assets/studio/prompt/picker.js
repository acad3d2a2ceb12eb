// The module tree. It is rebuilt only when the schema's tree changes; picks update it.
import { bytes, count, debounce, h } from "../base/dom.js"
import { ArgumentField } from "./argument_field.js"

/**
 * @typedef {Api.TreeRow & {children: TreeNode[]}} TreeNode
 * @typedef {{
 *   node: HTMLElement, input: HTMLInputElement, label: HTMLElement, rank: HTMLElement, badge: HTMLElement, tokens: HTMLElement,
 *   arguments: Record<string, ArgumentField>,
 * }} Row
 */

const FIND_MS = 180
const TYPED = ["text", "search"]

// The server sends rows with depths, because JSON parsers limit nesting.
/** @param {Api.TreeRow[]} rows */
function nested(rows) {
  const root = { children: /** @type {TreeNode[]} */ ([]) }, open = [root]
  for (const row of rows) {
    const node = { ...row, children: [] }
    open.length = row.depth + 1
    open[row.depth].children.push(node)
    open.push(node)
  }
  return root.children
}

export class Picker {
  #workspace
  #server
  /** @type {Map<string, Row>} */
  #rows = new Map()
  /** @type {{group: HTMLElement, none: HTMLInputElement, paths: string[]}[]} */
  #unions = []
  #groups = 0
  /** @type {Set<string>} */
  #picked = new Set()
  /** @type {Record<string, Api.ModuleSize>} */
  #sizes = {}
  #tiers
  #note = h("span", { class: "pill warn", hidden: true, title: "The schema has errors; these are the modules of its last valid text" },
    "last valid schema")
  #tree = h("div", { class: "tree" })
  #field = h("input", {
    type: "search", class: "find", placeholder: "Find by text", "aria-label": "Find modules by their text",
    autocomplete: "off", spellcheck: "false",
  })
  #none = h("p", { class: "empty", role: "status", hidden: true }, "No modules match.")
  /** Paths that match the search, by rank; null without a search. @type {Map<string, number> | null} */
  #found = null

  /**
   * @param {HTMLElement} host
   * @param {import("../documents/workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {Api.TierWords[]} tiers
   */
  constructor(host, workspace, server, tiers) {
    this.#tiers = new Map(tiers.map(tier => [tier.name, tier]))
    this.#workspace = workspace
    this.#server = server
    host.append(
      h("header", { class: "bar" }, h("h2", {}, "Modules"), this.#note, h("span", { class: "grow" }), this.#field),
      this.#none, this.#tree,
    )
    this.#field.addEventListener("input", debounce(FIND_MS, () => this.#find()))
    host.addEventListener("keydown", event => this.#undo(event))
    workspace.on("checked", answer => this.#checked(answer))
    workspace.on("measured", answer => this.#measured(answer))
  }

  // A pick edits the prompt, so undo works here too.
  /** @param {KeyboardEvent} event */
  #undo(event) {
    if (!(event.ctrlKey || event.metaKey) || (event.target instanceof HTMLInputElement && TYPED.includes(event.target.type))) return
    const key = event.key.toLowerCase()
    if (key !== "z" && key !== "y") return
    event.preventDefault()
    this.#workspace.editors.prompt[key === "y" || event.shiftKey ? "redo" : "undo"]()
  }

  /** @param {Api.CheckedTexts} answer */
  #checked({ basis, picks }) {
    this.#note.hidden = !basis.stale
    if (basis.tree) this.#build(basis.tree)
    this.#picked = new Set(picks.paths)
    for (const [path, row] of this.#rows) {
      const on = this.#picked.has(path)
      row.input.checked = on
      row.label.classList.toggle("on", on)
      for (const [name, argument] of Object.entries(row.arguments)) {
        argument.line.hidden = !on
        if (on) argument.show(picks.arguments[path]?.[name] ?? "")
      }
    }
    for (const union of this.#unions) union.none.checked = !union.paths.some(path => this.#picked.has(path))
  }

  async #find() {
    const words = this.#field.value.trim()
    if (words) {
      const asked = { schema: this.#workspace.basis(), origin: this.#workspace.origin, words }
      const { paths } = await this.#server.ask("find_modules", asked)
      if (!paths || words !== this.#field.value.trim()) return
      this.#found = new Map(paths.map((path, place) => [path, place + 1]))
    } else this.#found = null
    this.#filter()
  }

  // Shows matches and their ancestors only.
  #filter() {
    /** @type {Set<string>} */
    const shown = new Set()
    for (const path of this.#found?.keys() ?? []) {
      const names = path.split("/")
      for (let depth = 1; depth <= names.length; depth++) shown.add(names.slice(0, depth).join("/"))
    }
    for (const [path, row] of this.#rows) {
      row.node.hidden = this.#found !== null && !shown.has(path)
      row.rank.textContent = this.#found?.get(path)?.toString() ?? ""
    }
    for (const { group, paths } of this.#unions) group.hidden = this.#found !== null && !paths.some(path => shown.has(path))
    this.#none.hidden = this.#found === null || this.#found.size > 0
  }

  /** @param {Api.Measured} answer */
  #measured({ sizes }) {
    this.#sizes = sizes
    for (const [path, row] of this.#rows) this.#showSize(path, row)
  }

  /** @param {string} path @param {Row} row */
  #showSize(path, row) {
    const size = this.#sizes[path]
    if (!size) return
    const tier = this.#tiers.get(size.cached)
    row.tokens.textContent = count(size.tokens)
    row.tokens.title = `${count(size.tokens)} tokens of its own, ${count(size.total)} with its largest contents, ${bytes(size.bytes)}`
    row.badge.textContent = tier?.label ?? size.cached
    row.badge.title = tier?.meaning ?? ""
    row.badge.dataset.tier = size.cached
  }

  /** @param {Api.TreeRow[]} tree */
  #build(tree) {
    const active = document.activeElement, focused = active instanceof HTMLElement && this.#tree.contains(active) ? active.dataset.key : null
    const scroll = this.#tree.scrollTop
    this.#rows.clear()
    this.#unions = []
    const nodes = nested(tree).map(node => this.#node(node))
    const empty = h("p", { class: "empty" }, "This schema has no modules yet. Write ", h("code", {}, '<module name="…">'), " in it.")
    this.#tree.replaceChildren(...(nodes.length ? nodes : [empty]))
    for (const [path, row] of this.#rows) this.#showSize(path, row)
    this.#filter()
    if (this.#found) this.#find()
    this.#tree.scrollTop = scroll
    const keyed = /** @type {HTMLElement[]} */ ([...this.#tree.querySelectorAll("[data-key]")])
    if (focused) keyed.find(node => node.dataset.key === focused)?.focus({ preventScroll: true })
  }

  /** @param {TreeNode} node @returns {HTMLElement} */
  #node(node) { return node.kind === "union" ? this.#union(node) : this.#module(node, null) }

  /** @param {TreeNode} union */
  #union({ children: members }) {
    const group = `union-${this.#groups++}`  // nested unions have their own group
    const paths = members.map(member => member.path ?? "")
    const none = h("input", { type: "radio", name: group, "data-key": `none ${paths[0]}` })
    none.addEventListener("change", () => {
      const taken = paths.find(path => this.#picked.has(path))
      if (taken) this.#workspace.edit({ path: taken, on: false })
    })
    const fieldset = h("fieldset", {}, h("legend", {}, "choose one"),
      ...members.map(member => this.#module(member, group)),
      h("label", { class: "row none" }, none, h("span", { class: "name" }, "none")))
    this.#unions.push({ group: fieldset, none, paths })
    return fieldset
  }

  /** @param {TreeNode} module @param {string | null} group of a union's members */
  #module(module, group) {
    const { path = "", name = "" } = module
    const input = h("input", { type: group ? "radio" : "checkbox", name: group, "data-key": path })
    input.addEventListener("change", () => this.#workspace.edit({ path, on: input.checked }))
    const badge = h("span", { class: "badge" }), tokens = h("span", { class: "tokens" }), rank = h("span", { class: "rank", title: "Rank in the search results" })
    const label = h("label", { class: "row", title: module.preview }, input, h("span", { class: "name" }, name), rank, badge, tokens)
    const named = Object.fromEntries((module.params ?? []).map(param => [param.name, new ArgumentField(this.#workspace, this.#server, { path, module: name, parameter: param, place: "argument" })]))
    const node = h("div", { class: "module" }, label, ...Object.values(named).map(argument => argument.line))
    this.#rows.set(path, { node, input, label, rank, badge, tokens, arguments: named })
    const children = module.children.map(child => this.#node(child))
    if (children.length) node.append(h("div", { class: "nested" }, children))
    return node
  }
}
