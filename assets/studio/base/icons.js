// Icons of pages and header: lines on a grid of 20, in the text's colour.

const SVG = "http://www.w3.org/2000/svg"

/** @type {Record<string, string>} */
const PATHS = {
  author: "M3 16.5h5M3 12h4M3 7.5h6M3 3h10 M9.5 16.5l.7-3.2 6-6a1.6 1.6 0 0 1 2.3 2.3l-6 6z",
  runs: "M3.2 10a6.8 6.8 0 1 0 2.2-5M3 3.2v3.4h3.4 M8.4 7.2v5.6l4.6-2.8z",
  batch: "M3 4h14v12H3z M3 8h14M3 12h14M8 4v12",
  benchmark: "M3 17h14 M5.5 17V11M10 17V7M14.5 17V3",
  cache: "M3.5 5c0-1.2 2.9-2.2 6.5-2.2S16.5 3.8 16.5 5s-2.9 2.2-6.5 2.2S3.5 6.2 3.5 5z M3.5 5v5c0 1.2 2.9 2.2 6.5 2.2s6.5-1 6.5-2.2V5 M3.5 10v5c0 1.2 2.9 2.2 6.5 2.2s6.5-1 6.5-2.2v-5",
  models: "M6 6h8v8H6z M3 8h3M3 12h3M14 8h3M14 12h3M8 3v3M12 3v3M8 14v3M12 14v3",
  serve: "M10 12.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4z M6.2 13.8a5.4 5.4 0 0 1 0-7.6M13.8 6.2a5.4 5.4 0 0 1 0 7.6 M3.7 16.3a8.9 8.9 0 0 1 0-12.6M16.3 3.7a8.9 8.9 0 0 1 0 12.6",
  gallery: "M3.5 3.5h5v5h-5z M11.5 3.5h5v5h-5z M3.5 11.5h5v5h-5z M11.5 11.5h5v5h-5z",
  help: "M10 17.2a7.2 7.2 0 1 0 0-14.4 7.2 7.2 0 0 0 0 14.4z M7.9 8.1a2.1 2.1 0 1 1 3 1.9c-.7.3-.9.7-.9 1.4M10 13.9v.1",
  commands: "M3.5 5.5l4 4.5-4 4.5M10 14.5h6.5",
  theme: "M10 16.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13z M10 3.5v13M12 5v10M14 6.5v7",
  settings: "M3 6h6M13 6h4M3 14h3M10 14h7 M11 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4z M8 16a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  thumb: "M6.2 9v7.5H3.5V9z M6.2 9l3-5.8c1.4 0 2.2 1 1.9 2.3L10.5 8h4.6c1.1 0 1.8.9 1.6 1.9l-1.1 5c-.2.9-.9 1.6-1.9 1.6H6.2",
  page: "M5 3h7l3.5 3.5V17H5z M11.5 3v4h4",
}

/** An icon by name; a sheet of paper if unknown. @param {string} name */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path")
  for (const [attribute, value] of [["viewBox", "0 0 20 20"], ["class", "icon"], ["aria-hidden", "true"], ["focusable", "false"]]) svg.setAttribute(attribute, value)
  path.setAttribute("d", PATHS[name] ?? PATHS.page)
  svg.append(path)
  return svg
}
