"""A run in the studio: its state, its frames and the comparison of its sides."""
