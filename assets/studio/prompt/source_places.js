// Maps offsets in the model's input to offsets in the documents.

const SKIPPED = /\s+|<!--[^]*?-->|<!\[CDATA\[|\]\]>/y
const ENTITY = /&#?\w+;/y
const BEGINS = /^(?:<arg\b[^>]*>|[\w.:-]+\s*=\s*["'])/

/**
 * The offset in `source` at the end of `before`. White space, comments and entities differ between both.
 * @param {string} source of a passage
 * @param {string} before the start of the passage's text
 */
export function placeIn(source, before) {
  let place = BEGINS.exec(source)?.[0].length ?? 0
  if (!place && /^<(?!!)/.test(source)) return 0
  const skip = () => { SKIPPED.lastIndex = place; const found = SKIPPED.exec(source); if (found) place += found[0].length; return found !== null }
  for (const character of before) {
    if (/\s/.test(character)) continue
    while (skip()) { /* source differs from the text here */ }
    ENTITY.lastIndex = place
    place += ENTITY.exec(source)?.[0].length ?? character.length
  }
  while (/\S/.test(before.at(-1) ?? "\0") === false && skip()) { /* up to the next word */ }
  return Math.min(place, source.length)
}

/**
 * The same place after an edit; inside the edit, its start.
 * @param {number} place @param {string} before @param {string} after
 */
export function moved(place, before, after) {
  const most = Math.min(before.length, after.length)
  let same = 0, behind = 0
  while (same < most && before[same] === after[same]) same++
  if (place <= same) return place
  while (behind < most - same && before[before.length - 1 - behind] === after[after.length - 1 - behind]) behind++
  return place >= before.length - behind ? place + after.length - before.length : same
}
