"""Shared parts of the endpoints: JSON answers, jobs, streams and charts."""
