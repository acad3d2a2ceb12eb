"""The prefix tree of running prompts (ChunkAttention)."""
