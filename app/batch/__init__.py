"""Rows of a batch: their answers and the table of results."""
