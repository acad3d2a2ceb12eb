"""Builds checked schemas and prompts from elements, and binds prompts to schemas."""
