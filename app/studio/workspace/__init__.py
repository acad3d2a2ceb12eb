"""The head of the page: open documents, files, imports and help."""
