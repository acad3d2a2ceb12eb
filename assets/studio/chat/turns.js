// The turns of a chat: one question and its answer, with their figures and actions.
import { Copier } from "../base/copy_button.js"
import { count, h, milliseconds, plural } from "../base/dom.js"

/**
 * What a user can do with a turn, by exchange.
 * @typedef {{
 *   edit: (exchange: Api.Exchange) => unknown, again: (exchange: Api.Exchange) => unknown, fork: (exchange: Api.Exchange) => unknown,
 *   write: (exchange: Api.Exchange) => unknown, select: (id: string) => unknown,
 * }} Actions
 */

const STATES = { working: "", done: "", stopped: "Stopped.", failed: "" }
/** @type {Record<Api.Exchange["ended"], string>} */
const ENDS = { "": "", eos: "", length: "Cut at the maximum length.", stop: "Stopped at a stop text." }
const CACHE = "Prompt tokens that were stored before this answer: modules, and earlier turns of this chat"
const COMPUTED = "Prompt tokens that the model computed for this answer"
const FIRST = "Time from the question to the first token of the answer, including modules that had to be encoded"

/** The exchanges from the first one to `leaf`. @param {Api.Exchange[]} exchanges @param {string} leaf */
export function branchOf(exchanges, leaf) {
  const known = new Map(exchanges.map(exchange => [exchange.id, exchange])), branch = []
  for (let one = known.get(leaf); one; one = known.get(one.parent)) branch.push(one)
  return branch.reverse()
}

/** The tokens that an exchange and all before it take; null if unknown. @param {Api.Exchange | undefined} exchange */
export const tokensOf = exchange => exchange?.from_cache == null || exchange.computed == null ? null : exchange.from_cache + exchange.computed + exchange.generated

/** @param {string} label @param {string} key @param {() => unknown} onclick @param {string} title */
const action = (label, key, onclick, title) => h("button", { type: "button", class: "quiet", "data-key": key, title, onclick }, label)

/** The answer's text or its progress, and its figures. */
class Reply {
  #text = h("div", { class: "turn-text" })
  #state = h("p", { class: "soft turn-state" })
  #figures = h("dl", { class: "turn-figures", "aria-label": "Figures of this answer" })
  /** @type {Api.Exchange} */
  exchange
  #model
  #tools

  /** @param {Api.Exchange} exchange @param {string} model the loaded model's name @param {HTMLElement} tools */
  constructor(exchange, model, tools) {
    this.exchange = exchange
    this.#model = model
    this.#tools = tools
    this.node = h("div", { class: "turn answered" }, h("span", { class: "sr" }, "Answer:"), this.#text, this.#state, this.#figures, tools)
    this.show(exchange)
  }

  /** @param {Api.Exchange} exchange */
  show(exchange) {
    this.exchange = exchange
    const { answer, state, working, message, ended } = exchange
    if (this.#text.firstChild instanceof Text) this.#text.firstChild.data = answer
    else if (answer) this.#text.append(answer)
    this.#text.hidden = !answer
    const words = state === "working" ? (answer ? "" : working ? `${working[0].toUpperCase()}${working.slice(1)}…` : "Working…") : STATES[state]
    const end = state === "done" ? (answer.trim() ? ENDS[ended] : "The model generated no text.") : ""
    const why = state !== "working" && exchange.unread || ""
    this.#state.textContent = [words, end, message, why].filter(Boolean).join(" ")
    this.#state.hidden = !this.#state.textContent
    this.#state.dataset.mood = state === "failed" || message ? "bad" : ""
    this.#tools.hidden = state === "working"
    this.#tools.querySelector(".copier")?.toggleAttribute("hidden", !answer)
    this.#figures.replaceChildren(...this.#facts().map(([name, value, about]) => h("div", { title: about }, h("dt", {}, name), h("dd", {}, value))))
    this.#figures.hidden = !this.#figures.childElementCount
  }

  #facts() {
    const { ttft_ms: first, from_cache: stored, computed, generated, model } = this.exchange
    const facts = first == null ? [] : [["first token", milliseconds(first), FIRST]]
    if (stored != null && computed != null) facts.push(["from the cache", plural(stored, "token"), CACHE], ["computed", plural(computed, "token"), COMPUTED])
    if (generated) facts.push(["answer", plural(generated, "token"), "Tokens that the model generated"])
    if (model && model !== this.#model) facts.push(["model", model, "The model that answered"])
    return facts
  }
}

/**
 * A question and its answer.
 * @param {Api.Exchange} exchange
 * @param {{siblings: string[], number: number, stored: boolean, model: string, actions: Actions}} options `siblings`: ids of all versions of the question; `stored`: whether the chat is stored
 */
export function turn(exchange, { siblings, number, stored, model, actions }) {
  const { id, question } = exchange, at = siblings.indexOf(id), reply = /** @type {{current: Reply | null}} */ ({ current: null })
  const copier = new Copier(`Copy answer ${number}`, () => reply.current?.exchange.answer ?? "")
  const step = (/** @type {number} */ by, /** @type {string} */ sign, /** @type {string} */ label) => h("button", {
    type: "button", class: "quiet", "data-key": `${by} ${siblings.join()}`, "aria-label": `${label} version of question ${number}`, disabled: !siblings[at + by], onclick: () => actions.select(siblings[at + by]),
  }, sign)
  const versions = siblings.length > 1 ? h("span", { class: "turn-versions" }, step(-1, "‹", "Earlier"), `${count(at + 1)} of ${count(siblings.length)}`, step(1, "›", "Later")) : null
  const now = () => reply.current?.exchange ?? exchange
  const tools = h("div", { class: "turn-tools", role: "group", "aria-label": `Answer ${number}` }, copier.node,
    action("Ask again", `again ${id}`, () => actions.again(now()), "Ask the same question once more; this answer stays"),
    stored && action("Fork into a new chat", `fork ${id}`, () => actions.fork(now()), "Copy the turns up to this answer into a new chat"),
    stored && action("Use as prompt", `write ${id}`, () => actions.write(now()), "Copy the turns up to this question into the prompt. Run then answers with and without the cache"))
  reply.current = new Reply(exchange, model, tools)
  const node = h("article", { class: "exchange", "aria-label": `Turn ${number}` },
    h("div", { class: "turn asked" }, h("span", { class: "sr" }, "Question:"), h("div", { class: "turn-text" }, question || "(no question)"),
      h("div", { class: "turn-tools" }, versions, action("Edit", `edit ${id}`, () => actions.edit(now()), "Change this question and ask again from here; the old branch stays"))),
    reply.current.node)
  return { node, show: (/** @type {Api.Exchange} */ next) => reply.current?.show(next) }
}
