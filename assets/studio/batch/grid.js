// The grid's axes: choices of the schema, arguments, settings and new text, each with its values.
import { count, h, plural, refill } from "../base/dom.js"
import { Emitter } from "../base/events.js"

const LONGEST = 60

/**
 * A possible axis with its options; null if values are typed, one per line.
 * @typedef {{key: string, kind: Api.WantedAxis["kind"], name: string, label: string, group: string, offered: {value: string, words: string}[] | null, hint: string}} Varied
 * @typedef {{key: string, values: string[]}} Chosen
 */

/** The choices, modules and parameters of a schema. @param {Api.TreeRow[]} tree @param {boolean} alone @returns {Varied[]} */
export function variedOf(tree, alone) {
  /** @type {Varied[]} */
  const found = []
  const inUnion = new Set()
  tree.forEach((row, index) => {
    if (row.kind !== "union") return
    const members = []
    for (let next = index + 1; next < tree.length && tree[next].depth > row.depth; next++) if (tree[next].depth === row.depth + 1 && tree[next].path) members.push(/** @type {Required<Api.TreeRow>} */ (tree[next]))
    for (const { path } of members) inUnion.add(path)
    const none = alone ? "" : members.map(({ path }) => `-${path}`).join(" ")
    const label = members.map(({ name }) => name).join(" · ")
    if (members.length) found.push({
      key: `union ${members[0].path}`, kind: "picks", name: "", group: "One of", hint: "",
      label: label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label,
      offered: [...members.map(({ path, name }) => ({ value: path, words: name })), { value: none, words: "none of them" }] })
  })
  for (const { kind, path, name } of tree) if (kind === "module" && path && name && !inUnion.has(path)) found.push({
    key: `module ${path}`, kind: "picks", name: "", label: name, group: "Module", hint: "",
    offered: [{ value: path, words: "with it" }, { value: alone ? "" : `-${path}`, words: "without it" }] })
  for (const { path, params = [] } of tree) for (const param of params) found.push({
    key: `argument ${path}/${param.name}`, kind: "argument", name: `${path}/${param.name}`, label: `${path?.split("/").at(-1)}/${param.name}`, group: "Argument",
    offered: null, hint: `One per line, at most ${plural(param.length, "token")} each.` })
  return found
}

/** @param {Api.SettingForm[]} settings @returns {Varied[]} */
const variedSettings = settings => settings.filter(({ name }) => name !== "repeats").map(({ name, label, kind, choices, range }) => ({
  key: `setting ${name}`, kind: "setting", name, label, group: "Setting", hint: `One per line: ${range}.`,
  offered: kind === "flag" ? [{ value: "yes", words: "yes" }, { value: "no", words: "no" }] : choices ? Object.keys(choices).map(value => ({ value, words: value })) : null,
}))

/** @type {Varied} */
const TEXT = { key: "text", kind: "text", name: "", label: "the question", group: "New text", offered: null, hint: "One per line. Each replaces the prompt's last text." }

/**
 * "changed": the user edited the grid.
 * @extends {Emitter<{changed: void}>}
 */
export class Grid extends Emitter {
  /** @type {Varied[]} */
  #varied = [TEXT]
  /** @type {Api.SettingForm[]} */
  #settings = []
  /** @type {Api.TreeRow[]} */
  #tree = []
  /** @type {Chosen[]} */
  #chosen = []
  #alone = false
  #most = 0
  #vary = h("select", { "aria-label": "What varies", onchange: () => this.#add() })
  #list = h("ul", { class: "axes" })
  #size = h("p", { class: "grid-size", role: "status" })
  node = h("div", { class: "grid-form" }, h("label", { class: "vary" }, h("span", { class: "soft" }, "Vary"), this.#vary), this.#list, this.#size)

  /** The axes as the server expects them, without those that the schema no longer has. @returns {Required<Api.WantedAxis>[]} */
  get axes() {
    return this.#chosen.flatMap(({ key, values }) => {
      const found = this.#varied.find(one => one.key === key)
      if (!found) return []
      const words = (/** @type {string} */ value) => found.offered?.find(one => one.words === value)?.value ?? value
      return [{ kind: found.kind, name: found.name, values: values.map(words) }]
    })
  }

  /** The possible axes. */
  get offers() { return this.#varied }

  /** The axes to save for the next visit. */
  get chosen() { return this.#chosen }

  get rows() { return this.axes.length ? this.axes.reduce((size, { values }) => size * values.length, 1) : 0 }

  /** @param {{settings: Api.SettingForm[], most: number, chosen: Chosen[] | undefined}} given */
  fill({ settings, most, chosen }) {
    this.#settings = settings
    this.#most = most
    if (!this.#chosen.length) this.#chosen = (Array.isArray(chosen) ? chosen : []).filter(one => typeof one?.key === "string" && Array.isArray(one.values) && one.values.every(value => typeof value === "string"))
    this.#show()
  }

  /** @param {Api.TreeRow[]} tree */
  over(tree) {
    this.#tree = tree
    this.#show()
  }

  /** Sets whether each row is a prompt of its own. @param {boolean} alone */
  stand(alone) {
    this.#alone = alone
    this.#show()
  }

  #show() {
    this.#varied = [...variedOf(this.#tree, this.#alone), TEXT, ...variedSettings(this.#settings)]
    const groups = Map.groupBy(this.#varied.filter(({ key }) => !this.#chosen.some(one => one.key === key)), ({ group }) => group)
    this.#vary.replaceChildren(h("option", { value: "" }, this.#chosen.length ? "vary something else…" : "choose what to vary…"),
      ...[...groups].map(([label, all]) => h("optgroup", { label }, ...all.map(one => h("option", { value: one.key }, one.label)))))
    refill(this.#list, ...this.#chosen.map(one => this.#axis(one)))
    this.#count()
  }

  #add() {
    const key = this.#vary.value, found = this.#varied.find(one => one.key === key)
    if (!found) return
    this.#chosen.push({ key, values: found.group === "One of" ? found.offered?.slice(0, -1).map(({ words }) => words) ?? [] : found.offered?.map(({ words }) => words) ?? [] })
    this.#show()
    this.#list.lastElementChild?.querySelector(/** @type {"input"} */ ("input, textarea"))?.focus()
    this.emit("changed")
  }

  /** @param {Chosen} chosen */
  #axis(chosen) {
    const found = this.#varied.find(({ key }) => key === chosen.key)
    const title = found ? h("span", {}, h("span", { class: "soft" }, `${found.group} `), h("strong", {}, found.label)) : h("span", { class: "soft" }, `${chosen.key}: the schema no longer has this, so it is left out.`)
    const remove = h("button", { type: "button", class: "quiet", "aria-label": `Do not vary ${found?.label ?? chosen.key}`, onclick: () => this.#remove(chosen) }, "✕")
    return h("li", { class: "varied" }, h("header", {}, title, h("span", { class: "grow" }), remove), found ? this.#values(chosen, found) : null)
  }

  /** @param {Chosen} chosen @param {Varied} found */
  #values(chosen, found) {
    if (found.offered) return h("div", { class: "offered", role: "group", "aria-label": found.label }, ...found.offered.map(({ words }) => h("label", { class: "check" },
      h("input", { type: "checkbox", checked: chosen.values.includes(words), "data-key": `${chosen.key} ${words}`, onchange: (/** @type {Event & {target: HTMLInputElement}} */ { target }) => {
        chosen.values = found.offered?.map(one => one.words).filter(one => one === words ? target.checked : chosen.values.includes(one)) ?? []
        this.#count()
        this.emit("changed")
      } }), words)))
    const text = h("textarea", { rows: Math.max(2, Math.min(6, chosen.values.length + 1)), "data-key": chosen.key, "aria-label": `Values of ${found.label}, one per line`, oninput: () => {
      chosen.values = [...new Set(text.value.split("\n").map(line => line.trim()).filter(Boolean))]
      this.#count()
      this.emit("changed")
    } })
    text.value = chosen.values.join("\n")
    return h("div", { class: "written" }, text, h("p", { class: "hint soft" }, found.hint))
  }

  /** @param {Chosen} chosen */
  #remove(chosen) {
    this.#chosen = this.#chosen.filter(one => one !== chosen)
    this.#show()
    this.#vary.focus()
    this.emit("changed")
  }

  #count() {
    const sizes = this.axes.map(({ values }) => values.length), rows = this.rows
    const product = sizes.length > 1 ? `${sizes.join(" × ")} = ` : ""
    this.#size.dataset.mood = rows > this.#most ? "bad" : ""
    this.#size.textContent = !sizes.length ? "Choose what differs between rows. Each combination of values is one row."
      : sizes.includes(0) ? "Choose at least one value in each list."
        : rows > this.#most ? `${product}${plural(rows, "row")}, but a batch has at most ${count(this.#most)}. Remove some values.` : `${product}${plural(rows, "row")}`
  }
}
