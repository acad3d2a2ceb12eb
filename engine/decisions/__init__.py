"""Typed questions about a prompt, answered with probabilities instead of text."""
