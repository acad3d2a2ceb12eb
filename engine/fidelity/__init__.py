"""How far a cached answer is from the uncached one, and how to reduce that."""
