"""`pml embed`: embeddings of texts."""
