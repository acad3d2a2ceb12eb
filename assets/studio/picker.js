// The module tree: what a prompt can pick. It is built again only when the schema's tree changes; picks only update it.
import { bytes, count, debounce, h } from "./dom.js"

const BADGES = {
  none: ["not yet", "Not computed yet: the first run that uses it will"],
  disk: ["disk", "Computed, and kept on disk"],
  memory: ["memory", "Computed, and in memory: read directly"],
}

// The server sends rows with their depth, for JSON may not be nested as deep as a schema.
function nested(rows) {
  const root = { children: [] }, open = [root]
  for (const row of rows) {
    const node = { ...row, children: [] }
    open.length = row.depth + 1
    open.at(-1).children.push(node)
    open.push(node)
  }
  return root.children
}

export class Picker {
  #workspace
  #server
  #rows = new Map()
  #unions = []
  #picked = new Set()
  #sizes = {}
  #note = h("span", { class: "pill warn", hidden: true, title: "The schema has errors; these are its modules as they last were" },
    "last valid schema")
  #tree = h("div", { class: "tree" })

  constructor(host, workspace, server) {
    this.#workspace = workspace
    this.#server = server
    host.append(
      h("header", { class: "bar" }, h("h2", {}, "Modules"), this.#note, h("span", { class: "grow" })),
      this.#tree,
    )
    host.addEventListener("keydown", event => this.#undo(event))
    workspace.addEventListener("checked", ({ detail }) => this.#checked(detail))
    workspace.addEventListener("measured", ({ detail }) => this.#measured(detail))
  }

  // A pick is an edit of the prompt, so undo works where the pick was made too.
  #undo(event) {
    if (!(event.ctrlKey || event.metaKey) || event.target.type === "text") return
    const key = event.key.toLowerCase()
    if (key !== "z" && key !== "y") return
    event.preventDefault()
    this.#workspace.editors.prompt[key === "y" || event.shiftKey ? "redo" : "undo"]()
  }

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
        if (on) this.#showArgument(argument, picks.arguments[path]?.[name] ?? "")
      }
    }
    for (const union of this.#unions) union.none.checked = !union.paths.some(path => this.#picked.has(path))
  }

  #measured({ sizes }) {
    this.#sizes = sizes
    for (const [path, row] of this.#rows) this.#showSize(path, row)
  }

  #showSize(path, row) {
    const size = this.#sizes[path]
    if (!size) return
    const [word, meaning] = BADGES[size.cached] ?? BADGES.none
    row.tokens.textContent = count(size.tokens)
    row.tokens.title = `${count(size.tokens)} tokens of its own, ${count(size.total)} with the longest of what it holds, ${bytes(size.bytes)}`
    row.badge.textContent = word
    row.badge.title = meaning
    row.badge.dataset.tier = size.cached
  }

  #build(tree) {
    const focused = this.#tree.contains(document.activeElement) ? document.activeElement.dataset.key : null
    const scroll = this.#tree.scrollTop
    this.#rows.clear()
    this.#unions = []
    const nodes = nested(tree).map(node => this.#node(node))
    const empty = h("p", { class: "empty" }, "This schema has no modules yet. Write ", h("code", {}, '<module name="…">'), " in it.")
    this.#tree.replaceChildren(...(nodes.length ? nodes : [empty]))
    for (const [path, row] of this.#rows) this.#showSize(path, row)
    this.#tree.scrollTop = scroll
    if (focused) [...this.#tree.querySelectorAll("[data-key]")].find(node => node.dataset.key === focused)?.focus({ preventScroll: true })
  }

  #node(node) { return node.kind === "union" ? this.#union(node) : this.#module(node, null) }

  #union({ children: members }) {
    const group = `union-${this.#unions.length}`
    const paths = members.map(member => member.path)
    const none = h("input", { type: "radio", name: group, "data-key": `none ${paths[0]}` })
    none.addEventListener("change", () => {
      const taken = paths.find(path => this.#picked.has(path))
      if (taken) this.#workspace.edit({ path: taken, on: false })
    })
    this.#unions.push({ none, paths })
    return h("fieldset", {}, h("legend", {}, "choose one"),
      ...members.map(member => this.#module(member, group)),
      h("label", { class: "row none" }, none, h("span", { class: "name" }, "none")))
  }

  #module(module, group) {
    const { path, name } = module
    const input = h("input", { type: group ? "radio" : "checkbox", name: group, "data-key": path })
    input.addEventListener("change", () => this.#workspace.edit({ path, on: input.checked }))
    const badge = h("span", { class: "badge" }), tokens = h("span", { class: "tokens" })
    const label = h("label", { class: "row", title: module.preview }, input, h("span", { class: "name" }, name), badge, tokens)
    const named = Object.fromEntries(module.params.map(param => [param.name, this.#argument(path, name, param)]))
    this.#rows.set(path, { input, label, badge, tokens, arguments: named })
    const children = module.children.map(child => this.#node(child))
    return h("div", { class: "module" }, label, ...Object.values(named).map(argument => argument.line),
      children.length ? h("div", { class: "nested" }, children) : null)
  }

  #argument(path, moduleName, { name, length, default: fallback }) {
    const id = `argument-${path}-${name}`.replace(/[^\w-]/g, "_")
    const input = h("input", {
      type: "text", id, placeholder: fallback || "empty", autocomplete: "off", spellcheck: "false",
      "data-key": `${path} ${name}`, "aria-label": `${moduleName}: ${name}, at most ${length} tokens`,
    })
    const counter = h("span", { class: "counter" }, `0 / ${length} tokens`)
    const line = h("div", { class: "argument", hidden: true }, h("label", { for: id }, name), input, counter)
    const argument = { line, input, counter, length, counted: null, typed: 0, sent: 0 }
    const send = debounce(180, async () => {
      const typed = argument.typed
      await this.#workspace.edit({ path, argument: name, value: input.value })
      argument.sent = typed
    })
    input.addEventListener("input", () => {
      argument.typed++
      this.#count(argument, input.value)
      send()
    })
    return argument
  }

  #showArgument(argument, value) {
    if (argument.typed === argument.sent && argument.input.value !== value) argument.input.value = value
    this.#count(argument, argument.input.value)
  }

  async #count(argument, text) {
    if (argument.counted === text) return
    argument.counted = text
    const answer = await this.#server.ask("count_tokens", { text })
    if (argument.counted !== text || answer.tokens == null) { if (answer.tokens == null) argument.counted = null; return }
    argument.counter.textContent = `${answer.tokens} / ${argument.length} tokens`
    argument.line.classList.toggle("over", answer.tokens > argument.length)
    argument.input.setAttribute("aria-invalid", String(answer.tokens > argument.length))
  }
}
