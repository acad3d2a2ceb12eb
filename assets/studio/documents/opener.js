// Opens samples, files and versions. The current texts become a version.
import { taken } from "./browser_files.js"
import { decoded } from "./file_saving.js"

const MOST_BYTES = 5 * 1024 * 1024
/** @type {import("./workspace.js").Kind[]} */
const KINDS = ["schema", "prompt"]

/** @typedef {NonNullable<Api.OpenFile["encoding"]>} Encoding */
/** @typedef {"new_workspace" | "open_sample" | "open_file" | "open_text" | "open_shelved" | "restore_run" | "restore_chat" | "batch_open" | "open_imported" | "open_sample_schema"} Question */

/** @type {Partial<Record<Encoding, string>>} */
const OFFERS = { "windows-1252": "Windows-1252", "utf-16": "UTF-16" }

export class Opener {
  #workspace
  #server
  #shell

  /**
   * @param {import("./workspace.js").Workspace} workspace
   * @param {import("../base/server.js").Server} server
   * @param {import("../shell/shell.js").Shell} shell shows notices and pages
   */
  constructor(workspace, server, shell) {
    this.#workspace = workspace
    this.#server = server
    this.#shell = shell
    workspace.on("opened", () => { for (const key of ["encoding", "told"]) shell.dismiss(key) })
  }

  /**
   * Opens a workspace through an endpoint.
   * @template {Question} Asked
   * @param {Asked} question
   * @param {Omit<Api.Questions[Asked][0], "page">} request
   * @returns {Promise<void>}
   */
  open(question, request) {
    const opening = this.#opened(question, request).finally(() => { if (this.#workspace.opening === opening) this.#workspace.opening = null })
    this.#workspace.opening = opening
    return opening
  }

  /**
   * @template {Question} Asked
   * @param {Asked} question
   * @param {Omit<Api.Questions[Asked][0], "page">} request
   * @returns {Promise<void>}
   */
  async #opened(question, request) {
    const asked = /** @type {Api.Questions[Asked][0]} */ ({ ...request, page: this.#workspace.page() })
    const answer = /** @type {import("../base/server.js").Reply<Api.Opened>} */ (await this.#server.ask(question, asked))
    if (answer.away) return
    if (answer.error != null) return this.#shell.notice(answer.error)
    const { encoding } = answer
    if (encoding) return this.#offer(answer.message ?? "", encoding, () => this.open(question, { ...request, encoding }))
    this.#shell.go("author")
    if (answer.kind) this.#workspace.emit("wanted", answer.kind)
    if (answer.workspace) await this.#workspace.open(answer.workspace)
    if (answer.told) this.#tell(answer.told, answer.offers ?? [])
  }

  /** Opens a file that the browser reads. @param {File} file @param {FileSystemFileHandle | null} handle to save to @param {Encoding} [encoding] @returns {Promise<void>} */
  async openChosen(file, handle = null, encoding) {
    if (file.size > MOST_BYTES) return this.#shell.notice(`${file.name} is larger than 5 MB. Open a smaller file.`)
    const bytes = new Uint8Array(await file.arrayBuffer()), found = decoded(bytes, encoding)
    if (found) {
      await this.open("open_text", { name: file.name, ...found })
      const opened = `browser:${file.name}`, kind = KINDS.find(one => this.#workspace.originOf(one) === opened && this.#workspace.texts()[one] === found.text)
      if (handle && kind) await this.#workspace.noteMoved(kind, taken(handle, file))
      return
    }
    const other = bytes[0] >= 0xfe ? "utf-16" : "windows-1252"
    if (encoding === other) return this.#shell.notice(`${file.name} cannot be read as ${OFFERS[other]}. Convert it to UTF-8 first.`)
    this.#offer(`${file.name} is not UTF-8. Open it as ${OFFERS[other]}? It will be saved as UTF-8.`, other, () => this.openChosen(file, handle, other))
  }

  /** Reports what happened to the other document, and suggests schemas. @param {string} sentence @param {Api.Offer[]} offers */
  #tell(sentence, offers) {
    this.#shell.notice(sentence, { key: "told", mood: "info", actions: offers.map(({ words, sample, file }) => [words, () => this.#beside(sample, file)]) })
  }

  // Keeps the prompt, because it belongs to this schema.
  /** @param {string} [sample] @param {string} [file] */
  async #beside(sample, file) {
    if (file) return this.open("open_file", { name: file })
    if (sample) return this.open("open_sample_schema", { name: sample })
  }

  /** @param {string} sentence @param {Encoding} encoding @param {() => unknown} open */
  #offer(sentence, encoding, open) {
    this.#shell.notice(sentence, { key: "encoding", mood: "info", actions: [[`Open as ${OFFERS[encoding]}`, open]] })
  }
}
