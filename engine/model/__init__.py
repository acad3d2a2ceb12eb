"""Models: loading, the forward pass over segments, and measurements."""
