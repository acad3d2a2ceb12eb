"""Models: loading, the forward pass over segments, and what it was measured to support."""
