"""Answers: parameters, prefill and decoding, repair, and what reuse changed."""
