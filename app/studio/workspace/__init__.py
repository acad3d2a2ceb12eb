"""The page's header: open documents, files, imports and help."""
