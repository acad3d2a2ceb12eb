// Files of shared runs: detects and imports them.
import { bytes, count, plural } from "../base/dom.js"

const MOST_BYTES = 16 * 1024 * 1024
const HEAD = 1024
const AWAY = "The studio's server does not answer. Nothing was imported; try again when it is back."

/** Whether a file contains runs, as JSON or HTML. @param {File} file */
export async function holdsRuns(file) {
  if (/\.json$/i.test(file.name)) return /^\s*\{\s*"prompt_cache_studio":\s*"runs"/.test(await file.slice(0, HEAD).text())
  return /\.html?$/i.test(file.name) && file.size <= MOST_BYTES && (await file.text()).includes('id="prompt-cache-studio-runs"')
}

/**
 * Imports the runs of a file; returns a message.
 * @param {File} file
 * @param {import("../base/server.js").Server} server
 * @returns {Promise<{words: string, done: boolean}>}
 */
export async function kept(file, server) {
  if (file.size > MOST_BYTES) return { words: `${file.name} is larger than the limit of ${bytes(MOST_BYTES)}. Nothing was imported.`, done: false }
  const answer = await server.ask("import_runs", { name: file.name, text: await file.text() })
  if (answer.read == null) return { words: answer.error ?? AWAY, done: false }
  const { read, added } = answer, here = added === read ? "" : `; ${count(read - added)} existed already`
  return { words: `${plural(added, "run")} of ${file.name} imported${here}.`, done: true }
}

/**
 * Imports the runs of a dropped file.
 * @param {File} file
 * @param {import("../base/server.js").Server} server
 * @param {import("../shell/shell.js").Shell} shell
 */
export async function bringRuns(file, server, shell) {
  const { words, done } = await kept(file, server)
  const there = shell.page === "runs"
  if (done && there) shell.emit("shown", "runs")
  shell.notice(words, { key: "runs", mood: done ? "info" : "bad", actions: done && !there ? [["Show the runs", () => shell.go("runs")]] : [] })
}
