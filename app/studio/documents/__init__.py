"""The user's documents: folder, drafts, recent files and their analysis."""
