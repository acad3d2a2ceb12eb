"""Recorded runs of agents against the server."""
