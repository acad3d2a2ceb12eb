// The details of a row: both answers, their differences, the checks, and the sources of tokens.
import { count, h, milliseconds, nats, plural, times } from "../base/dom.js"
import { formatMark } from "../runs/panes.js"
import { chipsOf } from "./held.js"
import { scoreOf } from "./score.js"

/** @type {[keyof Pick<Api.RowWhole, "cached" | "uncached">, string][]} */
const SIDES = [["cached", "Cached"], ["uncached", "Uncached"]]

/** The tokens of the segments that a row encoded. @param {Record<string, number>} tokens */
const encodedOf = tokens => tokens.encoded_segments ?? tokens.encoded ?? 0

/**
 * Why a row's time is not that of a cached prompt: a label and a sentence; null if all its segments were cached.
 * @param {Pick<Api.SideShown, "tokens"> | null | undefined} side @returns {[string, string] | null}
 */
export function uncachedTime(side) {
  if (!side) return null
  const { from_cache: read } = side.tokens, encoded = encodedOf(side.tokens)
  if (!read) return ["no reuse", "This row read no tokens from the cache."]
  return encoded ? ["first time", `${plural(encoded, "token")} of its modules ${encoded === 1 ? "was" : "were"} not cached. This row's time includes encoding; later rows reuse the result.`] : null
}

/** @param {Api.SideWhole} side */
function facts({ ttft_ms, tokens, ended, format_fault: fault }) {
  /** @type {[string, string][]} */
  const told = [["first token after", milliseconds(ttft_ms)], ["from cache", count((tokens.from_cache ?? 0) - (tokens.encoded ?? 0))], ["computed", count(tokens.computed ?? 0)], ["generated", count(tokens.generated ?? 0)]]
  if (encodedOf(tokens)) told.splice(2, 0, ["encoded now", count(encodedOf(tokens))])
  if (ended === "length") told.push(["ended", `cut at ${count(tokens.generated ?? 0)} tokens`])
  const mark = formatMark(fault)
  return h("dl", { class: "side-facts" }, ...told.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))), mark && h("div", {}, h("dt", {}, "format"), h("dd", {}, mark)))
}

/** @param {string} title @param {Api.SideWhole} side @param {[string, boolean][] | undefined} difference @param {HTMLElement} score @param {Api.Grade | undefined} grade */
function answer(title, side, difference, score, grade) {
  const words = difference?.length ? difference.map(([text, differs]) => differs ? h("mark", {}, text) : text) : [side.text || h("span", { class: "soft" }, "The model generated no text.")]
  return h("section", { class: "row-side", "data-side": title.toLowerCase(), "aria-label": `${title} answer` }, h("header", {}, h("h4", {}, title), h("span", { class: "grow" }), score), facts(side),
    h("div", { class: "row-answer", tabindex: "0", role: "region", "aria-label": `Text of the ${title.toLowerCase()} answer` }, ...words), grade ? h("p", { class: "judge-said" }, h("strong", {}, grade.score == null ? "No grade. " : `Grade ${grade.score}. `), h("span", { class: "soft" }, `The judge: ${grade.reply}`)) : null, ...side.warnings.map(warning => h("p", { "data-mood": "warn" }, warning)))
}

/** @param {Api.CheckVerdict[]} checks */
function verdicts(checks) {
  if (!checks.length) return null
  const sides = SIDES.filter(([side]) => checks.some(one => one[side] !== null))
  const verdict = (/** @type {string | null} */ fault) => fault === null ? h("td", {}, "–") : h("td", { "data-mood": fault ? "bad" : "good" }, fault ? `✕ ${fault}` : "✓ passes")
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Checks of this row" }, h("table", { class: "check-verdicts" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Check"), ...sides.map(([, title]) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, ...checks.map(one => h("tr", {}, h("th", { scope: "row" }, one.check), ...sides.map(([side]) => verdict(one[side])))))))
}

/** @param {Api.RowShown} row */
function between({ speedup, first_token_agrees: agrees, kl_first_token: divergence, same_text: same }) {
  if (same == null) return null
  const told = [speedup && `${times(speedup).join(" ")} to the first token`, `first token ${agrees ? "the same" : "differs"}`, divergence != null && `its KL ${nats(divergence)}`, same ? "same text" : "texts differ"]
  return h("p", { class: "soft" }, told.filter(Boolean).join(" · "))
}

/** @param {Api.RowWhole} whole @param {import("./score.js").Rate} rate @param {() => unknown} open opens the row in Author */
export function rowDetail({ row, prompt, modules, settings, reuse, cached, uncached, difference, checks }, rate, open) {
  const sides = { cached, uncached }, [label, why] = uncachedTime(cached) ?? []
  return h("div", { class: "row-whole" },
    row.fault ? h("p", { "data-mood": "bad" }, row.fault.message) : null,
    label ? h("p", { class: "soft" }, `${label[0].toUpperCase()}${label.slice(1)}. ${why}`) : null,
    h("div", { class: "row-sides" }, ...SIDES.flatMap(([side, title]) => { const found = sides[side]; return found ? [answer(title, found, difference?.[side], scoreOf(row.number, side, row[side]?.score ?? null, rate, row.id), row[side]?.grade)] : [] })),
    reuse ? h("p", row.over_limit ? { "data-mood": "bad" } : { class: "soft" }, `${reuse}.`) : null,
    h("p", { class: "row-held" }, ...chipsOf({ modules, settings })),
    h("header", { class: "row-head" }, between(row), h("span", { class: "grow" }), h("button", { type: "button", disabled: !prompt, onclick: open }, "Open in Author")),
    verdicts(checks),
    prompt ? h("details", {}, h("summary", {}, "Prompt of this row"), h("pre", { tabindex: "0" }, prompt)) : null)
}
