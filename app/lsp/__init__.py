"""The language server `pml lsp`, with one file for each kind of request."""
