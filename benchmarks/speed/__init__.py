"""Measurements of time, memory and disk."""
