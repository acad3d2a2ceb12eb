"""Reads Python source: signatures, expressions and constants. Runs nothing."""
