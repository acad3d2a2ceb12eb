"""Shared parts of the engine: errors, events, segments and choices."""
