"""Endpoints that answer questions with probabilities."""
