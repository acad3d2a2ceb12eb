// The PML editor: CodeMirror 6 with what the studio's page needs, and nothing that knows the server.
import {
  EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, hoverTooltip, keymap, lineNumbers,
} from "@codemirror/view"
import { Annotation, ChangeSet, EditorState, Prec, StateEffect, StateField, Transaction } from "@codemirror/state"
import { defaultKeymap, history, historyKeymap, indentWithTab, invertedEffects, isolateHistory, redo, undo } from "@codemirror/commands"
import { autoCloseTags, xmlLanguage } from "@codemirror/lang-xml"
import { bracketMatching, foldGutter, foldKeymap, indentOnInput, indentUnit } from "@codemirror/language"
import { forEachDiagnostic, lintGutter, nextDiagnostic, setDiagnostics } from "@codemirror/lint"
import { closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete"
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search"
import { EMPTY_WORDS, completion } from "./completion.js"
import { typeOverClosingTags } from "./closing.js"
import { NAME } from "./names.js"
import { moduleOf, tagAt } from "./places.js"
import { look } from "./theme.js"

/**
 * @typedef {{from: number, to: number, severity: "error" | "warning" | "info", code: string, message: string, fixes: string[]}} Fault
 * @typedef {Record<string, any> & {edited?: boolean}} Source where a text came from, as the page wants it kept
 * @typedef {{text: string, since: ChangeSet}} Mark
 * @typedef {import("./completion.js").Words} Words
 * @typedef {{
 *   label: string, keys?: Record<string, () => unknown>, onChange?: () => void, onLeave?: () => void, onFix?: (fault: any, fix: string) => void, onChoice?: (fault: any) => void,
 * }} Options
 */

const TAG = new RegExp(`</?(${NAME})`, "gu")

const restored = /** @type {import("@codemirror/state").AnnotationType<boolean>} */ (Annotation.define())
const sourced = /** @type {import("@codemirror/state").StateEffectType<Source>} */ (StateEffect.define())

// Where the text came from: an object of the page. Undoing the opening of a document brings back its predecessor's source too, so
// that no text is ever saved to the file of another.
const source = StateField.define({
  create: () => /** @type {Source} */ ({}),
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(sourced)) return effect.value
    const typed = transaction.docChanged && !transaction.annotation(restored)
    return typed && !value.edited ? { ...value, edited: true } : value
  },
})
const sourceHistory = invertedEffects.of(({ effects, startState }) =>
  effects.some(effect => effect.is(sourced)) ? [sourced.of(startState.field(source))] : [])

/**
 * The one smallest edit that turns `before` into `after`: it keeps the cursor, folds and scroll position where they are.
 * @param {string} before
 * @param {string} after
 */
export function smallestChange(before, after) {
  const shorter = Math.min(before.length, after.length)
  let head = 0
  while (head < shorter && before.charCodeAt(head) === after.charCodeAt(head)) head++
  let tail = 0
  while (tail < shorter - head && before.charCodeAt(before.length - 1 - tail) === after.charCodeAt(after.length - 1 - tail)) tail++
  return { from: head, to: before.length - tail, insert: after.slice(head, after.length - tail) }
}

// CodeMirror selects what is wrong, which may be the whole document; one key would then replace it.
/** @param {EditorView} view */
function nextProblem(view) {
  if (!nextDiagnostic(view)) return false
  view.dispatch({ selection: { anchor: view.state.selection.main.from } })
  return true
}

// The quick fix of what is wrong at the caret, for who uses no mouse; of several, a person chooses.
/** @param {EditorView} view @param {(fault: Fault, fix: string) => void} onFix @param {(fault: Fault) => void} onChoice */
function fixHere(view, onFix, onChoice) {
  const { head } = view.state.selection.main
  let here = /** @type {Fault | null} */ (null)
  forEachDiagnostic(view.state, (diagnostic, from, to) => {
    const { fault } = /** @type {{fault: Fault}} */ (/** @type {unknown} */ (diagnostic))
    if (fault.fixes.length && from <= head && head <= to) here ??= fault
  })
  if (here?.fixes.length === 1) onFix(here, here.fixes[0])
  else if (here) onChoice(here)
  return here !== null
}

/** What is said of an element and, anywhere in its tag, of a module. @param {() => Words} words @param {() => Record<string, string>} facts by the paths of modules */
function moduleHelp(words, facts) {
  return hoverTooltip((view, pos) => {
    const line = view.state.doc.lineAt(pos), tag = tagAt(view.state, pos)
    const fact = tag ? facts()[moduleOf(view.state, tag)] : undefined
    const match = [...line.text.matchAll(TAG)].find(one => pos >= line.from + one.index && pos <= line.from + one.index + one[0].length)
    const text = [match && words().help[match[1]], fact].filter(Boolean).join("\n")
    if (!text) return null
    const from = match ? line.from + match.index : tag?.from ?? pos, end = match ? from + match[0].length : tag?.to ?? pos
    return { pos: from, end, above: true, create: () => {
      const dom = document.createElement("div")
      dom.className = "cm-help"
      dom.textContent = text
      return { dom }
    } }
  }, { hoverTime: 350 })
}

/**
 * An editor in `host`. `onChange()` is called after every change but `load`; `onLeave()` when the focus goes; `onFix(diagnostic, fix)` when a quick fix
 * is wanted; `onChoice(diagnostic)` when one of several is to be chosen;
 * `keys` maps CodeMirror key names to functions.
 * @param {HTMLElement} host
 * @param {Options} options
 */
export function createEditor(host, { label, keys = {}, onChange = () => {}, onLeave = () => {}, onFix = () => {}, onChoice = () => {} }) {
  let words = EMPTY_WORDS
  /** What is known of modules, by their paths. @type {Record<string, string>} */
  let facts = {}
  const marks = /** @type {Set<Mark>} */ (new Set())

  const follow = EditorView.updateListener.of(update => {
    if (!update.docChanged) return
    for (const mark of marks) mark.since = mark.since.compose(update.changes)
    if (!update.transactions.some(transaction => transaction.annotation(restored))) onChange()
  })
  const pageKeys = Object.entries(keys).map(([key, action]) => ({ key, preventDefault: true, run: () => { action(); return true } }))

  const extensions = [
    lineNumbers(), foldGutter(), lintGutter(), highlightSpecialChars(), history(), drawSelection(), indentOnInput(),
    indentUnit.of("  "), bracketMatching(), closeBrackets(), highlightActiveLine(), highlightActiveLineGutter(),
    highlightSelectionMatches(), search({ top: true }), EditorView.lineWrapping,
    EditorState.languageData.of(() => [{ closeBrackets: { brackets: ['"'] } }]),
    typeOverClosingTags, xmlLanguage, autoCloseTags, look, completion(() => words), moduleHelp(() => words, () => facts),
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0", spellcheck: "false", autocapitalize: "off" }),
    Prec.highest(keymap.of(pageKeys)),
    keymap.of([
      ...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap,
      { key: "F8", run: nextProblem }, { key: "Mod-.", run: view => fixHere(view, onFix, onChoice) }, indentWithTab,
    ]),
    EditorView.domEventHandlers({ blur: () => { onLeave() } }),
    follow, sourceHistory,
  ]
  const fresh = (/** @type {string} */ value, /** @type {Source} */ from) => EditorState.create({ doc: value, extensions: [extensions, source.init(() => from)] })
  const view = new EditorView({ parent: host, state: fresh("", {}) })
  const text = () => view.state.doc.toString()
  document.fonts?.ready.then(() => view.requestMeasure())

  return {
    view,
    text,
    /** Where the text came from, as it was given, with `edited` once it was changed. */
    source() { return view.state.field(source) },
    /** What is known of the source by now; no step of undo. @param {Source} next */
    setSource(next) { view.dispatch({ effects: sourced.of(next), annotations: Transaction.addToHistory.of(false) }) },
    /** The first text of a page: not an edit, so there is nothing to undo. @param {string} value @param {Source} from */
    load(value, from = {}) { view.setState(fresh(value, from)) },
    /**
     * Another text from another source in place of this one, as one step of undo; `quiet` for text that is already saved.
     * @param {string} value
     * @param {{from?: Source, quiet?: boolean}} options
     */
    replace(value, { from = {}, quiet = false } = {}) {
      const annotations = [isolateHistory.of("full"), ...(quiet ? [restored.of(true)] : [])]
      const changes = value === text() ? [] : smallestChange(text(), value)
      view.dispatch({ changes, effects: sourced.of(from), annotations, userEvent: "input.replace" })
    },
    /** Remember the text as it is now, to `apply` an edit of it later over whatever was typed meanwhile. */
    mark() {
      const mark = { text: text(), since: ChangeSet.empty(view.state.doc.length) }
      marks.add(mark)
      return mark
    },
    /** Nothing happens if what the edit changes was replaced meanwhile. @param {Mark} mark @param {string | null | undefined} value */
    apply(mark, value) {
      marks.delete(mark)
      if (value == null || value === mark.text) return
      const change = smallestChange(mark.text, value)
      if (mark.since.touchesRange(change.from, change.to) === "cover") return
      const changes = ChangeSet.of(change, mark.text.length).map(mark.since)
      view.dispatch({ changes, annotations: isolateHistory.of("full"), userEvent: "input.pick" })
    },
    undo() { undo(view) },
    redo() { redo(view) },
    /** @param {Words} next */
    setWords(next) { words = next },
    /** @param {Record<string, string>} next */
    setFacts(next) { facts = next },
    /** @param {Fault[]} diagnostics */
    setDiagnostics(diagnostics) {
      const length = view.state.doc.length
      view.dispatch(setDiagnostics(view.state, diagnostics.map(diagnostic => ({
        from: Math.min(diagnostic.from, length),
        to: Math.min(Math.max(diagnostic.to, diagnostic.from + 1), length),
        severity: diagnostic.severity,
        message: `${diagnostic.code}: ${diagnostic.message}`,
        fault: diagnostic,
        actions: diagnostic.fixes.map(fix => ({ name: fix, apply: () => onFix(diagnostic, fix) })),
      }))))
    },
    /** Puts the caret at a place. Nothing is selected, so that the next key replaces nothing. @param {number} place */
    reveal(place) {
      const anchor = Math.min(place, view.state.doc.length)
      view.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: "center" }) })
      view.focus()
    },
  }
}
