// The names of PML, as XML 1.0 has them in its fifth edition, without the colon; engine/pml/xml/names.py says the same.
const START = String.raw`A-Z_a-z\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{2ff}\u{370}-\u{37d}\u{37f}-\u{1fff}\u{200c}\u{200d}`
  + String.raw`\u{2070}-\u{218f}\u{2c00}-\u{2fef}\u{3001}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{fffd}\u{10000}-\u{effff}`
const FURTHER = String.raw`\-.0-9\u{b7}\u{300}-\u{36f}\u{203f}\u{2040}`

/** The source of a pattern; it needs the flag u. */
export const NAME = `[${START}][${START}${FURTHER}]*`
