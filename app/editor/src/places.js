// Where in a document a place is: the tag that it stands in, and the path of the module that this tag is of.
import { syntaxTree } from "@codemirror/language"

const NO_MODULES = new Set(["schema", "prompt", "union", "system", "user", "assistant", "module", "param", "parameter", "arg", "include", "scaffold"])

/** @typedef {import("@lezer/common").SyntaxNode} SyntaxNode */

/** The tag that a place stands in. @param {import("@codemirror/state").EditorState} state @param {number} at @returns {SyntaxNode | null} */
export function tagAt(state, at) {
  for (let node = /** @type {SyntaxNode | null} */ (syntaxTree(state).resolveInner(at, 1)); node; node = node.parent) {
    if (["OpenTag", "SelfClosingTag", "CloseTag"].includes(node.name)) return node
  }
  return null
}

/** The path of the module that a tag is of; "" where it is of none. @param {import("@codemirror/state").EditorState} state @param {SyntaxNode} tag */
export function moduleOf(state, tag) {
  const names = []
  for (let node = /** @type {SyntaxNode | null} */ (tag.parent); node; node = node.parent) {
    if (node.name !== "Element") continue
    const name = nameOf(state, node)
    if (name) names.unshift(name)
    else if (names.length === 0) return ""
  }
  return names.join("/")
}

/** What an element adds to a path: in a schema the name of a module, in a prompt its own. @param {import("@codemirror/state").EditorState} state @param {SyntaxNode} element */
function nameOf(state, element) {
  const open = element.getChild("OpenTag") ?? element.getChild("SelfClosingTag"), tag = open?.getChild("TagName")
  if (!open || !tag) return ""
  const word = state.sliceDoc(tag.from, tag.to)
  if (word !== "module") return NO_MODULES.has(word) ? "" : word
  for (const attribute of open.getChildren("Attribute")) {
    const name = attribute.getChild("AttributeName"), value = attribute.getChild("AttributeValue")
    if (name && value && state.sliceDoc(name.from, name.to) === "name") return state.sliceDoc(value.from + 1, value.to - 1)
  }
  return ""
}
