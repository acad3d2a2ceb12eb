"""Edits of documents: picks and arguments, formatting, and documents written from a tree."""
