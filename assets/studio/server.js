// Questions to the server. A call that gets no answer means that the server is away: say so, and keep trying.
const PATIENCE_MS = 20_000
const RETRY_MS = 1500

export class Server extends EventTarget {
  #functions
  #away = false

  connect(functions) { this.#functions = functions }

  get away() { return this.#away }

  /** The answer of a server function; {away: true} where none came; {error} where the server refused in words. */
  async ask(name, request = {}) {
    let answer
    try {
      const patience = new Promise(resolve => setTimeout(resolve, PATIENCE_MS))
      answer = await Promise.race([this.#functions[name](request), patience])
    } catch {
      answer = undefined
    }
    const away = answer === undefined || answer === null || typeof answer !== "object"
    if (away !== this.#away) {
      this.#away = away
      this.dispatchEvent(new Event(away ? "away" : "back"))
      if (away) this.#knock()
    }
    return away ? { away: true } : answer
  }

  #knock() {
    setTimeout(async () => {
      if (this.#away && (await this.ask("count_tokens", { text: "" })).away) this.#knock()
    }, RETRY_MS)
  }
}
