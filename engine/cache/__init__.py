"""Finds segments in memory or on disk, or encodes and stores them."""
