"""Model files: sources, contents and identity."""
