"""Connects requests to the engine: limits, caching, schemas, usage and metrics."""
