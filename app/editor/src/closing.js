// Typing over a closing tag that was put in automatically, instead of writing it twice.
import { EditorView } from "@codemirror/view"
import { Prec, StateEffect, StateField } from "@codemirror/state"

/** @typedef {{from: number, to: number, inside: boolean}} Tag */

const entered = /** @type {import("@codemirror/state").StateEffectType<Tag | null>} */ (StateEffect.define())

// {from, to, inside}: where the automatic "</name>" stands, and whether the cursor has been typed into it.
const automatic = StateField.define({
  create: () => /** @type {Tag | null} */ (null),
  update(tag, transaction) {
    for (const effect of transaction.effects) if (effect.is(entered)) return effect.value
    if (tag && transaction.docChanged) {
      const from = transaction.changes.mapPos(tag.from, 1), to = transaction.changes.mapPos(tag.to, -1)
      tag = from < to ? { ...tag, from, to } : null
    }
    if (transaction.isUserEvent("input.complete")) {
      transaction.changes.iterChanges((_fromA, _toA, fromB, _toB, inserted) => {
        const closing = /<\/[^\s<>/]+>$/.exec(inserted.toString())
        if (closing) tag = { from: fromB + closing.index, to: fromB + closing.index + closing[0].length, inside: false }
      })
    }
    return tag
  },
})

const typeOver = Prec.high(EditorView.inputHandler.of((view, from, to, text) => {
  const tag = view.state.field(automatic)
  if (!tag || from !== to || text.length !== 1) return false
  if (!tag.inside && text === "/" && from === tag.from && view.state.sliceDoc(from - 1, from) === "<") {
    const start = tag.from - 1
    view.dispatch({
      changes: { from: start, to: from },
      selection: { anchor: start + 2 },
      effects: entered.of({ from: start, to: tag.to - 1, inside: true }),
      userEvent: "input.type",
    })
    return true
  }
  if (tag.inside && from > tag.from && from < tag.to && view.state.sliceDoc(from, from + 1) === text) {
    view.dispatch({ selection: { anchor: from + 1 }, effects: entered.of(from + 1 === tag.to ? null : tag) })
    return true
  }
  return false
}))

export const typeOverClosingTags = [automatic, typeOver]
