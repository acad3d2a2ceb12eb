// The stored chats, those of the open schema first.
import { h, moment, plural, refill } from "../base/dom.js"
import { Emitter } from "../base/events.js"

/**
 * "chosen": a chat, by its id; "deleted": a chat to delete.
 * @extends {Emitter<{chosen: string, deleted: Api.ChatSummary}>}
 */
export class ChatList extends Emitter {
  #rows = h("ul", { class: "chat-rows" })
  #about = h("p", { class: "soft" })
  node = h("div", { class: "chat-list", role: "region", "aria-label": "Stored chats", hidden: true }, this.#about, this.#rows)

  /** @param {Api.ChatsHeld} held @param {string} schema the open schema's name @param {string} current the open chat */
  show({ chats, most }, schema, current) {
    const own = chats.filter(chat => chat.schema === schema), others = chats.filter(chat => chat.schema !== schema)
    this.#about.textContent = chats.length ? `At most ${most} chats are stored. The least recently used ones are deleted first.` : "No chats yet. Ask something: the chat is stored with its documents."
    refill(this.#rows, ...[...own, ...others].map(chat => this.#row(chat, chat.id === current)))
  }

  /** @param {Api.ChatSummary} chat @param {boolean} current */
  #row(chat, current) {
    const { id, title, schema, changed, turns } = chat
    return h("li", {},
      h("button", { type: "button", class: "chat-row", "data-key": id, "aria-current": current || null, onclick: () => this.emit("chosen", id) },
        h("strong", {}, title || "(no question)"), h("span", { class: "soft" }, `${schema} · ${plural(turns, "turn")} · ${moment(changed)}`)),
      h("button", { type: "button", class: "quiet", "data-key": `delete ${id}`, "aria-label": `Delete the chat “${title}”`, onclick: () => this.emit("deleted", chat) }, "Delete"))
  }
}
