// Two texts side by side: lines that differ, with marked words.
import { h, plural } from "../base/dom.js"

/** @param {Api.Line | null} line @param {"del" | "ins"} mark @param {boolean} changed */
function cells(line, mark, changed) {
  if (!line) return [h("td", { class: "number none" }), h("td", { class: "none" })]
  const parts = line.parts.map(part => part.changed ? h(mark, {}, part.text) : part.text)
  return [h("td", { class: "number" }, String(line.number)), h("td", { class: changed ? `changed ${mark}` : "" }, ...parts)]
}

/**
 * A difference as a table, or a sentence if there is none.
 * @param {Api.TextDifference} difference
 * @param {{title: string, left: string, right: string}} words the titles of the document and of both sides
 */
export function differenceTable({ rows, removed, added, omitted, coarse }, { title, left, right }) {
  const head = h("h3", {}, title)
  if (!rows.some(({ changed }) => changed)) return h("section", { class: "difference" }, head, h("p", { class: "soft" }, "The same on both sides."))
  const lines = [...new Set([removed, added])].length === 1 ? plural(added, "line") : `${plural(removed, "line")} on the left, ${added} on the right`
  const body = rows.flatMap(row => [
    row.skipped ? h("tr", { class: "skipped" }, h("td", { colSpan: 4 }, plural(row.skipped, "equal line"))) : null,
    h("tr", { class: row.changed ? "" : "equal" }, ...cells(row.left, "del", row.changed), ...cells(row.right, "ins", row.changed)),
  ]).filter(row => row !== null)
  return h("section", { class: "difference" }, head,
    h("p", { class: "soft" }, `${lines} differ.${coarse ? " The texts are too different to compare by line." : ""}`),
    h("div", { class: "sides", tabindex: "0", role: "region", "aria-label": `Differences: ${title}` },
      h("table", {},
        h("colgroup", {}, ...["number", "", "number", ""].map(name => h("col", { class: name }))),
        h("thead", {}, h("tr", {}, h("th", { colSpan: 2, scope: "colgroup" }, left), h("th", { colSpan: 2, scope: "colgroup" }, right))),
        h("tbody", {}, ...body))),
    omitted ? h("p", { class: "soft" }, `${plural(omitted, "more line")} not shown.`) : null)
}
