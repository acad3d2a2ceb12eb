"""`pml maps`: stored attention maps."""
