"""Segments: found in memory or on disk, or encoded and stored."""
