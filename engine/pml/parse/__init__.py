"""From elements to checked schemas and prompts, and a prompt bound to its schema."""
