"""Prompts as integers: token ids, positions, and the context of each segment. No tensors, no files."""
