"""KV caches that read segments in place, one for each kind of pass."""
