"""White space: separators between modules, and words or Markdown blocks that touch."""
