// What the editor offers while one types: element names, attribute names, the names of modules.
import { autocompletion } from "@codemirror/autocomplete"
import { syntaxTree } from "@codemirror/language"
import { NAME } from "./names.js"

const OPENING = new RegExp(String.raw`<(/?)((?:${NAME})?)$`, "u")
const ATTRIBUTE = new RegExp(String.raw`<(${NAME})(?:\s+${NAME}\s*=\s*(?:"[^"]*"|'[^']*'))*\s+((?:${NAME})?)$`, "u")
const TYPED_NAME = new RegExp(`^(?:${NAME})?$`, "u")

/**
 * What one editor can complete and explain.
 * @typedef {{name: string, kind: string, detail: string, info?: string, parents?: string[], empty?: boolean}} Element
 * @typedef {{
 *   elements: Element[], attributes: Record<string, {name: string, detail: string}[]>, help: Record<string, string>,
 * }} Words
 */

/** @type {Words} */
export const EMPTY_WORDS = { elements: [], attributes: {}, help: {} }

/** @param {import("@codemirror/state").EditorState} state @param {number} pos */
function enclosingElement(state, pos) {
  /** @type {import("@lezer/common").SyntaxNode | null} */
  let node = syntaxTree(state).resolveInner(pos, -1)
  for (; node; node = node.parent) {
    if (node.name !== "Element") continue
    const tag = node.firstChild?.name === "OpenTag" ? node.firstChild.getChild("TagName") : null
    if (tag && tag.to < pos - 1) return state.sliceDoc(tag.from, tag.to)
  }
  return ""
}

/** @param {Words} words @param {string} parent @param {boolean} closing */
function elementOptions(words, parent, closing) {
  return words.elements.map(element => ({
    label: element.name,
    type: element.kind,
    detail: element.detail,
    info: closing ? undefined : element.info,
    boost: element.parents?.includes(parent) ? 20 : element.kind === "class" ? 5 : 0,
    apply: element.name + (closing ? ">" : element.empty ? "/>" : ""),
  }))
}

/**
 * @param {string} name
 * @returns {(view: import("@codemirror/view").EditorView, completion: unknown, from: number, to: number) => void}
 */
function insertAttribute(name) {
  return (view, _completion, from, to) => view.dispatch({
    changes: { from, to, insert: `${name}=""` },
    selection: { anchor: from + name.length + 2 },
    userEvent: "input.complete",
  })
}

/** Completes from `words()`. @param {() => Words} words */
export function completion(words) {
  /** @type {import("@codemirror/autocomplete").CompletionSource} */
  const source = context => {
    const before = context.state.sliceDoc(Math.max(0, context.pos - 400), context.pos)
    const opening = OPENING.exec(before)
    if (opening) {
      const [, slash, typed] = opening
      const parent = enclosingElement(context.state, context.pos)
      return { from: context.pos - typed.length, options: elementOptions(words(), parent, slash === "/"), validFor: TYPED_NAME }
    }
    const attribute = ATTRIBUTE.exec(before)
    if (!attribute) return null
    const known = words().attributes[attribute[1]] ?? []
    const options = known.map(({ name, detail }) => ({ label: name, type: "property", detail, apply: insertAttribute(name) }))
    return options.length ? { from: context.pos - attribute[2].length, options, validFor: TYPED_NAME } : null
  }
  return autocompletion({ override: [source], icons: false, activateOnTyping: true })
}
