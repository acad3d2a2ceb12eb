// The types of the bundle are those of its sources.
export * from "../../app/editor/src/index.js"
