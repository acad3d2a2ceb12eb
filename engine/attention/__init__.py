"""Attention over keys in several places: kernels, masks and rotary embeddings."""
