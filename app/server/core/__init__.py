"""From a request to the engine: limits, caching, schemas, usage and metrics."""
