// The TextMate grammar, run by the engine that VS Code runs it with.
import assert from "node:assert/strict"
import { readFile } from "node:fs/promises"
import { createRequire } from "node:module"
import { test } from "node:test"

const require = createRequire(import.meta.url)
const { INITIAL, Registry, parseRawGrammar } = require("vscode-textmate")
const { OnigScanner, OnigString, loadWASM } = require("vscode-oniguruma")

const file = new URL("../../assets/editors/vscode/pml.tmLanguage.json", import.meta.url)
await loadWASM(await readFile(require.resolve("vscode-oniguruma/release/onig.wasm")))
const registry = new Registry({
  onigLib: Promise.resolve({
    createOnigScanner: patterns => new OnigScanner(patterns),
    createOnigString: text => new OnigString(text),
  }),
  loadGrammar: async () => parseRawGrammar(await readFile(file, "utf8"), "pml.tmLanguage.json"),
})
const grammar = await registry.loadGrammar("text.xml.pml")

/** What each piece of a document is, as [text, innermost scope], without plain text. @param {string} source */
function pieces(source) {
  const found = []
  let state = INITIAL
  for (const line of source.split("\n")) {
    const { tokens, ruleStack } = grammar.tokenizeLine(line, state)
    state = ruleStack
    for (const { startIndex, endIndex, scopes } of tokens) {
      const scope = scopes.at(-1)
      if (scopes.length > 1) found.push([line.slice(startIndex, endIndex), scope.replace(/\.pml$/, "")])
    }
  }
  return found
}

/** The pieces of one scope. @param {string} source @param {string} scope */
const of = (source, scope) => pieces(source).filter(piece => piece[1] === scope).map(piece => piece[0])

const TAG = "entity.name.tag", IMPORT = "entity.name.function.import", NAME = "entity.name.type"
const ATTRIBUTE = "entity.other.attribute-name", COMMENT = "comment.block"

test("elements of the language and imports are told apart", () => {
  const source = '<prompt schema="trip">\n  <trip-plan duration="3 days"><東京/></trip-plan>\n  <user>Where?</user>\n</prompt>'
  assert.deepEqual(of(source, TAG), ["prompt", "user", "user", "prompt"])
  assert.deepEqual(of(source, IMPORT), ["trip-plan", "東京", "trip-plan"])
  assert.deepEqual(of(source, NAME), ["trip"])
  assert.deepEqual(of(source, ATTRIBUTE), ["schema", "duration"])
})

test("a module that is called like the beginning of an element is an import", () => {
  assert.deepEqual(of("<users/><module-2/><param.x>a</param.x>", IMPORT), ["users", "module-2", "param.x", "param.x"])
})

test("names are names, in both kinds of quotes", () => {
  const source = `<schema name="s"><module name='m' cache="false"/><param\n  name="p" len="3"/></schema>`
  assert.deepEqual(of(source, NAME), ["s", "m", "p"])
  assert.deepEqual(of(source, ATTRIBUTE), ["name", "name", "cache", "name", "len"])
})

test("nothing is read in comments and CDATA sections", () => {
  const source = "<!-- <module> &amp;\n</b> --><![CDATA[ <user> & ]]><module/>"
  assert.deepEqual(of(source, TAG), ["module"])
  assert.deepEqual(of(source, COMMENT), [" <module> &amp;", "</b> "])
  assert.deepEqual(of(source, "string.unquoted.cdata"), [" <user> & "])
})

test("references are marked, and so is an ampersand that is none", () => {
  const source = 'a &lt; b &#233; c &#xE9; & d <x y="&amp; &"/>'
  assert.deepEqual(of(source, "constant.character.entity"), ["&lt;", "&#233;", "&#xE9;", "&amp;"])
  assert.deepEqual(of(source, "invalid.illegal.bad-ampersand"), ["&", "&"])
})

test("a tag that is not finished ends where the next one begins", () => {
  const source = '<module name="a\n<union>\n<module\n<user>text</user>'
  assert.deepEqual(of(source, TAG), ["module", "union", "module", "user", "user"])
})

test("the declaration of XML is one", () => {
  assert.deepEqual(of('<?xml version="1.0" encoding="UTF-8"?><schema/>', ATTRIBUTE), ["version", "encoding"])
})
