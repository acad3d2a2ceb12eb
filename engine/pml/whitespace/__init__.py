"""White space: which of it a model reads, and words or Markdown blocks that meet."""
