"""Edits documents: picks and arguments, formatting, and writing documents from trees."""
