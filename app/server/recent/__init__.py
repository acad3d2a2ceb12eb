"""The latest requests, and why tokens of them were computed again."""
