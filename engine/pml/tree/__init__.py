"""The syntax trees of schemas and prompts, and how imports resolve."""
