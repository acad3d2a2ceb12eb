// Starts `pml lsp` for documents of PML.
const { workspace } = require("vscode")
const { LanguageClient } = require("vscode-languageclient/node")

let client

exports.activate = () => {
  const settings = workspace.getConfiguration("pml")
  const model = settings.get("model")
  const server = { command: settings.get("command"), args: ["lsp", ...(model ? ["--model", model] : [])] }
  client = new LanguageClient("pml", "PML", server, { documentSelector: [{ language: "pml" }] })
  return client.start()
}

exports.deactivate = () => client?.stop()
