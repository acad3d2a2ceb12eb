// What is linted: the page's scripts, and the sources of its editor.
import js from "@eslint/js"
import globals from "globals"

export default [
  { ignores: ["**/node_modules/", "**/editor.bundle.js"] },
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: "latest", sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "array-callback-return": "error",
      "eqeqeq": ["error", "always", { null: "ignore" }],
      "no-constructor-return": "error",
      "no-implicit-coercion": "error",
      "no-promise-executor-return": ["error", { allowVoid: true }],
      "no-self-compare": "error",
      "no-shadow": "error",
      "no-unused-private-class-members": "error",
      "no-unused-vars": ["error", { varsIgnorePattern: "^_", argsIgnorePattern: "^_" }],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
]
