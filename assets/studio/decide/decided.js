// The decisions of both sides: a bar for each option, and the time and tokens of each side.
import { count, h, milliseconds, plural, times } from "../base/dom.js"

/** @type {["cached", "uncached"]} */
export const SIDES = ["cached", "uncached"]
const TITLES = { cached: "Cached", uncached: "Uncached" }
export const percent = (/** @type {number} */ value) => `${(100 * value).toFixed(1)}%`

/** The result of the Decide tab. @param {Api.DecidedPrompt} decided */
export function decidedView({ questions, sides, encoded, encode_ms, warnings }) {
  const differing = questions.filter(({ cached, uncached }) => cached.best !== uncached.best).length
  const [ratio, word] = times(sides.uncached.ms / sides.cached.ms)
  const one = questions.length === 1, same = one ? "Both sides make the same decision." : `Both sides make the same ${plural(questions.length, "decision")}.`
  const other = one ? "The decision differs between the sides." : `${count(differing)} of ${plural(questions.length, "decision")} differ${differing === 1 ? "s" : ""} between the sides.`
  return [
    h("p", { class: "decide-verdict", "data-verdict": differing ? "warn" : "good" }, differing ? other : same),
    h("p", { class: "soft" }, `The cached side is ${ratio} ${word}, timed once.`, encoded ? ` Encoding ${plural(encoded, "token")} took ${milliseconds(encode_ms)} before it; the next decisions read them from the cache.` : ""),
    h("table", { class: "decide-sides" }, h("thead", {}, h("tr", {}, ...["Side", "Time", "Computed tokens", "Cached tokens"].map(name => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...SIDES.map(side => h("tr", {}, h("th", { scope: "row" }, TITLES[side]), h("td", {}, milliseconds(sides[side].ms)), h("td", {}, count(sides[side].computed)), h("td", {}, count(sides[side].from_cache)))))),
    ...warnings.map(sentence => h("p", { "data-mood": "warn" }, sentence)),
    ...questions.map(question => group(question)),
  ]
}

/** One question with the bars of both sides. @param {Api.DecidedQuestion} decided */
function group(decided) {
  const { kind, question, options, cached, uncached } = decided
  const rows = options.map((option, at) => h("tr", {}, h("th", { scope: "row" }, option), ...SIDES.map(side => share(decided[side], at, side))))
  const level = (/** @type {"cached" | "uncached"} */ side) => h("td", {}, h("strong", {}, decided[side].expected.toFixed(2)))
  const flips = Math.max(cached.order_flips, uncached.order_flips)
  return h("section", { class: "decide-group", "aria-label": question },
    h("h3", {}, question),
    cached.best !== uncached.best && h("p", { "data-mood": "warn" }, `The decision differs: “${options[cached.best]}” with the cache, “${options[uncached.best]}” without it.`),
    flips > 0 && h("p", { "data-mood": "warn" }, `${percent(flips)} of the other orders of options give another answer.`),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, kind === "score" ? "Level" : "Option"), ...SIDES.map(side => h("th", { scope: "col" }, TITLES[side])))),
      h("tbody", {}, ...rows),
      kind === "score" ? h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, `Average level (0 = ${options[0]}, ${options.length - 1} = ${options.at(-1)})`), ...SIDES.map(level))) : null))
}

/** @param {Api.DecidedAnswer} answer @param {number} at the option @param {"cached" | "uncached"} side */
function share({ probabilities, best }, at, side) {
  const bar = h("span", { class: `decide-bar ${side}`, style: `width: ${percent(probabilities[at])}` }), chosen = at === best
  return h("td", { "data-best": chosen ? "yes" : null }, h("span", { class: "decide-share" }, h("span", { class: "decide-track", "aria-hidden": "true" }, bar),
    h("span", { class: "decide-value" }, chosen ? h("span", { title: "The most probable option" }, "✓ ", h("span", { class: "sr" }, "most probable: ")) : null, percent(probabilities[at]))))
}
