"""Models on this machine: which there are, which is chosen, and whether it fits into memory."""
