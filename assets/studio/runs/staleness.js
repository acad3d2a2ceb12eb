// Compares the texts, settings and model of a result with the current ones.
import { Emitter } from "../base/events.js"
import { ofDecisions } from "../shell/settings.js"

/** `name`: the schema's name, if known. @typedef {{name: string, schema: string, prompt: string, settings: Record<string, any>, model: string, modelName: string}} Origin */

/** A result's texts, settings and model. @param {{schema?: string, of: Api.Belongs, settings: Record<string, any>, model: Api.ModelOfRun}} result @returns {Origin} */
export const originOf = ({ schema: name = "", of, settings, model }) => ({ name, schema: of.schema, prompt: of.prompt, settings, model: of.model, modelName: model.name })

/** @param {string[]} words */
const listed = words => words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words.join("")

/**
 * "changed": results may be out of date.
 * @extends {Emitter<{changed: void}>}
 */
export class Belonging extends Emitter {
  #workspace
  /** @type {Api.DigestsOfBoth | null} */
  #texts = null
  /** @type {Api.ModelFacts | null} */
  #model = null
  /** The declared settings. @type {Api.SettingForm[]} */
  forms = []

  /** @param {import("../documents/workspace.js").Workspace} workspace */
  constructor(workspace) {
    super()
    this.#workspace = workspace
    workspace.on("checked", ({ texts }) => { this.#texts = texts; this.emit("changed") })
    workspace.on("settings", () => this.emit("changed"))
  }

  /** Sets the loaded model. @param {Api.ModelFacts} model */
  model(model) {
    this.#model = model
    this.emit("changed")
  }

  /** Digests of the open texts; null before the first check. */
  get texts() { return this.#texts }

  /** The loaded model's digest; undefined without a model. */
  get modelDigest() { return this.#model?.digest }

  /**
   * What changed since a result, in words; empty if it is up to date.
   * @param {Origin} origin
   * @param {(name: string) => boolean} counts whether a setting can change this kind of result
   */
  differences(origin, counts = name => !ofDecisions(name)) {
    const words = [], texts = this.#texts
    const other = texts ? /** @type {("schema" | "prompt")[]} */ (["schema", "prompt"]).filter(kind => texts[kind] !== origin[kind]) : []
    if (other.length && this.ofAnotherSchema(origin)) words.push(`another schema (${origin.name})`)
    else if (other.length) words.push(`an earlier text of the ${other.join(" and the ")}`)
    const settings = this.#settings(origin.settings, counts)
    if (settings.length) words.push(`other settings (${settings.join(", ")})`)
    if (this.#model && this.#model.digest !== origin.model) words.push(this.#model.name === origin.modelName ? "the same model with other options" : `another model (${origin.modelName})`)
    return words
  }

  /** Whether a result belongs to a schema of another name. @param {Origin} origin */
  ofAnotherSchema(origin) {
    const name = this.#workspace.names.schema
    return this.#texts?.schema !== origin.schema && origin.name !== "" && name !== "" && name !== origin.name
  }

  /** "with an earlier text of the prompt and with other settings (Scope)"; "" if nothing changed. @param {Origin} origin @param {(name: string) => boolean} [counts] */
  sentence(origin, counts) {
    const found = this.differences(origin, counts)
    return found.length ? listed(found.map(words => `with ${words}`)) : ""
  }

  /** Labels of changed settings that affect a result. @param {Record<string, any>} then @param {(name: string) => boolean} counts */
  #settings(then, counts) {
    const now = this.#workspace.settings
    const value = (/** @type {Record<string, any>} */ settings, /** @type {Api.SettingForm} */ form) => settings[form.name] ?? form.default
    const drawn = this.forms.some(form => form.name === "temperature" && [then, now].some(settings => value(settings, form) > 0))
    const matter = this.forms.filter(({ name, matters }) => counts(name) && (matters === "always" || matters === "decided" || (matters === "drawn" && drawn)))
    return matter.filter(form => JSON.stringify(value(then, form)) !== JSON.stringify(value(now, form))).map(({ label }) => label)
  }
}
