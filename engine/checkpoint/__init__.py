"""Model files: where they come from, what they contain, and their identity."""
