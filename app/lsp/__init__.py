"""The language server `pml lsp`: what an editor asks of documents, one file for each kind of request."""
