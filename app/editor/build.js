// Builds assets/studio/editor.bundle.js from src/. `npm ci && npm run build` in this folder is all it takes.
import { createHash } from "node:crypto"
import { readFile, readdir, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { argv } from "node:process"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"

const here = dirname(fileURLToPath(import.meta.url))
const target = argv[2] ?? join(here, "..", "..", "assets", "studio")

const scripts = (await readdir(join(here, "src"))).map(name => `src/${name}`)
const sources = ["build.js", "package-lock.json", "package.json", ...scripts].sort()
const digest = createHash("sha256")
for (const name of sources) digest.update(`${name}\n`).update(await readFile(join(here, name)))
const banner = `/* Prompt Cache Studio editor; sources sha256 ${digest.digest("hex")}; licences in LICENSES.txt */`

const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: ["src/index.js"],
  bundle: true,
  minify: true,
  metafile: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  banner: { js: banner },
  outfile: join(target, "editor.bundle.js"),
})

const packages = new Set()
for (const input of Object.keys(metafile.inputs)) {
  const name = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1]
  if (name) packages.add(name)
}
const notices = []
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", name)
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"))
  const text = await readFile(join(folder, "LICENSE"), "utf8")
  notices.push(`${name} ${version} (${license})\n\n${text.trim()}\n`)
}
await writeFile(join(target, "LICENSES.txt"), `editor.bundle.js contains these packages.\n\n${notices.join(`\n${"-".repeat(72)}\n\n`)}`)
