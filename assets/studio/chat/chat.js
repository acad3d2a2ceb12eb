// The Chat tab: several turns over the picked modules. It begins with the prompt and its latest answer.
import { confirmed } from "../base/confirm.js"
import { count, debounce, h, keepFocus, newKey, refill } from "../base/dom.js"
import { AWAY, Job } from "../base/jobs.js"
import { forgotten, remembered } from "../base/layout_settings.js"
import { ChatList } from "./chat_list.js"
import { Message } from "./message.js"
import { branchOf, tokensOf, turn } from "./turns.js"

const PREVIEW_AFTER_MS = 250
const COUNT_AFTER_MS = 400
const OPENING = "opening"  // the id of an exchange that a run answered
const KEPT = `${AWAY} Your message is not lost. Send it again when the server is back.`
const NEAR_END_PX = 48

/** A stored chat, or a new one with an empty id. @typedef {Api.ChatFrame} Frame */

export class Chat {
  #studio
  #server
  #workspace
  /** @type {Frame | null} */
  #frame = null
  /** The latest run of the open prompt. @type {Api.RunFrame | null} */
  #run = null
  /** @type {Job<Api.Exchange> | null} */
  #job = null
  #sending = false
  #typed = 0  // tokens of the message
  /** @type {number | null} */
  #ofPrompt = null  // tokens of the open prompt
  #asked = 0
  #tabs
  #written = ""  // the prompt that this chat wrote
  /** The displayed turns by exchange, and what they were drawn from. @type {Map<string, ReturnType<typeof turn> & {of: string}>} */
  #turns = new Map()
  #list = new ChatList()
  #message = new Message()
  #log = h("div", { class: "chat-log", role: "log", "aria-live": "polite", "aria-label": "Turns of the chat", tabindex: "0" })
  #about = h("p", { class: "soft chat-about" })
  #changed = h("div", { class: "chat-changed", role: "status" })
  #status = h("p", { class: "chat-status", role: "status" })
  #told = h("span", { class: "sr", role: "status" })
  #left = h("span", { class: "soft chat-left" })
  #send = h("button", { type: "submit", class: "primary" }, "Send")
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#halt() }, "Stop")
  #chats = h("button", { type: "button", class: "quiet", "aria-expanded": "false", onclick: () => this.#toggle() }, "Chats")
  #preview = debounce(PREVIEW_AFTER_MS, () => this.#look())
  #countSoon = debounce(COUNT_AFTER_MS, () => this.#count())
  node = h("section", { class: "panel chat", "aria-label": "Chat" },
    h("header", { class: "bar" }, h("h2", {}, "Chat"), this.#about, h("span", { class: "grow" }), this.#chats,
      h("button", { type: "button", class: "quiet", onclick: () => this.begin() }, "New chat")),
    this.#changed, this.#list.node, this.#log,
    h("form", { class: "chat-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.#submit() } },
      ...this.#message.nodes,
      h("div", { class: "chat-foot" }, this.#left, h("span", { class: "soft", id: "chat-keys" }, "Enter sends, Shift+Enter adds a line, Esc stops."), h("span", { class: "chat-buttons" }, this.#stop, this.#send)),
      this.#status, this.#told))

  /** @param {import("../studio.js").Studio} studio @param {import("../base/tabs.js").Tabs} tabs to add its own to */
  constructor(studio, tabs) {
    this.#studio = studio
    this.#server = studio.server
    this.#workspace = studio.workspace
    this.#tabs = tabs
    tabs.add("chat", "Chat", this.node)
    tabs.on("shown", () => { if (this.#visible) this.#shown() })
    this.node.addEventListener("keydown", event => { if (event.key === "Escape") this.#escape(event) })
    this.#message.on("sent", () => this.#submit())
    this.#message.on("typed", () => { if (this.#status.dataset.mood === "bad") this.#say(""); this.#countSoon() })
    this.#message.on("editing", () => this.#markEdited())
    this.#list.on("chosen", id => this.#open(id))
    this.#list.on("deleted", chat => this.#delete(chat))
    studio.belonging.on("changed", () => { this.#showDocuments(); if (!this.#frame?.id) this.#preview() })
    studio.on("model", () => { this.#paint(); this.#countSoon() })
    this.#workspace.on("measured", ({ strip }) => { this.#ofPrompt = strip?.total ?? null; this.#showLeft() })
    this.#server.on("back", () => this.#back())
    studio.commands.add(
      { title: "Go to the chat", group: "Chat", words: "conversation turns", run: () => { studio.shell.go("author"); tabs.show("chat"); this.#message.focus() } },
      { title: "New chat", group: "Chat", words: "conversation turns", run: () => { studio.shell.go("author"); tabs.show("chat"); this.begin() } })
    const id = remembered("chat")
    if (id) this.#open(id, true)
  }

  /** Notes the run that the answers show. @param {Api.RunFrame} run */
  note(run) {
    this.#run = run
    if (!this.#frame?.id && run.state !== "working") this.#preview()
  }

  get #visible() { return this.#tabs.shown === "chat" }

  #shown() {
    if (!this.#frame?.id) this.#look()
    this.#log.scrollTop = this.#log.scrollHeight
  }

  /** Begins a new chat with the open documents. */
  begin() {
    if (this.#job || this.#sending) return this.#say("Stop the answer first.")
    this.#message.leave()
    forgotten("chat")
    this.#frame = null
    this.#say("")
    this.#hideList()
    this.#look()
    this.#message.focus()
  }

  /** @param {string} sentence */
  #say(sentence, mood = "") {
    this.#status.dataset.mood = mood
    this.#status.textContent = sentence
  }

  // The open chat

  /** @param {Frame} frame */
  #take(frame) {
    this.#frame = frame
    if (frame.id) remembered("chat", frame.id)
    this.#message.within(frame.exchanges)
    this.#paint()
  }

  get #branch() { return this.#frame ? branchOf(this.#frame.exchanges, this.#frame.leaf) : [] }

  /** @param {string} id @param {boolean} quiet whether a missing chat needs no message */
  async #open(id, quiet = false) {
    if (this.#job || this.#sending) return this.#say("Stop the answer first.")
    const frame = await this.#server.ask("open_chat", { id })
    if (frame.away) return
    if (frame.error != null) {
      if (quiet) forgotten("chat")
      else this.#say(frame.error, "bad")
      return
    }
    this.#hideList()
    this.#say("")
    this.#take(frame)
    this.#log.scrollTop = this.#log.scrollHeight
    const last = this.#branch.at(-1)
    if (last?.state === "working") this.#follow(/** @type {Promise<import("../base/jobs.js").JobReply<Api.Exchange>>} */ (this.#server.ask("job_state", { key: last.id })), last.id, true)  // of another tab
  }

  /** Shows a new chat over the open documents. */
  async #look() {
    if (this.#frame?.id || this.#sending || this.#server.away || !this.#visible) return
    const number = ++this.#asked, { origin } = this.#workspace, texts = this.#workspace.texts()
    const frame = await this.#server.ask("preview_chat", { ...texts, origin })
    if (number !== this.#asked || this.#frame?.id || frame.away) return
    if (frame.error != null) {
      this.#frame = null
      this.#log.replaceChildren(h("p", { class: "empty" }, "Fix the errors in the documents to chat about them. ", frame.error))
      return
    }
    const opening = this.#opening(frame)
    this.#take(opening ? { ...frame, leaf: OPENING, exchanges: [opening] } : frame)
    this.#message.offer(opening ? "" : frame.question)
    this.#countSoon()
  }

  /** The answer of the latest run as the first exchange; null if it is of other documents. @param {Frame} frame @returns {Api.Exchange | null} */
  #opening({ of, question }) {
    const run = this.#run, side = run?.sides.cached
    if (!run || !side?.text.trim() || run.state === "working" || run.of.schema !== of.schema || run.of.prompt !== of.prompt) return null
    const { prompt = null, from_cache: stored = null, encoded = 0, generated = 0 } = side.tokens, cached = stored === null ? null : stored - encoded
    return {
      id: OPENING, parent: "", question, answer: side.text, state: "done", working: "", message: "", model: run.model.name, ttft_ms: side.ttft_ms,
      from_cache: cached, computed: prompt === null || cached === null ? null : prompt - cached, generated, ended: side.ended,
    }
  }

  // Asking

  #submit() {
    if (this.#job || this.#sending) return this.#say("Wait for the answer, or stop it.")
    const question = this.#message.text, { editing } = this.#message, last = this.#branch.at(-1)
    if (!question) return this.#say("Write a message first.")
    const edited = editing ? this.#frame?.exchanges.find(({ id }) => id === editing) : null
    const parent = edited ? edited.parent : last ? (last.answer.trim() ? last.id : last.parent) : ""
    this.#ask(question, parent)
  }

  /** @param {string} question @param {string} parent the exchange before it */
  async #ask(question, parent) {
    const frame = this.#frame, { origin, settings } = this.#workspace, key = newKey(), { id, answer, model, ttft_ms, from_cache, computed, generated } = frame?.exchanges[0] ?? {}
    const opening = id === OPENING && answer && model !== undefined ? { answer, model, ttft_ms, from_cache, computed, generated } : null
    const texts = frame?.id ? {} : { ...this.#workspace.texts(), origin, opening }
    this.#sending = true
    this.#say("")
    this.#buttons()
    const asked = await this.#server.ask("ask_chat", { key, id: frame?.id ?? "", parent, question, settings, ...texts })
    this.#sending = false
    if (asked.away || asked.error != null) {
      this.#say(asked.away ? KEPT : asked.error, "bad")
      this.#buttons()
      return
    }
    this.#message.clear(question)
    this.#take(asked.chat)
    this.#log.scrollTop = this.#log.scrollHeight
    await this.#follow(Promise.resolve(asked.job), key, false)
  }

  /** Shows an answer as it arrives. @param {Promise<import("../base/jobs.js").JobReply<Api.Exchange>>} begun @param {string} key @param {boolean} foreign whether another tab asked */
  async #follow(begun, key, foreign) {
    /** @type {Job<Api.Exchange>} */
    const job = new Job(this.#server, key)
    this.#job = job
    this.#log.setAttribute("aria-busy", "true")
    this.#told.textContent = "Answering…"
    this.#buttons()
    const over = () => {
      if (this.#job !== job) return
      this.#job = null
      this.#log.setAttribute("aria-busy", "false")
      this.#told.textContent = "The answer has ended."
      this.#buttons()
      this.#studio.emit("stored")
    }
    job.on("state", ({ result }) => {
      if (result) this.#update(result)
      if (result && result.state !== "working") over()  // the job itself ends a moment later
    })
    const end = await (foreign ? job.asked(begun) : job.followed(begun))
    if (this.#job === job && end.result) this.#update(end.result)
    else if (this.#job === job) this.#cutOff(key, end.away ? AWAY : (end.fault || end.error) ?? AWAY)
    over()
  }

  /** @param {Api.Exchange} exchange */
  #update(exchange) {
    const frame = this.#frame, at = frame?.exchanges.findIndex(({ id }) => id === exchange.id) ?? -1
    if (!frame || at < 0) return
    frame.exchanges[at] = exchange
    const log = this.#log, atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX
    this.#turns.get(exchange.id)?.show(exchange)
    if (atEnd) log.scrollTop = log.scrollHeight
    this.#showLeft()
  }

  /** @param {string} key @param {string} message */
  #cutOff(key, message) {
    const exchange = this.#frame?.exchanges.find(({ id }) => id === key)
    if (exchange) this.#update({ ...exchange, state: "stopped", working: "", message })
  }

  #halt() {
    if (document.activeElement === this.#stop) this.#message.focus()
    this.#job?.stop()
  }

  #back() {
    if (this.#job || this.#sending) return
    const id = this.#frame?.id || remembered("chat")
    if (id) this.#open(id)
    else this.#preview()
  }

  // Editing, forks and the prompt

  /** @type {import("./turns.js").Actions} */
  #actions = {
    edit: exchange => this.#message.edit(exchange.id, exchange.question),
    again: exchange => {
      if (this.#job || this.#sending) return this.#say("Wait for the answer, or stop it.")
      return this.#ask(exchange.question, exchange.parent)
    },
    fork: async exchange => {
      if (this.#job || this.#sending) return this.#say("Wait for the answer, or stop it.")
      const frame = await this.#server.ask("fork_chat", { id: this.#frame?.id ?? "", exchange: exchange.id })
      if (this.#refused(frame)) return
      this.#take(frame)
      this.#say("This is a new chat with the turns up to that answer. The other chat is in the list.")
      this.#message.focus()
    },
    write: async exchange => {
      const frame = this.#frame, open = this.#workspace.names.schema
      if (!frame) return
      if (frame.name !== open) return this.#say(`The open schema is “${open}”, but this chat uses “${frame.name}”. Open that schema first.`, "bad")
      const editor = this.#workspace.editors.prompt, mark = editor.mark()
      const written = await this.#server.ask("write_chat", { id: frame.id, exchange: exchange.id })
      editor.apply(mark, written.prompt)
      if (this.#refused(written)) return
      this.#written = written.prompt ?? ""
      this.#workspace.emit("wanted", "prompt")
      this.#say("The turns are in the prompt. Undo in its editor brings the earlier text back.")
    },
    select: async id => {
      if (this.#job || this.#sending) return this.#say("Wait for the answer, or stop it.")
      const frame = await this.#server.ask("select_turn", { id: this.#frame?.id ?? "", exchange: id })
      if (this.#refused(frame)) return
      this.#take(frame)
    },
  }

  /** Shows an error; returns whether there is one. @template Answer @param {import("../base/server.js").Reply<Answer>} answer @returns {answer is Exclude<typeof answer, Answer & {error?: undefined, away?: undefined}>} */
  #refused(answer) {
    if (answer.away || answer.error != null) this.#say(answer.away ? AWAY : answer.error ?? "", "bad")
    return Boolean(answer.away) || answer.error != null
  }

  async #goOn() {
    const frame = this.#frame, { origin } = this.#workspace
    if (!frame?.id) return
    const next = await this.#server.ask("go_on_chat", { id: frame.id, ...this.#workspace.texts(), origin })
    if (this.#refused(next)) return
    this.#take(next)
    this.#say("The next answers read the current documents. The earlier turns stay.")
    this.#message.focus()
  }

  // The list

  async #toggle() {
    if (!this.#list.node.hidden) return this.#hideList()
    const held = await this.#server.ask("list_chats", {})
    if (this.#refused(held)) return
    this.#list.show(held, this.#workspace.names.schema, this.#frame?.id ?? "")
    this.#list.node.hidden = false
    this.#log.hidden = true
    this.#chats.setAttribute("aria-expanded", "true")
  }

  #hideList() {
    this.#list.node.hidden = true
    this.#log.hidden = false
    this.#chats.setAttribute("aria-expanded", "false")
  }

  /** @param {Api.ChatSummary} chat */
  async #delete({ id, title }) {
    if (!await confirmed(this.node, `Delete the chat “${title}”? This cannot be undone.`, "Delete")) return
    const own = id === this.#frame?.id
    if (own) this.#halt()
    const answer = await this.#server.ask("delete_chat", { id })
    if (this.#refused(answer)) return
    const held = await this.#server.ask("list_chats", {})
    if (!held.away && held.error == null) this.#list.show(held, this.#workspace.names.schema, "")
    if (own) { forgotten("chat"); this.#frame = null; this.#look() }
    this.#chats.focus()
  }

  // The message

  /** @param {KeyboardEvent} event */
  #escape(event) {
    if (event.isComposing || event.defaultPrevented || !this.#job && !this.#message.editing || document.querySelector("dialog[open]")) return
    event.preventDefault()
    if (this.#job) this.#halt()
    else this.#message.leave()
  }

  async #count() {
    const { text } = this.#message
    if (!this.#workspace.countsTokens || !this.#visible) return
    const answer = text ? await this.#server.ask("count_tokens", { text }) : { tokens: 0 }
    if (text !== this.#message.text || answer.tokens == null) return
    this.#typed = answer.tokens
    this.#showLeft()
  }

  // Drawing

  #paint() {
    const frame = this.#frame, branch = this.#branch, model = this.#studio.model?.name ?? ""
    const turns = new Map(branch.map((exchange, index) => {
      const siblings = (frame?.exchanges ?? []).filter(({ parent }) => parent === exchange.parent).map(({ id }) => id)
      const drawn = { siblings, number: index + 1, stored: Boolean(frame?.id), model }, of = JSON.stringify([frame?.id, exchange.question, drawn])
      const known = this.#turns.get(exchange.id), made = known?.of === of ? known : { ...turn(exchange, { ...drawn, actions: this.#actions }), of }
      made.show(exchange)
      return [exchange.id, made]
    }))
    this.#turns = turns
    this.#markEdited()
    const words = h("p", { class: "empty" }, `${frame?.question ? "Send the question of your prompt, or write another one." : "Ask about the picked modules."} Each answer reads the modules and the earlier turns from the cache.`)
    this.#place(turns.size ? [...turns.values()].map(({ node }) => node) : [words])
    this.#about.textContent = frame ? `${frame.name}: ${frame.modules.length ? frame.modules.map(path => path.split("/").at(-1)).join(", ") : "no modules"}` : ""
    this.#about.title = frame ? `This chat reads the schema ${frame.name} with ${frame.modules.join(", ") || "no modules"}.` : ""
    this.#showDocuments()
    this.#showLeft()
  }

  #markEdited() {
    for (const [id, { node }] of this.#turns) node.toggleAttribute("data-edited", id === this.#message.editing)
  }

  // Screen readers read what is added: a turn in its place stays.
  /** @param {HTMLElement[]} nodes */
  #place(nodes) {
    const log = this.#log
    keepFocus(log, () => {
      for (const child of [...log.children]) if (!nodes.some(node => node === child)) child.remove()
      nodes.forEach((node, at) => { if (log.children[at] !== node) log.insertBefore(node, log.children[at] ?? null) })
    })
  }

  #showDocuments() {
    const frame = this.#frame, texts = this.#studio.belonging.texts
    const kinds = frame?.id && texts ? /** @type {("schema" | "prompt")[]} */ (["schema", "prompt"]).filter(kind => texts[kind] !== frame.of[kind]) : []
    const hidden = !frame || !kinds.length || (kinds.join() === "prompt" && this.#workspace.texts().prompt === this.#written)
    this.#changed.hidden = hidden
    if (hidden) return this.#changed.replaceChildren()
    const other = frame.name !== this.#workspace.names.schema
    refill(this.#changed, h("span", {}, other ? `This chat uses the schema “${frame.name}”, not the open documents.` : `This chat uses an earlier text of the ${kinds.join(" and the ")}.`),
      h("button", { type: "button", class: "link", "data-key": "go on", onclick: () => this.#goOn() }, "Go on with the open documents"),
      h("button", { type: "button", class: "link", "data-key": "open", onclick: () => this.#studio.shell.open("restore_chat", { id: frame.id }) }, "Open its documents"))
  }

  #showLeft() {
    const { context_length: window, name } = this.#studio.model ?? {}, last = this.#branch.at(-1)
    const used = last ? (last.model === name ? tokensOf(last) : null) : this.#frame && !this.#frame.id ? this.#ofPrompt : null
    const left = window && used != null ? window - used - this.#typed : null
    this.#left.textContent = left === null ? "" : left > 0 ? `About ${count(left)} tokens left` : "No tokens left: shorten the message, or begin a new chat."
    this.#left.title = window ? `The model reads at most ${count(window)} tokens: the prompt, all turns and the answer.` : ""
    this.#left.dataset.mood = left !== null && left <= 0 ? "bad" : ""
  }

  #buttons() {
    const busy = this.#job !== null || this.#sending
    this.#stop.hidden = !this.#job
    this.#send.setAttribute("aria-disabled", String(busy))
  }
}
