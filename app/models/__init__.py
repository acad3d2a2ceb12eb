"""Models on this machine: list, choice, and fit into memory."""
