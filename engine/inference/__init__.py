"""Generates answers: settings, prefill, decoding, and repair."""
