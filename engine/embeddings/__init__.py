"""Embeddings of texts: final hidden states of the model, pooled."""
