"""Attention maps of similar texts: quality and time, with baselines and controls."""
