"""Grammars: what the text of an answer must match, and the tokens that keep to it."""
