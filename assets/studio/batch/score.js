// Scores of answers by hand: a thumb up is 1, a thumb down 0, and any number between is possible.
import { h } from "../base/dom.js"
import { icon } from "../base/icons.js"

/** @typedef {"cached" | "uncached"} Side */
/** @typedef {(number: number, side: Side, score: number | null) => unknown} Rate */

/** Shows a score on its control. @param {Element} node @param {number | null} score */
export function showScore(node, score) {
  for (const button of node.querySelectorAll("button")) button.setAttribute("aria-pressed", String(score !== null && Number(button.value) === score))
  const field = node.querySelector("input")
  if (field && document.activeElement !== field) field.value = score === null ? "" : String(score)
}

/** @param {number} number of the row @param {Side} side @param {number | null} score @param {Rate} rate @param {string} id of the row */
export function scoreOf(number, side, score, rate, id) {
  const of = `the ${side} answer of row ${id}`
  const thumb = (/** @type {number} */ value, /** @type {string} */ word) => {
    const button = h("button", { type: "button", class: "quiet thumb", value: String(value), "data-key": `thumb ${value} ${number} ${side}`, "aria-label": `${word}: ${of}`, title: `${word} (${value})`,
      onclick: () => rate(number, side, button.getAttribute("aria-pressed") === "true" ? null : value) }, icon("thumb"))
    return button
  }
  const field = h("input", { type: "number", min: "0", max: "1", step: "any", placeholder: "0–1", "data-key": `score ${number} ${side}`, "aria-label": `Score of ${of}, from 0 to 1`,
    onchange: () => { if (field.reportValidity()) rate(number, side, field.value === "" ? null : Number(field.value)) } })
  const node = h("span", { class: "score", "data-score": `${number} ${side}` }, thumb(1, "Good"), thumb(0, "Bad"), field)
  showScore(node, score)
  return node
}
