// Hover text of modules in the editors: tokens, and the tier of keys and values.
import { bytes, count, plural } from "../base/dom.js"

/**
 * @param {import("../documents/workspace.js").Workspace} workspace
 * @param {Api.TierWords[]} tiers
 */
export function tellSizes(workspace, tiers) {
  const labels = new Map(tiers.map(({ name, label }) => [name, label]))
  workspace.on("measured", ({ sizes }) => {
    const facts = Object.fromEntries(Object.entries(sizes).map(([path, { tokens, total, bytes: size, cached }]) =>
      [path, `${plural(total, "token")}${total > tokens ? `, ${count(tokens)} of its own` : ""} · ${labels.get(cached) ?? cached}${size ? `, ${bytes(size)}` : ""}`]))
    for (const editor of Object.values(workspace.editors)) editor.setFacts(facts)
  })
}
