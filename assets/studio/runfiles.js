// Files of runs that somebody has shared: known by what stands in them, and brought back among the runs.
import { bytes, count, plural } from "./dom.js"

const MOST_BYTES = 16 * 1024 * 1024
const HEAD = 1024
const AWAY = "The studio's server does not answer. Nothing was imported; try again when it is back."

/** Whether a file is one of runs, in JSON or as a page. @param {File} file */
export async function holdsRuns(file) {
  if (/\.json$/i.test(file.name)) return /^\s*\{\s*"prompt_cache_studio":\s*"runs"/.test(await file.slice(0, HEAD).text())
  return /\.html?$/i.test(file.name) && file.size <= MOST_BYTES && (await file.text()).includes('id="prompt-cache-studio-runs"')
}

/**
 * Asks the server to keep the runs of a file: how it ended, in words.
 * @param {File} file
 * @param {import("./server.js").Server} server
 * @returns {Promise<{words: string, done: boolean}>}
 */
export async function kept(file, server) {
  if (file.size > MOST_BYTES) return { words: `${file.name} is larger than the ${bytes(MOST_BYTES)} that are read. Nothing was imported.`, done: false }
  const answer = await server.ask("import_runs", { name: file.name, text: await file.text() })
  if (answer.read == null) return { words: answer.error ?? AWAY, done: false }
  const { read, added } = answer, here = added === read ? "" : `; ${count(read - added)} were here already`
  return { words: `${plural(added, "run")} of ${file.name} imported${here}.`, done: true }
}

/**
 * The same for a file that was dropped on any page.
 * @param {File} file
 * @param {import("./server.js").Server} server
 * @param {import("./shell.js").Shell} shell
 */
export async function bringRuns(file, server, shell) {
  const { words, done } = await kept(file, server)
  const there = shell.page === "runs"
  if (done && there) shell.emit("shown", "runs")
  shell.notice(words, { key: "runs", mood: done ? "info" : "bad", actions: done && !there ? [["Show the runs", () => shell.go("runs")]] : [] })
}
