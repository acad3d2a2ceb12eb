"""Weights in fewer bits or in packed blocks, and their memory use."""
