// Validates settings by their declarations, with the server's rules and messages.

const SPELLED = 40  // characters of a value in a message

/** @typedef {Record<string, any>} Settings by name */

/** @param {Api.SettingForm} setting @param {unknown} value */
export function takes({ kind, choices, least, most, above, pattern }, value) {
  if (kind === "flag") return typeof value === "boolean"
  if (kind === "choice") return typeof value === "string" && Object.hasOwn(choices ?? {}, value)
  if (kind === "form") return typeof value === "string" && new RegExp(`^(?:${pattern})$`).test(value)
  if (kind === "texts") return Array.isArray(value) && value.every(text => typeof text === "string" && text !== "")
  if (typeof value !== "number" || !Number.isFinite(value) || (kind === "integer" && !Number.isInteger(value))) return false
  return (least == null || value > least || (value === least && !above)) && (most == null || value <= most)
}

/** Whether a setting is one of decisions, which the drawer does not show. @param {string} name */
export const ofDecisions = name => name.startsWith("decide_")

/** Whether a value differs from the default. @param {Api.SettingForm} setting @param {unknown} value */
export const changed = (setting, value) => JSON.stringify(value) !== JSON.stringify(setting.default)

/** A setting's rule as a sentence. @param {Api.SettingForm} setting */
export const rule = ({ label, range }) => `${label} must be ${range}.`

/** @param {unknown} value */
function spelled(value) {
  if (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER) return `about ${value.toPrecision(3)}`
  const text = JSON.stringify(value)
  return text.length > SPELLED ? `${text.slice(0, SPELLED)}…` : text
}

/**
 * Saved settings with defaults in place of invalid values.
 * @param {Api.SettingForm[]} settings
 * @param {Settings} kept
 * @returns {{settings: Settings, names: string[], sentence: string}} which were set back; which and why in words, "" where none was
 */
export function mended(settings, kept) {
  const known = settings.filter(({ name }) => Object.hasOwn(kept, name)), wrong = known.filter(one => !takes(one, kept[one.name]))
  const reasons = wrong.map(({ name, label, range }) => `${label} was ${spelled(kept[name])} and must be ${range}`)
  const whose = wrong.length > 1 ? "These settings of the draft were reset to their defaults" : "This setting of the draft was reset to its default"
  return {
    settings: Object.fromEntries(known.map(one => [one.name, wrong.includes(one) ? one.default : kept[one.name]])),
    names: wrong.map(({ name }) => name),
    sentence: wrong.length ? `${whose}: ${reasons.join("; ")}.` : "",
  }
}
