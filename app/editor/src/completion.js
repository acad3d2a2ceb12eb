// What the editor offers while one types: element names, attribute names, the names of modules.
import { autocompletion } from "@codemirror/autocomplete"
import { syntaxTree } from "@codemirror/language"

const NAME = String.raw`[A-Za-z_][\w.\-]*`
const OPENING = new RegExp(String.raw`<(/?)((?:${NAME})?)$`)
const ATTRIBUTE = new RegExp(String.raw`<(${NAME})(?:\s+${NAME}\s*=\s*(?:"[^"]*"|'[^']*'))*\s+((?:${NAME})?)$`)
const TYPED_NAME = /^[\w.\-]*$/

export const EMPTY_WORDS = { elements: [], attributes: {}, help: {} }

function enclosingElement(state, pos) {
  for (let node = syntaxTree(state).resolveInner(pos, -1); node; node = node.parent) {
    if (node.name !== "Element") continue
    const tag = node.firstChild?.name === "OpenTag" ? node.firstChild.getChild("TagName") : null
    if (tag && tag.to < pos - 1) return state.sliceDoc(tag.from, tag.to)
  }
  return ""
}

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

function insertAttribute(name) {
  return (view, _completion, from, to) => view.dispatch({
    changes: { from, to, insert: `${name}=""` },
    selection: { anchor: from + name.length + 2 },
    userEvent: "input.complete",
  })
}

/** Completes from `words()`: {elements: [{name, kind, detail, info, parents, empty}], attributes: {element: [{name, detail}]}}. */
export function completion(words) {
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
