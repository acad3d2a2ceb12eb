"""Weights in fewer bits or in packed blocks, and the memory that they take."""
