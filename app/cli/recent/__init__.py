"""Commands about the latest requests of a running server."""
