"""Submits many prompts, answers them, and returns the results."""
