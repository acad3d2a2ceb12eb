// The look of the editor. Every colour is a CSS variable of the page, so dark mode needs no second theme.
import { EditorView } from "@codemirror/view"
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language"
import { tags } from "@lezer/highlight"

const wavy = (/** @type {string} */ colour) => ({
  backgroundImage: "none",
  textDecoration: `underline wavy ${colour} 1.3px`,
  textUnderlineOffset: "4px",
  textDecorationSkipInk: "none",
})

const frame = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--ink)", backgroundColor: "var(--surface)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "1.6" },
  ".cm-content": { padding: "8px 0", caretColor: "var(--ink)" },
  ".cm-line": { padding: "0 12px 0 6px" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--ink)", borderLeftWidth: "2px" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--ink-faint)", border: "none" },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 4px 0 10px", minWidth: "28px" },
  ".cm-foldGutter .cm-gutterElement": { cursor: "pointer" },
  ".cm-activeLine": { backgroundColor: "var(--line-tint)" },
  ".cm-activeLineGutter": { backgroundColor: "var(--line-tint)", color: "var(--ink)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    backgroundColor: "var(--selection)",
  },
  ".cm-selectionMatch": { backgroundColor: "var(--match)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--match)", outline: "none" },
  ".cm-foldPlaceholder": {
    backgroundColor: "var(--surface-2)", color: "var(--ink-soft)", border: "1px solid var(--edge)", padding: "0 5px",
  },
  ".cm-panels": { backgroundColor: "var(--surface-2)", color: "var(--ink)", borderColor: "var(--edge)" },
  ".cm-panels-top": { borderBottom: "1px solid var(--edge)" },
  ".cm-panel.cm-search": { padding: "6px 8px", fontFamily: "var(--font)" },
  ".cm-textfield": {
    backgroundColor: "var(--surface)", color: "var(--ink)", border: "1px solid var(--edge-strong)", borderRadius: "4px",
  },
  ".cm-button": {
    backgroundImage: "none", backgroundColor: "var(--surface)", color: "var(--ink)",
    border: "1px solid var(--edge-strong)", borderRadius: "4px",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--edge-strong)",
    borderRadius: "6px", boxShadow: "var(--shadow)", overflow: "hidden", zIndex: "60",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--font-mono)", fontSize: "12.5px", maxHeight: "16em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": {
    backgroundColor: "var(--accent-strong)", color: "var(--on-accent)",
  },
  ".cm-completionDetail": { opacity: ".8", fontStyle: "normal", marginLeft: "1.2em" },
  ".cm-completionInfo": { padding: "6px 10px", maxWidth: "320px", fontFamily: "var(--font)", fontSize: "12.5px" },
  ".cm-diagnostic": { padding: "6px 10px", fontSize: "13px", fontFamily: "var(--font)", maxWidth: "460px" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--bad)" },
  ".cm-diagnostic-warning": { borderLeft: "3px solid var(--warn)" },
  ".cm-diagnostic-info": { borderLeft: "3px solid var(--ink-faint)" },
  ".cm-lintRange-error": wavy("var(--bad)"),
  ".cm-lintRange-warning": wavy("var(--warn)"),
  ".cm-lintRange-info": {
    backgroundImage: "none", textDecoration: "underline dotted var(--ink-faint) 1.3px", textUnderlineOffset: "4px",
  },
  ".cm-lintPoint-error:after": { borderBottomColor: "var(--bad)" },
  ".cm-diagnosticAction": {
    display: "block", margin: "5px 0 0", padding: "2px 9px", borderRadius: "4px", font: "12.5px var(--font-mono)",
    color: "var(--on-accent)", backgroundColor: "var(--accent-strong)", cursor: "pointer",
  },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "transparent" },
  ".cm-help": { padding: "7px 10px", maxWidth: "420px", fontSize: "12.5px", fontFamily: "var(--font)", whiteSpace: "pre-wrap" },
})

const colours = syntaxHighlighting(HighlightStyle.define([
  { tag: tags.tagName, color: "var(--code-tag)", fontWeight: "700" },
  { tag: tags.attributeName, color: "var(--code-attribute)" },
  { tag: [tags.attributeValue, tags.string], color: "var(--code-string)" },
  { tag: tags.angleBracket, color: "var(--ink-faint)" },
  { tag: tags.comment, color: "var(--ink-faint)", fontStyle: "italic" },
  { tag: tags.character, color: "var(--code-attribute)" },
  { tag: tags.invalid, color: "var(--bad)" },
]))

export const look = [frame, colours]
