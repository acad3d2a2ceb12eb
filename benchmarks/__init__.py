"""Measures speed and quality in a checkout: `python -m benchmarks`. The wheel does not have this package."""
